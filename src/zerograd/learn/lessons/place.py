"""Lesson 5: three right places for the clear, and a wrong one."""

from __future__ import annotations

from collections.abc import Iterator

from zerograd.learn.content import Code, Part, Pause, Say, Table, number
from zerograd.learn.lessons.shared import (
    REGRESSION,
    checked,
    flat,
    steps,
    watched,
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
"""Something has run a backward before the loop, for example to look at the gradients."""


def lesson() -> Iterator[Part]:
    """After the step that used the old gradients, and before the backward that adds new ones."""
    yield Say(
        "A training step has five parts, in this order: *clear*, *forward*, *loss*, *backward*, "
        "*step*. The clear can be anywhere after the step that used the old gradients and before the "
        "backward that adds the new ones."
    )
    yield Code(FIRST.code, FIRST.name)
    yield Pause()
    start = whole_loss(Snippet("", REGRESSION).run())
    reference = flat(FIRST.run())
    rows = []
    for label, snippet in PLACES:
        names = snippet.run()
        off = (flat(names) - reference).abs().max().item()
        rows.append((label, number(whole_loss(names)), number(off)))
    yield Say(
        f"One epoch with the clear in each of four places. The loss starts at {number(start)}."
    )
    yield Table(("the clear is", "loss after", "difference of the weights"), tuple(rows))
    yield Say(
        "Three places are right: the weights are equal to the last bit. In the fourth place the model "
        "learns nothing: the clear removes what backward has just added, and the step finds an empty "
        "bucket. Diagrams of the training step that draw the clear between backward and update contain "
        "this mistake."
    )
    yield Pause()
    yield Say(
        "The right places differ in one detail. A clear after the step assumes that the buckets are "
        "empty when the loop begins. If something has run a backward before the loop, the first step "
        "uses those gradients too:"
    )
    yield Table(
        ("the clear is", "|gradient| of the first batch", "|.grad| the first step used"),
        tuple(
            first_step(label, at) for label, at in (("first in the loop", 0), ("after step()", 3))
        ),
    )
    yield Say("zerograd reports the fourth place, in the source and in a run:")
    yield checked(TOO_LATE)
    yield watched(TOO_LATE)


def first_step(label: str, at: int) -> tuple[str, str, str]:
    """What the first step uses if `.grad` was not empty before the loop."""
    found, _ = steps(loop(at, LEFT_OVER))
    return label, number(found[0].own.norm().item()), number(found[0].held.norm().item())
