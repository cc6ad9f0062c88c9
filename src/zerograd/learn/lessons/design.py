"""Lesson 9: what adding up is good for, and what it asks in return."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import nn

from zerograd.learn.content import Code, Part, Pause, Question, Say, Table, number
from zerograd.learn.lessons.shared import REGRESSION, asked_to_watch, flat
from zerograd.learn.snippet import Snippet

TWO_LOSSES = Snippet(
    """\
for x_batch, y_batch in loader:
    optimizer.zero_grad()
    fit = loss_fn(model(x_batch), y_batch)
    fit.backward()
    small = 0.01 * model.weight.square().sum()
    small.backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
""",
    REGRESSION,
    "two_losses.py",
)

ONE_LOSS = Snippet(
    TWO_LOSSES.code.replace("    fit.backward()\n", "").replace("small.backward", "(fit + small).backward"),
    REGRESSION,
)  # fmt: skip


def twice() -> tuple[float, float, float]:
    """A weight that is used at two places: the slope through each, and what backward puts together."""
    weight = torch.tensor(2.0, requires_grad=True)

    def slope(first: torch.Tensor, second: torch.Tensor) -> float:
        (found,) = torch.autograd.grad(3 * first + second**2, weight)
        return found.item()

    alone = weight.detach()
    return slope(weight, alone), slope(alone, weight), slope(weight, weight)


def by_request() -> tuple[float, str]:
    """What `torch.autograd.grad` gives back, and what it leaves in `.grad`."""
    weight = torch.tensor(2.0, requires_grad=True)
    (found,) = torch.autograd.grad(weight**2, weight)
    return found.item(), str(weight.grad)


def hooked() -> tuple[float, ...]:
    """What arrives at a hook that doubles it; `.grad` after that backward, and after a second."""
    weight = nn.Parameter(torch.tensor(2.0))
    seen: list[float] = []

    def double(gradient: torch.Tensor) -> torch.Tensor:
        seen.append(gradient.item())
        return 2 * gradient

    weight.register_hook(double)  # type: ignore[no-untyped-call]
    for _ in range(2):
        torch.autograd.backward(3 * weight)
        assert weight.grad is not None
        seen.append(weight.grad.item())
    first, once, _, again = seen
    return first, once, again


def lesson() -> Iterator[Part]:
    """Freedom, and the clear that it costs."""
    first, second, both = twice()
    yield Question(
        "Does PyTorch add gradients up in order to save memory?",
        truth=False,
        because=(
            Say(
                "It adds up because a sum is what gradients of several uses are. A weight that is used "
                f"twice in one loss has a slope through each use, here {number(first)} and "
                f"{number(second)}; its gradient is {number(both)}. The same addition then works from "
                "one backward to the next, and that makes much possible:"
            ),
        ),
    )
    off = (flat(TWO_LOSSES.run()) - flat(ONE_LOSS.run())).abs().max().item()
    yield Code(TWO_LOSSES.code, TWO_LOSSES.name)
    yield Say(
        "Several losses, one after the other, as if they were one: the weights after an epoch are "
        f"{number(off)} away from those of `(fit + small).backward()`. A big batch in pieces (lesson 7). "
        "A look at the gradients, or a clip, between backward and step: they are there until you say "
        "that they have served."
    )
    yield Pause()
    came, once, again = hooked()
    given, left = by_request()
    yield Say(
        "It also means that whoever touches gradients has to know what is in the bucket. A hook that "
        f"doubles what arrives makes {number(came)} into {number(once)}; the next backward adds to that: "
        f"{number(again)}. Where nothing is to be added up, ask for gradients instead: "
        f"`torch.autograd.grad` gives {number(given)} back and leaves `.grad` at `{left}`."
    )
    yield Say(
        "Clearing by itself would take all this away, so PyTorch leaves it to you. Libraries that run "
        "the loop themselves (Lightning, the Trainer of transformers, `zerograd.Stepper`) clear at the "
        "right time, because they know where a window ends. In a loop of your own, you say it."
    )
    yield Table(
        ("you write", "you clear"),
        (
            ("a plain loop", "once for every step"),
            ("accumulation", "once for every window"),
            ("several optimizers", "each before its own backward"),
            ("DDP", "in every process"),
            ("a scaler", "also after a step that was left out"),
            ("torch.autograd.grad, torch.func", "nothing: .grad is not used"),
            ("Lightning, Trainer, zerograd.Stepper", "nothing: they do"),
        ),
    )
    yield Say("Two backward calls before one step are right, and zerograd knows it:")
    yield asked_to_watch(TWO_LOSSES)
