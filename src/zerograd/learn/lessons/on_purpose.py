"""Lesson 7: gradient accumulation, a big batch in small pieces."""

from __future__ import annotations

from collections.abc import Iterator

import torch

from zerograd.learn.content import Bars, Code, Part, Pause, Say, Table, number
from zerograd.learn.lessons.shared import REGRESSION, checked, steps, watched
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
    """The largest number of bytes that autograd keeps for one backward of a snippet."""
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
        "Gradient accumulation uses the adding up. A batch of 32 that does not fit into memory can be "
        "split into 4 micro-batches of 8: four backward calls, one step, one clear. The backward calls "
        "between a clear and the step that uses them are a *window*."
    )
    yield Code(WINDOWS.code, WINDOWS.name)
    yield Say(
        "The clear comes once in a window, together with the step. Each loss is divided by N, because "
        "the mean over 32 samples is the mean of the four means."
    )
    yield Pause()
    big = steps(BIG)[0][0].held
    rows = []
    for label, snippet in TRIED:
        first = steps(snippet)[0][0].held
        off = ((first - big).norm() / big.norm()).item()
        rows.append((label, number(first.norm().item()), f"{100 * off:.2g} %"))
    times = steps(UNDIVIDED)[0][0].held.norm().item() / big.norm().item()
    yield Say(
        "The first step, compared with one big batch, whose gradient has the norm "
        f"{number(big.norm().item())}:"
    )
    yield Table(
        ("a window of 4 micro-batches", "|gradient| used", "difference to the big batch"),
        tuple(rows),
    )
    yield Say(
        "Divided by N, the gradient equals that of the big batch, up to rounding. Not divided, it is "
        f"{times:.3g} times as large. With a clear for every micro-batch, only the last micro-batch "
        "counts. If the micro-batches have different sizes, the mean of the means is not the mean, and "
        "dividing by N is not exact. `zerograd.Stepper` weights each micro-batch by its size, which is "
        "exact."
    )
    yield Pause()
    activations = {"one batch of 32": BIG, "four batches of 8": WINDOWS}
    sizes = {label: kept_for_backward(snippet) for label, snippet in activations.items()}
    yield Bars(
        tuple((label, float(size), f"{size} bytes") for label, size in sizes.items()),
        "memory kept for one backward pass",
    )
    yield Say(
        "zerograd finds nothing in a run of the window above, and reports the clear for every "
        "micro-batch:"
    )
    yield watched(WINDOWS)
    yield checked(EVERY_TIME)
