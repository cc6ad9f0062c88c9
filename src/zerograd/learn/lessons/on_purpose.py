"""Lesson 7: a big batch in small pieces, by leaving the bucket alone for a while."""

from __future__ import annotations

from collections.abc import Iterator

import torch

from zerograd.learn.content import Bars, Code, Part, Pause, Say, Table, number
from zerograd.learn.lessons.shared import REGRESSION, asked_to_check, asked_to_watch, steps
from zerograd.learn.snippet import Names, Snippet

GIVEN = REGRESSION + "N = 4\n"

WINDOWS = Snippet(
    """\
for i, (x_batch, y_batch) in enumerate(loader):
    loss = loss_fn(model(x_batch), y_batch) / N
    loss.backward()
    if (i + 1) % N == 0 or i + 1 == len(loader):
        optimizer.step()
        optimizer.zero_grad()
""",
    GIVEN,
    "windows.py",
)

BIG = Snippet(
    """\
for x_batch, y_batch in zip(x.split(8 * N), y.split(8 * N)):
    optimizer.zero_grad()
    loss = loss_fn(model(x_batch), y_batch)
    loss.backward()
    optimizer.step()
""",
    GIVEN,
    "big.py",
)

UNDIVIDED = Snippet(WINDOWS.code.replace(" / N\n", "\n"), GIVEN, "windows.py")

EVERY_TIME = Snippet(
    """\
for i, (x_batch, y_batch) in enumerate(loader):
    optimizer.zero_grad()
    loss = loss_fn(model(x_batch), y_batch) / N
    loss.backward()
    if (i + 1) % N == 0 or i + 1 == len(loader):
        optimizer.step()
""",
    GIVEN,
    "windows.py",
)

UNEQUAL = GIVEN.replace("zip(x.split(8), y.split(8))", "zip(x.split([1, 1, 15, 15] * 2), y.split([1, 1, 15, 15] * 2))")  # fmt: skip
"""The same samples in batches of very different sizes."""

STEPPER = Snippet(
    """\
stepper = zerograd.Stepper(model, optimizer, accumulate=N)
for x_batch, y_batch in stepper(loader):
    loss = loss_fn(model(x_batch), y_batch)
    stepper.backward(loss, weight=len(y_batch))
""",
    "import zerograd\n" + UNEQUAL,
    "stepped.py",
)

TRIED = (
    ("divided by N", WINDOWS),
    ("not divided", UNDIVIDED),
    ("cleared for every micro-batch", EVERY_TIME),
    ("divided by N, sizes 1, 1, 15, 15", Snippet(WINDOWS.code, UNEQUAL)),
    ("zerograd.Stepper, sizes 1, 1, 15, 15", STEPPER),
)


def kept_for_backward(snippet: Snippet) -> int:
    """The most bytes that had to be kept for any one backward of a snippet."""
    sizes = [0]

    def keep(kept: torch.Tensor) -> torch.Tensor:
        sizes[-1] += kept.nbytes
        return kept

    def before(names: Names) -> None:
        names["model"].bias.register_hook(lambda _: sizes.append(0))

    with torch.autograd.graph.saved_tensors_hooks(keep, lambda kept: kept):
        snippet.run(before)
    return max(sizes)


def lesson() -> Iterator[Part]:
    """Accumulation, exact and inexact."""
    yield Say(
        "Sometimes adding up is what you want. A batch of 32 that does not fit into memory can be "
        "taken as 4 micro-batches of 8: four backward calls, one step, one clear. The backward calls "
        "between a clear and its step are a *window*."
    )
    yield Code(WINDOWS.code, WINDOWS.name)
    yield Say(
        "The clear comes less often, on purpose: together with the step. Each loss is divided by N, "
        "because the mean over 32 is the mean of four means."
    )
    yield Pause()
    big = steps(BIG)[0][0].held
    rows = []
    for said, snippet in TRIED:
        first = steps(snippet)[0][0].held
        off = ((first - big).norm() / big.norm()).item()
        rows.append((said, number(first.norm().item()), f"{100 * off:.2g} %"))
    times = steps(UNDIVIDED)[0][0].held.norm().item() / big.norm().item()
    yield Say(
        f"The first step, beside one big batch, whose gradient is {number(big.norm().item())} long:"
    )
    yield Table(
        ("a window of 4 micro-batches", "|gradient| used", "off from the big batch"), tuple(rows)
    )
    yield Say(
        f"Divided by N it is the big batch, to rounding. Undivided it is {times:.3g} times as much. With a "
        "clear for every micro-batch only the last one counts. And where the micro-batches are not equally "
        "large, the mean of means is not the mean: dividing by N is no longer exact. "
        "`zerograd.Stepper` weights each by its size, and is."
    )
    yield Pause()
    activations = {"one batch of 32": BIG, "four of 8": WINDOWS}
    sizes = {said: kept_for_backward(snippet) for said, snippet in activations.items()}
    yield Bars(
        tuple((said, float(size), f"{size} bytes") for said, size in sizes.items()),
        "kept at a time for the backward pass",
    )
    yield Say(
        "zerograd about the window above, in a run; and about the clear for every micro-batch:"
    )
    yield asked_to_watch(WINDOWS)
    yield asked_to_check(EVERY_TIME)
