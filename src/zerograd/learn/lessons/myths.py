"""Lesson 10: four questions. The reader answers each before torch shows the answer."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from contextlib import suppress

import torch
from torch import nn

from zerograd.learn.content import Part, Pause, Question, Say, Table, number
from zerograd.learn.lessons import place
from zerograd.learn.lessons.shared import REGRESSION, checked, flat, whole_loss
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
    """|.grad| before and after a step, for every `torch.optim` optimizer with a plain step()."""
    found = []
    for name, kind in sorted(vars(torch.optim).items()):
        if not (inspect.isclass(kind) and issubclass(kind, torch.optim.Optimizer)):
            continue
        weight = nn.Parameter(torch.ones(2, 2))
        # The base class and optimizers that need a closure or sparse gradients have no plain step().
        with suppress(TypeError, RuntimeError, NotImplementedError):
            optimizer = kind([weight], lr=0.01)  # type: ignore[call-arg]
            torch.autograd.backward((3 * weight).sum())
            assert weight.grad is not None
            before = weight.grad.norm().item()
            optimizer.step()
            found.append((name, before, weight.grad.norm().item()))
    return found


def knowledge() -> tuple[float, float, float]:
    """A trained model: its loss before and after a clear, and how far the weights have moved."""
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
                f"After a backward `.grad` holds {number(one)}, after the step still {number(two)}, and "
                f"after the same backward again {number(three)}. Only your code clears it."
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
                f"With the clear before the backward, the loss after an epoch is {right}; with the clear "
                f"after the step, it is {after}. Either way the next backward finds an empty bucket. But "
                f"a clear *between* backward and step gives {late}: it removes the gradients that the "
                "step needs."
            ),
        ),
    )
    yield Pause()
    rows = optimizers()
    yield Question(
        "3. Is the clear needed with SGD only, because other optimizers clear themselves?",
        truth=False,
        because=(
            Say(
                f"No `torch.optim` optimizer clears. These are the {len(rows)} optimizers with a plain "
                "`step()`:"
            ),
            Table(
                ("", "|.grad| before the step", "after"),
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
                f"A trained model has a loss of {number(before)}, and {number(later)} after a clear. Its "
                f"weights have moved by {number(moved)}. Gradients are the input of the next step; what "
                "the model has learned is in its weights."
            ),
        ),
    )
    yield Say("A loop that relies on the first and the third myth, and what zerograd reports:")
    yield checked(ADAM)
