"""Lesson 5: the places where a clear may stand, and the one where it may not."""

from __future__ import annotations

from collections.abc import Iterator

from zerograd.learn.content import Code, Part, Pause, Say, Table, number
from zerograd.learn.lessons.shared import (
    REGRESSION,
    asked_to_check,
    asked_to_watch,
    flat,
    steps,
    whole_loss,
)
from zerograd.learn.snippet import Snippet

CLEAR = "    optimizer.zero_grad()"
BODY = (
    "    loss = loss_fn(model(x_batch), y_batch)",
    "    loss.backward()",
    "    optimizer.step()",
)


def loop(at: int, given: str = REGRESSION) -> Snippet:
    """The training loop with the clear before the line of that number."""
    lines = ["for x_batch, y_batch in loader:", *BODY[:at], CLEAR, *BODY[at:]]
    return Snippet("\n".join(lines) + "\n", given, "loop.py")


FIRST, BEFORE_BACKWARD, TOO_LATE, AFTER_STEP = (loop(at) for at in range(4))
PLACES = (
    ("first in the loop", FIRST),
    ("just before backward()", BEFORE_BACKWARD),
    ("after step()", AFTER_STEP),
    ("between backward() and step()", TOO_LATE),
)
LEFT_OVER = REGRESSION + "loss_fn(model(x), y).backward()\n"
"""Something, a look at the gradients for instance, has run a backward before the loop."""


def lesson() -> Iterator[Part]:
    """Before the backward whose gradients are to be used alone, and after the step that used the last."""
    yield Say(
        "A training step has five parts, in this order: *clear*, *forward*, *loss*, *backward*, "
        "*step*. The clear may stand anywhere after the step that has used the old gradients and "
        "before the backward that brings the new ones."
    )
    yield Code(FIRST.code, FIRST.name)
    yield Pause()
    start = whole_loss(Snippet("", REGRESSION).run())
    reference = flat(FIRST.run())
    rows = []
    for said, snippet in PLACES:
        names = snippet.run()
        off = (flat(names) - reference).abs().max().item()
        rows.append((said, number(whole_loss(names)), number(off)))
    yield Say(f"One epoch with the clear in four places. The loss starts at {number(start)}.")
    yield Table(("the clear stands", "loss after", "weights off from the first"), tuple(rows))
    yield Say(
        "Three places are equally right, to the last bit. In the fourth nothing is learned at all: the "
        "clear throws away what backward has just brought, and the step finds an empty bucket. Drawings "
        "of the training step that put the clear between backward and update are wrong in just this way."
    )
    yield Pause()
    yield Say(
        "Between the right places there is one fine difference. A clear after the step trusts that the "
        "buckets were empty when the loop began. If something has run a backward before it, the first "
        "step uses the leftovers:"
    )
    yield Table(
        ("the clear stands", "|gradient| of the first batch", "|.grad| the first step used"),
        tuple(first_step(said, at) for said, at in (("first in the loop", 0), ("after step()", 3))),
    )
    yield Say("zerograd about the fourth place, in the source and in a run:")
    yield asked_to_check(TOO_LATE)
    yield asked_to_watch(TOO_LATE)


def first_step(said: str, at: int) -> tuple[str, str, str]:
    """What the first step uses where something was left in the buckets before the loop."""
    found, _ = steps(loop(at, LEFT_OVER))
    return said, number(found[0].own.norm().item()), number(found[0].held.norm().item())
