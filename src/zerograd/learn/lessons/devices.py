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
from zerograd.learn.ddp_demo import WINDOW, Unavailable, measure
from zerograd.learn.lessons.shared import checked, watched
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
        "On several devices and in half precision, a clear is the same `zero_grad()`. Two things change: "
        "who has to call it, and what happens between backward and step."
    )
    yield Say(
        "Under DDP every process has its own replica of the model with its own buckets. A backward adds "
        "to the buckets and then averages them over all processes."
    )
    yield Question(
        "Two processes train together, and one of them forgets to clear. Are the steps of both wrong?",
        truth=True,
        because=several_devices(),
    )
    yield Pause()
    yield from half_precision()


def several_devices() -> Iterator[Plain]:
    """Run two processes, each with a replica; DDP averages their gradients."""
    try:
        seen = measure()
    except Unavailable as error:
        yield Say(f"Two processes could not be started here, so their numbers are missing: {error}")
        return
    yield Say("Two processes, started just now. Each has two batches with its own gradients:")
    rows = []
    for batch in (0, 1):
        for rank, (one, other) in enumerate(zip(seen.right, seen.wrong, strict=True)):
            cells = (one.own[batch], one.held[batch], other.held[batch])
            rows.append((f"batch {batch + 1}, rank {rank}", *map(number, cells)))
    yield Table(("", "its own gradient", "both clear", "rank 1 does not"), tuple(rows))
    yield Say(
        "If both clear, each rank steps with the mean of the two gradients. If rank 1 forgets, its old "
        "gradient is averaged in, and *both* ranks step with the same wrong gradient. So each process "
        "has to clear its own gradients; no process can clear those of another."
    )
    every, once = seen.syncs
    yield Say(
        f"Accumulation (lesson 7) alone does not save traffic between the processes: a window of {WINDOW} "
        f"micro-batches synchronised {every} times. With `model.no_sync()` around the forward and backward "
        f"of all micro-batches but the last, the number of synchronisations is {once}."
    )


def small_slope() -> tuple[float, float, float]:
    """A small slope in full precision, in half precision, and in half precision with a scale."""

    def slope(dtype: torch.dtype, scale: float) -> float:
        weight = torch.ones((), requires_grad=True)
        loss = weight.to(dtype) * 1e-4 * 1e-4
        torch.autograd.backward(scale * loss.float())
        assert weight.grad is not None
        return weight.grad.item() / scale

    return slope(torch.float32, 1.0), slope(torch.float16, 1.0), slope(torch.float16, SCALE)


def half_precision() -> Iterator[Part]:
    """What the scaler does, and that it does not clear."""
    true, lost, kept = small_slope()
    yield Say(
        f"In half precision, small gradients become zero. A gradient of {number(true)} is computed as "
        f"{number(lost)}. A gradient scaler multiplies the loss by a large number, and divides the "
        f"gradients by the same number before the step: with a scale of {number(SCALE)} the gradient is "
        f"computed as {number(kept)}."
    )
    yield Code(SCALED.code, SCALED.name)
    yield Say(
        "Scaling and clearing are independent. A step with a scaler has this order: backward of the "
        "scaled loss, unscale, clip, step, update. If the gradients contain inf or nan, the scaler skips "
        "the step and lowers the scale. The scaler never clears. Here the first of four batches "
        "overflows:"
    )
    yield Table(
        ("batch", "scale", ".grad, cleared", "stepped", ".grad, not cleared", "stepped"),
        tuple(
            (str(number_), number(good[0]), number(good[1]), good[2], number(bad[1]), bad[2])
            for number_, (good, bad) in enumerate(zip(rounds(SCALED), rounds(NOT_CLEARED), strict=True), 1)
        ),
    )  # fmt: skip
    yield Say("Without the clear, inf stays in the bucket, and every later step is skipped too.")
    yield Pause()
    yield Say(
        "zerograd reports the loop without the clear, and a clip of gradients that are still scaled:"
    )
    yield watched(NOT_CLEARED)
    yield checked(CLIPPED)


def rounds(snippet: Snippet) -> list[tuple[float, float, str]]:
    """For each batch: the scale, `.grad` after the backward, and whether the optimizer stepped."""
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
