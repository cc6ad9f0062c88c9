"""Lesson 2: what a gradient is, and that `backward()` adds it to what is there."""

from __future__ import annotations

from collections.abc import Iterator

import torch

from zerograd.learn.content import Code, Part, Pause, Say, Table, number
from zerograd.learn.lessons.shared import LAYER, asked_to_check, asked_to_watch, steps
from zerograd.learn.snippet import Snippet

LITTLE = 1e-4
RATE = 0.05

PILING_UP = Snippet(
    """\
for i in range(3):
    loss = criterion(model(example), wanted)
    loss.backward()
    optimizer.step()
""",
    LAYER,
    "piling_up.py",
)


def slopes() -> tuple[tuple[float, ...], ...]:
    """A loss at three weights: the slope by autograd and by trying both sides; and after a step."""

    def loss(weight: torch.Tensor) -> torch.Tensor:
        return (2 * weight - 6) ** 2

    rows = []
    for start in (1.0, 3.0, 4.0):
        weight = torch.tensor(start, dtype=torch.float64, requires_grad=True)
        here = loss(weight)
        (slope,) = torch.autograd.grad(here, weight)
        tried = (loss(weight + LITTLE) - loss(weight - LITTLE)) / (2 * LITTLE)
        after = loss(weight - RATE * slope)
        rows.append(tuple(one.item() for one in (weight, here, slope, tried, after)))
    return tuple(rows)


def lesson() -> Iterator[Part]:
    """A slope; and a sum of slopes."""
    yield Say(
        "A gradient says which way is up: by how much the loss would grow if a parameter grew a "
        "little. Training goes the other way. `backward()` finds the gradients of all parameters at "
        "once. Here for the loss `(2 * weight - 6) ** 2`, beside the slope one gets by trying a "
        f"little to both sides, and the loss after a step of {number(RATE)} times the gradient:"
    )
    yield Table(
        ("weight", "loss", "gradient", "by trying", "loss after a step"),
        tuple(tuple(map(number, row)) for row in slopes()),
    )
    yield Pause()
    yield Say(
        "Where does `backward()` put a gradient? Into `.grad`, by adding: what it does is "
        "`param.grad = param.grad + new_grad`, whoever filled it before. Watch a layer that sees the "
        "same example three times and is never cleared:"
    )
    yield Code(PILING_UP.code, PILING_UP.name)
    found, _ = steps(PILING_UP)
    summed = torch.zeros_like(found[0].held)
    rows = []
    for index, step in enumerate(found, 1):
        summed = summed + step.own
        off = (summed - step.held).abs().max()
        norms = (step.own.norm(), step.held.norm(), off)
        rows.append((str(index), *(number(one.item()) for one in norms)))
    yield Table(("iteration", "|its own gradient|", "|.grad| that was used", "off from the sum so far"), tuple(rows))  # fmt: skip
    yield Say(
        "`.grad` is the sum of all that ever came, to the last digit or nearly. The first step is "
        "right. Every later one is steered by examples that it has long dealt with, at weights that "
        "are no longer there."
    )
    yield Pause()
    yield asked_to_check(PILING_UP)
    yield asked_to_watch(PILING_UP)
