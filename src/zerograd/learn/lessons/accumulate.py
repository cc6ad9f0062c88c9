"""Lesson 2: what a gradient is, and that `backward()` adds it to `.grad`."""

from __future__ import annotations

from collections.abc import Iterator

import torch

from zerograd.learn.content import Code, Part, Pause, Say, Table, number
from zerograd.learn.lessons.shared import LAYER, checked, steps, watched
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
    """For three weights: the loss, its slope by autograd and by differences, the loss after a step."""

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
        "A gradient says how fast the loss grows when a parameter grows a little. Training moves the "
        "parameter the other way. `backward()` computes the gradients of all parameters at once. The "
        "table shows this for the loss `(2 * weight - 6) ** 2`. Beside the gradient is the slope "
        "measured with two nearby weights, and the loss after a step of "
        f"{number(RATE)} times the gradient:"
    )
    yield Table(
        ("weight", "loss", "gradient", "measured slope", "loss after a step"),
        tuple(tuple(map(number, row)) for row in slopes()),
    )
    yield Pause()
    yield Say(
        "`backward()` adds the gradient to `.grad`: it does `param.grad = param.grad + new_grad`, "
        "whatever `.grad` held before. This layer sees the same example three times and is never "
        "cleared:"
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
    yield Table(("iteration", "|its own gradient|", "|.grad| used", "difference to the sum so far"), tuple(rows))  # fmt: skip
    yield Say(
        "`.grad` is the sum of all gradients so far, up to rounding. The first step is right. Every "
        "later step also uses the gradients of earlier iterations, computed at weights that the model "
        "no longer has."
    )
    yield Pause()
    yield checked(PILING_UP)
    yield watched(PILING_UP)
