"""Lesson 8: who clears what on several devices, and what a gradient scaler adds."""

from __future__ import annotations

from collections.abc import Iterator

import torch

from zerograd.learn.content import (
    Code,
    Part,
    Pause,
    Plain,
    Question,
    Say,
    Table,
    number,
)
from zerograd.learn.ddp_demo import WINDOW, Unavailable, ask
from zerograd.learn.lessons.shared import asked_to_check, asked_to_watch
from zerograd.learn.snippet import Names, Snippet

SCALE = 2.0**15

SCALED_GIVEN = f"""\
import torch

weight = torch.nn.Parameter(torch.ones(()))
optimizer = torch.optim.SGD([weight], lr=0.1)
scaler = torch.amp.GradScaler("cpu", init_scale={SCALE})
batches = [float("inf"), 1.0, 1.0, 1.0]
"""
"""The first batch overflows."""

SCALED = Snippet(
    """\
for slope in batches:
    optimizer.zero_grad()
    loss = slope * weight
    scaler.scale(loss).backward()
    scaler.step(optimizer)
    scaler.update()
""",
    SCALED_GIVEN,
    "scaled.py",
)

NOT_CLEARED = Snippet(
    SCALED.code.replace("    optimizer.zero_grad()\n", ""), SCALED_GIVEN, "scaled.py"
)

CLIPPED = Snippet(
    SCALED.code.replace(
        "    scaler.step", "    torch.nn.utils.clip_grad_norm_([weight], 1.0)\n    scaler.step"
    ),
    SCALED_GIVEN,
    "clipped.py",
)


def lesson() -> Iterator[Part]:
    """DDP, then half precision."""
    yield Say(
        "On several devices and in half precision a clear is the same `zero_grad()`. What changes is who "
        "has to call it, and what happens between backward and step."
    )
    yield Say(
        "With DDP every process has a replica of the model with buckets of its own. A backward fills "
        "them, then averages them over all processes."
    )
    yield Question(
        "Two processes train together, and one of them forgets to clear. Do both go wrong?",
        truth=True,
        because=several_devices(),
    )
    yield Pause()
    yield from half_precision()


def several_devices() -> Iterator[Plain]:
    """Two real processes, each with a replica; DDP averages their gradients."""
    try:
        seen = ask()
    except Unavailable as error:
        yield Say(f"Two processes could not be started here, so their numbers are missing: {error}")
        return
    yield Say("Two processes, started just now, with two batches and a slope of its own each:")
    rows = []
    for batch in (0, 1):
        for rank, (one, other) in enumerate(zip(seen.right, seen.wrong, strict=True)):
            cells = (one.own[batch], one.held[batch], other.held[batch])
            rows.append((f"batch {batch + 1}, rank {rank}", *map(number, cells)))
    yield Table(("", "its own slope", "both clear", "rank 1 does not"), tuple(rows))
    yield Say(
        "Both clear: each rank steps on the mean of the two slopes. If rank 1 forgets, its leftovers "
        "are averaged in with the rest, and *both* ranks step on a wrong gradient, the same one. So "
        "each process clears its own; none can do it for another."
    )
    every, once = seen.syncs
    yield Say(
        f"Clearing less often (lesson 7) saves no traffic by itself: a window of {WINDOW} micro-batches "
        f"synchronised {every} times. With `model.no_sync()` around all but the last, forward and backward: "
        f"{once}."
    )


def small_slope() -> tuple[float, float, float]:
    """A slope too small for half precision: as it is, in half precision, and there through a scaler."""

    def slope(dtype: torch.dtype, scale: float) -> float:
        weight = torch.ones((), requires_grad=True)
        loss = weight.to(dtype) * 1e-4 * 1e-4
        torch.autograd.backward(scale * loss.float())
        assert weight.grad is not None
        return weight.grad.item() / scale

    return slope(torch.float32, 1.0), slope(torch.float16, 1.0), slope(torch.float16, SCALE)


def half_precision() -> Iterator[Part]:
    """What the scaler does, and that the clear is still yours."""
    true, lost, kept = small_slope()
    yield Say(
        f"In half precision, small gradients vanish. A slope of {number(true)} comes out as "
        f"{number(lost)}. A gradient scaler multiplies the loss by a large number first and divides the "
        f"gradients by it before the step: scaled by {number(SCALE)} it comes out as {number(kept)}."
    )
    yield Code(SCALED.code, SCALED.name)
    yield Say(
        "Scaling and clearing are two things. The scale is the scaler's business, in this order: "
        "backward of the scaled loss, unscale, clip, step, update. Where it finds inf or nan, it leaves "
        "the step out and lowers the scale. It never clears. Here the first of four batches overflows:"
    )
    yield Table(
        ("batch", "scale", ".grad, cleared", "stepped", ".grad, not cleared", "stepped"),
        tuple(
            (str(number_), number(good[0]), number(good[1]), good[2], number(bad[1]), bad[2])
            for number_, (good, bad) in enumerate(zip(rounds(SCALED), rounds(NOT_CLEARED), strict=True), 1)
        ),
    )  # fmt: skip
    yield Say("Not cleared, the inf stays in the bucket for good: no later step is ever taken.")
    yield Pause()
    yield Say(
        "zerograd about the loop without the clear, and about a clip of gradients that are still scaled:"
    )
    yield asked_to_watch(NOT_CLEARED)
    yield asked_to_check(CLIPPED)


def rounds(snippet: Snippet) -> list[tuple[float, float, str]]:
    """For each batch: the scale it was given, what `.grad` held after it, and whether it stepped."""
    found: list[tuple[float, float, str]] = []

    def before(names: Names) -> None:
        scaler, weight = names["scaler"], names["weight"]
        update, steps = scaler.update, []
        names["optimizer"].register_step_post_hook(lambda *_: steps.append(1))

        def noted() -> None:
            stepped = "yes" if steps else "no"
            found.append((scaler.get_scale(), weight.grad.item(), stepped))
            steps.clear()
            update()

        scaler.update = noted

    snippet.run(before)
    return found
