"""Going through flows, and making changed copies of them."""

from __future__ import annotations

import pytest

from support.event_sequences import at
from zerograd.core.events import Backward, Clip, Step, Zero
from zerograd.explore.flow import (
    RAISE,
    Alt,
    Block,
    Break,
    Continue,
    Emit,
    Flow,
    Jump,
    Label,
    Loop,
    Return,
    Seq,
    Set,
    Try,
    children,
    leaves_by,
    rebuild,
    relabelled,
    relooped,
    walk,
)
from zerograd.explore.logic import Const, Name

ZERO, CLIP = Emit(Zero(at(1), loop=1)), Emit(Clip(at(2), loop=2))
BACKWARD, STEP = Emit(Backward(at(3), loop=1)), Emit(Step(at(4), loop=0))
SET, EMPTY = Set(Name("x"), Const(0)), Seq(())
X = Name("x")


def when(then: Flow, orelse: Flow = EMPTY) -> Alt:
    return Alt(X, then, orelse, at(5))


def loop(ident: int, *body: Flow, orelse: Flow | None = None) -> Loop:
    return Loop(Seq(body), ident, at(6), orelse=orelse)


def attempt(body: Flow, *handlers: Flow, orelse: Flow = EMPTY, final: Flow = EMPTY) -> Try:
    return Try(body, handlers, orelse, final, at(7))


WHOLE = Seq(
    [
        SET,
        loop(1, when(ZERO, Jump(Continue(1))), orelse=attempt(BACKWARD, CLIP, final=STEP)),
        Block(Jump(Return(2)), Return(2)),
    ]
)


def texts(flow: Flow) -> list[str]:
    """The kinds of all parts, and what the leaves are."""
    found = []
    for part in walk(flow):
        if isinstance(part, Emit):
            found.append(f"{part.event.kind} in loop {part.event.loop}")
        elif isinstance(part, Jump):
            found.append(str(part.label))
        else:
            found.append(type(part).__name__)
    return sorted(found)


# Going through


def test_every_part_is_walked_once() -> None:
    found = list(walk(WHOLE))
    assert len(found) == len(set(map(id, found))) == 14
    for leaf in (SET, ZERO, BACKWARD, CLIP, STEP):
        assert leaf in found


@pytest.mark.parametrize(
    ("flow", "parts"),
    [
        (ZERO, 0),
        (SET, 0),
        (Jump(RAISE), 0),
        (Seq([ZERO, STEP]), 2),
        (when(ZERO), 2),
        (loop(1, ZERO), 1),
        (loop(1, ZERO, orelse=STEP), 2),
        (Block(ZERO, Return(1)), 1),
        (attempt(ZERO), 3),
        (attempt(ZERO, CLIP, STEP), 5),
    ],
    ids=lambda value: type(value).__name__ if not isinstance(value, int) else str(value),
)
def test_a_flow_has_its_parts(flow: Flow, parts: int) -> None:
    assert len(children(flow)) == parts


# Changed copies


def test_a_copy_without_a_change_has_the_same_parts() -> None:
    def copied(flow: Flow) -> Flow:
        return rebuild(flow, copied)

    assert texts(copied(WHOLE)) == texts(WHOLE)


def test_a_change_reaches_every_part_and_not_the_original() -> None:
    before = texts(WHOLE)

    def without_clips(flow: Flow) -> Flow:
        return SET if flow is CLIP else rebuild(flow, without_clips)

    changed = without_clips(WHOLE)
    assert CLIP not in list(walk(changed))
    assert texts(changed).count("Set") == before.count("Set") + 1
    assert texts(WHOLE) == before


def test_the_events_of_one_loop_are_given_to_another() -> None:
    changed = relooped(Seq([ZERO, loop(2, CLIP, BACKWARD), STEP]), 1, 7)
    loops = {part.event.kind: part.event.loop for part in walk(changed) if isinstance(part, Emit)}
    assert loops == {"zero": 7, "clip": 2, "backward": 7, "step": 0}


def test_events_keep_their_divisor_in_another_loop() -> None:
    (part,) = [
        part
        for part in walk(relooped(Seq([Emit(Backward(at(3), loop=1), X)]), 1, 2))
        if isinstance(part, Emit)
    ]
    assert part.divisor == X


def jumps(flow: Flow) -> list[Label]:
    return [part.label for part in walk(flow) if isinstance(part, Jump)]


def test_the_jumps_of_one_loop_are_given_to_another() -> None:
    flow = Seq(
        [
            when(Jump(Break(1)), Jump(Continue(1))),
            attempt(Jump(Break(2)), Jump(RAISE), final=Jump(Return(1))),
        ]
    )
    changed = set(jumps(relabelled(flow, 1, 9)))
    assert changed == {Break(9), Continue(9), Break(2), RAISE, Return(1)}


def test_a_break_in_the_else_of_an_inner_loop_belongs_to_the_outer_one() -> None:
    inner = loop(2, ZERO, orelse=Jump(Break(1)))
    assert jumps(relabelled(inner, 1, 9)) == [Break(9)]


# Leaving


@pytest.mark.parametrize(
    ("flow", "label"),
    [
        (None, None),
        (ZERO, None),
        (EMPTY, None),
        (Jump(Break(1)), Break(1)),
        (Seq([ZERO, Jump(Return(2))]), Return(2)),
        (Seq([Jump(Break(1)), Jump(Return(2))]), Break(1)),
        (when(Jump(Break(1))), None),
        (when(ZERO, Jump(Break(1))), None),
        (when(Jump(Break(1)), Jump(RAISE)), Break(1)),
        (Seq([when(Jump(Break(1)), Jump(RAISE)), ZERO]), Break(1)),
        (when(when(Jump(Break(1)), ZERO), Jump(RAISE)), None),
        (loop(1, Jump(Break(1))), None),
        (Block(Jump(Return(1)), Return(1)), None),
        (attempt(Jump(RAISE), ZERO), None),
    ],
)
def test_a_flow_always_leaves_by_a_label_or_can_come_to_its_end(
    flow: Flow | None, label: Label | None
) -> None:
    assert leaves_by(flow) == label


def test_labels_of_different_kinds_are_different() -> None:
    labels: list[Label] = [Break(1), Continue(1), Return(1), Break(2), RAISE]
    assert len(set(labels)) == 5
    assert Break(1) == Break(1)
