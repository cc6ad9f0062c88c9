"""Lesson 10: four beliefs, each to be committed to before torch shows what is true."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from contextlib import suppress

import torch
from torch import nn

from zerograd.learn.content import Part, Pause, Question, Say, Table, number
from zerograd.learn.lessons import place
from zerograd.learn.lessons.shared import REGRESSION, asked_to_check, flat, whole_loss
from zerograd.learn.snippet import Snippet

ADAM = Snippet(
    """\
for x_batch, y_batch in loader:
    loss = loss_fn(model(x_batch), y_batch)
    loss.backward()
    optimizer.step()
""",
    REGRESSION.replace("SGD", "Adam"),
    "adam.py",
)


def by_itself() -> tuple[float, float, float]:
    """`.grad` after one backward, after a step, and after the same backward again."""
    weight = nn.Parameter(torch.tensor(2.0))
    optimizer = torch.optim.SGD([weight], lr=0.1)

    def held() -> float:
        assert weight.grad is not None
        return weight.grad.item()

    torch.autograd.backward(3 * weight)
    first = held()
    optimizer.step()
    second = held()
    torch.autograd.backward(3 * weight)
    return first, second, held()


def optimizers() -> list[tuple[str, float, float]]:
    """Every optimizer that torch has and that takes a plain step: |.grad| before and after a step."""
    found = []
    for name, kind in sorted(vars(torch.optim).items()):
        if not (inspect.isclass(kind) and issubclass(kind, torch.optim.Optimizer)):
            continue
        weight = nn.Parameter(torch.ones(2, 2))
        # The base class, and those that want a closure or sparse gradients, take no plain step.
        with suppress(TypeError, RuntimeError, NotImplementedError):
            optimizer = kind([weight], lr=0.01)  # type: ignore[call-arg]
            torch.autograd.backward((3 * weight).sum())
            assert weight.grad is not None
            before = weight.grad.norm().item()
            optimizer.step()
            found.append((name, before, weight.grad.norm().item()))
    return found


def knowledge() -> tuple[float, float, float]:
    """A trained model: its loss before a clear and after, and how far the weights have moved."""
    names = place.FIRST.run()
    before, weights = whole_loss(names), flat(names).clone()
    names["optimizer"].zero_grad()
    names["model"].zero_grad()
    return before, whole_loss(names), (flat(names) - weights).abs().max().item()


def lesson() -> Iterator[Part]:
    """Yes or no."""
    one, two, three = by_itself()
    yield Question(
        "1. Does PyTorch clear the gradients by itself, after a backward or a step?",
        truth=False,
        because=(
            Say(
                f"After a backward `.grad` holds {number(one)}; after the step, still {number(two)}; "
                f"after the same backward once more, {number(three)}. Nothing clears it but you."
            ),
        ),
    )
    yield Pause()
    late, right, after = (
        number(whole_loss(one.run())) for one in (place.TOO_LATE, place.FIRST, place.AFTER_STEP)
    )
    yield Question(
        "2. Is a clear right after `step()` as good as one right before the next `backward()`?",
        truth=True,
        because=(
            Say(
                f"Before the backward: loss {right} after an epoch. After the step: {after}. Either way "
                "the next backward finds the bucket empty. But that is not to say *anywhere*: between "
                f"backward and step it ends at {late}. There the clear comes too late to protect this "
                "backward, and takes away what it has brought."
            ),
        ),
    )
    yield Pause()
    rows = optimizers()
    yield Question(
        "3. Is the clear needed with SGD only, because better optimizers do it themselves?",
        truth=False,
        because=(
            Say(f"None of torch's optimizers clears. The {len(rows)} that take a plain step:"),
            Table(
                ("", "|.grad| before its step", "after"),
                tuple((name, number(before), number(after)) for name, before, after in rows),
            ),
        ),
    )
    yield Pause()
    before, later, moved = knowledge()
    yield Question(
        "4. Does a clear erase what the model has learned?",
        truth=False,
        because=(
            Say(
                f"A trained model has a loss of {number(before)}; cleared, {number(later)}. Its weights "
                f"have moved by {number(moved)}. Gradients are notes for the next step, not knowledge."
            ),
        ),
    )
    yield Say("The first and the third belief in one loop, as zerograd sees it:")
    yield asked_to_check(ADAM)
