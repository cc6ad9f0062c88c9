"""Lesson 4: None or zeros: what each costs, measured, and where they differ."""

from __future__ import annotations

import statistics
import time
from collections.abc import Iterator, Sequence

import torch
from torch import nn

from zerograd.learn.content import Bars, Code, Part, Pause, Say, Table, number
from zerograd.learn.lessons.shared import LAYER, checked, flat
from zerograd.learn.snippet import Snippet

LOOP = """\
for i in range(3):
    optimizer.zero_grad(set_to_none={})
    loss = criterion(model(example), wanted)
    loss.backward()
    optimizer.step()
"""

UNCHECKED = Snippet(
    """\
optimizer.zero_grad()
for p in model.parameters():
    print(p.grad.norm())
""",
    LAYER,
    "unchecked.py",
)

CHECKED = Snippet(
    """\
lines = []
optimizer.zero_grad()
for name, p in model.named_parameters():
    if p.grad is not None:
        lines.append(f"{name} gradient: {p.grad.norm()}")
    else:
        lines.append(f"{name} gradient: None")
""",
    LAYER,
    "checked.py",
)

IN_PLACE = Snippet(
    """\
for i in range(3):
    optimizer.zero_grad()
    for p in model.parameters():
        p.grad.zero_()
    loss = criterion(model(example), wanted)
    loss.backward()
    optimizer.step()
""",
    LAYER,
    "in_place.py",
)

ROUNDS = 15
SIZE = 1000
MEGABYTE = 1e6


def lesson() -> Iterator[Part]:
    """None compared with zeros."""
    yield Say(
        "There are two ways to be empty. `zero_grad(set_to_none=False)` keeps the tensor and fills it "
        "with zeros in place. `zero_grad(set_to_none=True)` drops the tensor: `.grad` is `None`, and "
        "the next backward makes a new tensor. Since torch 2.0, `zero_grad()` without an argument sets "
        "`None`."
    )
    none, zeros = (Snippet(LOOP.format(flag), LAYER).run() for flag in (True, False))
    off = (flat(none) - flat(zeros)).abs().max().item()
    yield Say(
        "Training gives the same result. After three steps each way, the weights differ by "
        f"{number(off)}."
    )
    yield Pause()
    yield Say(
        "For code that reads gradients there is a difference. This code raises right after a clear:"
    )
    yield Code(UNCHECKED.code, UNCHECKED.name)
    error = UNCHECKED.run(raises=(AttributeError,))["error"]
    yield Say(f"`{type(error).__name__}: {error}`")
    yield Say("So test for `None` first:")
    yield Code(CHECKED.code, CHECKED.name)
    yield Say("The lines: " + "; ".join(f"`{line}`" for line in CHECKED.run()["lines"]) + ".")
    yield Pause()
    yield from measured()
    yield Pause()
    yield Say(
        "In one case the training differs too: for a parameter that the batch does not use. With "
        "`None`, the optimizer skips the parameter. With zeros, momentum and weight decay still move it:"
    )
    yield Table(
        ("an unused parameter moves by", "None", "zeros"),
        tuple((name, *(number(idle(flag, *how)) for flag in (True, False))) for name, *how in IDLE),
    )  # fmt: skip
    yield Say("zerograd knows that a clear leaves `None`, and reports code that cannot handle it:")
    yield checked(IN_PLACE)


IDLE = (
    ("plain SGD", 0.0, 0.0),
    ("SGD with momentum", 0.9, 0.0),
    ("SGD with weight decay", 0.0, 0.1),
)
"""Name, momentum, weight decay."""


def idle(set_to_none: bool, momentum: float, decay: float) -> float:
    """How far a parameter moves in a step whose batch does not use it."""
    weight = nn.Parameter(torch.ones(()))
    optimizer = torch.optim.SGD([weight], lr=0.1, momentum=momentum, weight_decay=decay)
    torch.autograd.backward(3 * weight)
    optimizer.step()
    optimizer.zero_grad(set_to_none=set_to_none)
    before = weight.item()
    optimizer.step()
    return abs(weight.item() - before)


def measured() -> Iterator[Part]:
    """Memory and time of both, measured in turns on a model that is large enough to show it."""
    model = nn.Sequential(*(nn.Linear(SIZE, SIZE) for _ in range(4)))
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-4)
    batch = torch.randn(4, SIZE)
    kept = dict.fromkeys((True, False), 0.0)
    clear: dict[bool, list[float]] = {True: [], False: []}
    whole: dict[bool, list[float]] = {True: [], False: []}
    model(batch).square().mean().backward()
    for turn in range(2 * ROUNDS):
        flag = turn % 2 == 0
        began = time.perf_counter()
        optimizer.zero_grad(set_to_none=flag)
        cleared = time.perf_counter()
        kept[flag] = sum(p.grad.nbytes for p in model.parameters() if p.grad is not None) / MEGABYTE
        model(batch).square().mean().backward()
        optimizer.step()
        clear[flag].append(cleared - began)
        whole[flag].append(time.perf_counter() - began)
    count = sum(p.numel() for p in model.parameters()) / 1e6
    yield Say(
        f"The costs, measured now on this machine: a model of {count:.1f} million parameters, "
        f"{ROUNDS} rounds of each in turn. Times are medians, with the range of the middle half:"
    )
    yield Bars(
        tuple((_kind(flag), kept[flag], f"{kept[flag]:.1f} MB") for flag in (True, False)),
        "memory of .grad between the clear and the next backward",
    )
    for title, taken in (("the clear alone", clear), ("clear, forward, backward, step", whole)):
        yield Bars(tuple((_kind(flag), *_timed(taken[flag])) for flag in (True, False)), title)
    yield Say(
        "Setting `None` writes nothing, and the memory is free for the forward pass. Setting zeros "
        "keeps the tensor: it writes every number, and the next backward reads every number to add to "
        "it. But `None` needs new memory each time. "
        f"{compared(whole[True], whole[False])} During the backward itself both need the same memory."
    )


def compared(none: Sequence[float], zeros: Sequence[float]) -> str:
    """Which of the two was faster; times whose middle halves overlap are noise."""
    (low, middle, high), (least, other, most) = map(_quartiles, (none, zeros))
    if low <= most and least <= high:
        return "Here a whole step took equally long both ways: the difference is smaller than the noise."
    return f"Here a whole step with `None` took {middle / other:.2f} times as long as a step with zeros."


def _timed(seconds: Sequence[float]) -> tuple[float, str]:
    low, middle, high = (1e3 * one for one in _quartiles(seconds))
    return middle, f"{middle:.3g} ms ({low:.3g}–{high:.3g})"


def _quartiles(seconds: Sequence[float]) -> tuple[float, float, float]:
    low, middle, high = statistics.quantiles(seconds, n=4)
    return low, middle, high


def _kind(set_to_none: bool) -> str:
    return "None " if set_to_none else "zeros"
