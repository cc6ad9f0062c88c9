"""Lesson 11: the three mistakes, what each does, and how each is found and repaired."""

from __future__ import annotations

from collections.abc import Iterator

from zerograd.learn.content import Code, Part, Pause, Say, number
from zerograd.learn.lessons import place
from zerograd.learn.lessons.shared import REGRESSION, asked_to_check, steps, whole_loss
from zerograd.learn.snippet import Snippet

FORGOTTEN = Snippet(place.FIRST.code.replace(place.CLEAR + "\n", ""), REGRESSION, "forgotten.py")
TOO_LATE = Snippet(place.TOO_LATE.code, REGRESSION, "too_late.py")
UNASKED = Snippet(
    """\
for x_batch, y_batch in loader:
    for param in model.parameters():
        param.grad.zero_()
    loss = loss_fn(model(x_batch), y_batch)
    loss.backward()
    optimizer.step()
""",
    REGRESSION,
    "unasked.py",
)
ASKED = Snippet(
    UNASKED.code.replace(
        "        param.grad.zero_()", "        if param.grad is not None:\n            param.grad.zero_()"
    ),
    REGRESSION,
    "unasked.py",
)  # fmt: skip


def lesson() -> Iterator[Part]:
    """Forgotten, too late, not asked for."""
    repaired = whole_loss(place.FIRST.run())
    start = whole_loss(Snippet("", REGRESSION).run())

    yield Say("*1. The clear is forgotten.*")
    yield Code(FORGOTTEN.code, FORGOTTEN.name)
    found, names = steps(FORGOTTEN)
    last = found[-1]
    yield Say(
        f"The last batch asked for a gradient {number(last.own.norm().item())} long; its step used one "
        f"of {number(last.held.norm().item())}. The loss ends at {number(whole_loss(names))}; with a "
        f"clear before each backward at {number(repaired)}."
    )
    yield asked_to_check(FORGOTTEN)
    yield Pause()

    yield Say("*2. The clear comes between backward and step.*")
    yield Code(TOO_LATE.code, TOO_LATE.name)
    yield Say(
        f"The loss was {number(start)} and ends at {number(whole_loss(TOO_LATE.run()))}: nothing was "
        f"learned. Move the clear to the top of the loop: {number(repaired)}."
    )
    yield asked_to_check(TOO_LATE)
    yield Pause()

    yield Say("*3. The gradient is cleared by hand, and nobody asks whether there is one.*")
    yield Code(UNASKED.code, UNASKED.name)
    error = UNASKED.run(raises=(AttributeError,))["error"]
    yield Say(
        f"`{type(error).__name__}: {error}`: before the first backward `.grad` is `None`. With "
        f"`if param.grad is not None` before it, the loss ends at {number(whole_loss(ASKED.run()))}."
    )
    yield asked_to_check(UNASKED)
    yield Say("Repaired, none of them has anything left to report:")
    for right in (place.FIRST, ASKED):
        yield asked_to_check(right)
