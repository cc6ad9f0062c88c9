"""Lesson 9: what adding up gradients makes possible, and what you have to do."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import nn

from zerograd.learn.content import Code, Part, Pause, Question, Say, Table, number
from zerograd.learn.lessons.shared import REGRESSION, flat, watched
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
    """A weight that a loss uses twice: the slope through each use, and through both."""
    weight = torch.tensor(2.0, requires_grad=True)

    def slope(first: torch.Tensor, second: torch.Tensor) -> float:
        (found,) = torch.autograd.grad(3 * first + second**2, weight)
        return found.item()

    alone = weight.detach()
    return slope(weight, alone), slope(alone, weight), slope(weight, weight)


def by_request() -> tuple[float, str]:
    """What `torch.autograd.grad` returns, and what it leaves in `.grad`."""
    weight = torch.tensor(2.0, requires_grad=True)
    (found,) = torch.autograd.grad(weight**2, weight)
    return found.item(), str(weight.grad)


def hooked() -> tuple[float, ...]:
    """The input of a hook that doubles gradients; `.grad` after that backward and after a second."""
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
    """Several backward calls for one step, and who clears."""
    first, second, both = twice()
    yield Question(
        "Does PyTorch add up gradients to save memory?",
        truth=False,
        because=(
            Say(
                "It adds them up because the gradient of several uses is a sum. A weight that is used "
                f"twice in one loss has a slope through each use, here {number(first)} and "
                f"{number(second)}; its gradient is {number(both)}. The same addition works from one "
                "backward to the next. That allows several losses:"
            ),
        ),
    )
    off = (flat(TWO_LOSSES.run()) - flat(ONE_LOSS.run())).abs().max().item()
    yield Code(TWO_LOSSES.code, TWO_LOSSES.name)
    yield Say(
        "Two losses, one after the other, have the effect of their sum: after an epoch the weights "
        f"differ by {number(off)} from those of `(fit + small).backward()`. Adding up also allows a big "
        "batch in small pieces (lesson 7). And because gradients stay until you clear them, you can "
        "inspect or clip them between backward and step."
    )
    yield Pause()
    came, once, again = hooked()
    given, left = by_request()
    yield Say(
        "But code that changes gradients has to know what is in the bucket. A hook that doubles each "
        f"gradient turns {number(came)} into {number(once)}; the next backward adds to that: "
        f"{number(again)}. If you do not want to add up, use `torch.autograd.grad`: it returns "
        f"{number(given)} and leaves `.grad` at `{left}`."
    )
    yield Say(
        "If PyTorch cleared gradients by itself, none of this would work, so PyTorch leaves the clear to "
        "you. Libraries that run the loop (Lightning, the Trainer of transformers, `zerograd.Stepper`) "
        "know where a window ends and clear there. In your own loop, you have to clear."
    )
    yield Table(
        ("you use", "you clear"),
        (
            ("a plain loop", "once for every step"),
            ("accumulation", "once for every window"),
            ("several optimizers", "each one before its own backward"),
            ("DDP", "in every process"),
            ("a scaler", "also after a step that was skipped"),
            ("torch.autograd.grad, torch.func", "nothing: .grad is not used"),
            ("Lightning, Trainer, zerograd.Stepper", "nothing: they clear"),
        ),
    )
    yield Say("Two backward calls before one step are correct, and zerograd reports nothing:")
    yield watched(TWO_LOSSES)
