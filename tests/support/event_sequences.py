"""Random sequences of events: of every kind, with every field that source code or a run gives it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import product
from random import Random
from typing import TypeVar

from hypothesis import strategies as st

from zerograd.core.events import (
    KINDS,
    Assign,
    Backward,
    Clip,
    CutWindows,
    Decided,
    Diverged,
    End,
    Event,
    Excuse,
    Hold,
    LongWindow,
    Measured,
    New,
    Observation,
    OddWindow,
    PartialWindow,
    ReadBy,
    Reads,
    Site,
    Step,
    Sync,
    Unknown,
    Unscale,
    Untrained,
    Zero,
)

PATH = "train.py"
T = TypeVar("T")


def at(line: int) -> Site:
    return Site(PATH, line)


FLAGS = (False, True)
Made = list[Event]


def _backwards() -> Made:
    made: Made = []
    for scaled, may, alone in product((False, True, None), FLAGS, FLAGS):
        for divisor in (0, None, 2, 4):
            event = Backward(at(40), scaled=scaled, may=may, divisor=divisor)
            made.append(replace(event, alone=alone, own_gradient=divisor == 2))
    for synced, may, volume in product(FLAGS, FLAGS, (0, 80)):
        event = Backward(at(45), synced=synced, may=may, volume=volume)
        made.append(replace(event, off=at(46), unsynced="no_sync()"))
    numbers = Measured(5.0, 8.0, ("weight",), 2)
    for leftover, measured, alone in product((None, False, True), (None, numbers), FLAGS):
        made.append(Backward(at(48), leftover=leftover, measured=measured, alone=alone))
    made.append(Backward(at(49), orphan=True, measured=numbers))
    made.append(Backward(at(42), missed=numbers))
    made.append(Backward(at(42), untrained=Untrained("encoder", at(2), backward=at(40))))
    made += [Backward(at(41), read_by=what, alone=alone) for what in ReadBy for alone in FLAGS]
    made += [Backward(at(47), reads=what) for what in Reads]
    for why, divisor in product(Excuse, (0, None)):
        made.append(Backward(at(44), excuse=why, divisor=divisor, bypasses="fabric"))
    made.append(Backward(at(43), synced=True, volume=80, excuse=Excuse.STATIC_GRAPH))
    return made


def _steps() -> Made:
    made: Made = []
    for scaled, foreign, fed, last in product(FLAGS, FLAGS, FLAGS, FLAGS):
        for length, guard in ((0, None), (2, at(60)), (3, at(61))):
            event = Step(at(50), scaled=scaled, foreign=foreign, fed=fed, last=last)
            made.append(replace(event, length=length, guard=guard, idle_loss=at(62)))
    made += [Step(at(51), foreign=True, part=True, scaled=scaled) for scaled in FLAGS]
    made.append(Step(at(52), foreign=True, part=True, whole=True))
    made.append(Step(at(52), ahead=True))
    made += [Step(at(52), fed=False, again=True), Step(at(52), length=2)]
    for leaked, through in product(FLAGS, (None, False, True)):
        made.append(Step(at(54), leaked=leaked, measured=Measured(5.0, 8.0) if through else None))
        made.append(Step(at(54), foreign=True, through=through))
    made += [Step(at(55), remade=at(56)), Step(at(55), lost=at(54))]
    for fed, count in product(FLAGS, (1, 3)):
        made.append(Step(at(57), fed=fed, repeated=("weight",), repeated_count=count))
    made += [Step(at(53), finite=finite) for finite in FLAGS] + [Step(at(53), skipped=True)]
    made += [Step(at(53), decided=Decided(guard, 4, guard is None)) for guard in (None, at(60))]
    return made


def _others() -> Made:
    made: Made = [Sync(at(47), diverged=Diverged("parameters", 3, (1,), 0))]
    for may, to_none, bare in product(FLAGS, FLAGS, FLAGS):
        made.append(Zero(at(70), may=may, to_none=to_none, bare=bare))
    made += [Zero(at(72), length=length, loop=length) for length in (2, 3)]
    made += [Zero(at(71), to_none=to_none, excuse=why) for why in Excuse for to_none in FLAGS]
    for may, bare in product(FLAGS, FLAGS):
        made.append(Clip(at(80), may=may, bare=bare))
        made += [Assign(at(80), may=may, bare=bare, adds=adds) for adds in FLAGS]
        made += [Unscale(at(80), may=may, bare=bare, scaled=scaled) for scaled in FLAGS]
    made.append(End(at(91), restored=True))
    for guard, length in ((None, 0), (at(60), 2), (at(61), 3)):
        made += [Hold(at(50), guard=guard), End(at(90), length=length, idle_loss=guard)]
    return made


def _observations() -> Made:
    """What a run adds by itself to what happens."""
    return [
        LongWindow(at(50), window=5),
        LongWindow(at(50), window=5, meant=4, guard=at(60)),
        OddWindow(at(50), window=3, backward=at(40)),
        OddWindow(at(50), window=3, meant=4, backward=at(40), guard=at(60)),
        PartialWindow(at(50), backward=at(40)),
        PartialWindow(at(50), backward=at(40), guard=at(60)),
        PartialWindow(at(50), backward=at(40), cleared=at(70)),
        CutWindows(at(70), backward=at(40), step=at(50)),
        CutWindows(at(70), backward=at(40), step=at(50), guard=at(60)),
    ]


def _moved(event: Event, random: Random) -> Event:
    """The event elsewhere, perhaps in a loop."""
    moved = replace(event, site=at(random.randrange(1, 99)), loop=random.randrange(3))
    if isinstance(moved, Backward) and random.random() < 0.5:
        return replace(moved, bypasses="accelerator")
    return moved


PLAIN: tuple[Event, ...] = tuple(
    kind(at(line)) for line, kind in enumerate(KINDS.values(), start=1)
)
"""One event of each kind."""


def _all() -> Made:
    """Plain events first, because a failing sequence shrinks towards the beginning."""
    elsewhere = [replace(event, site=at(event.site.line + 20)) for event in PLAIN]
    made = _backwards() + _steps() + _others() + _observations()
    random = Random(0)
    moved = [_moved(event, random) for event in made * 2]
    return [*PLAIN, *elsewhere, *made, *moved]


EVENTS = tuple(_all())
"""Events of every kind, with every field that source code or a run gives them."""

LONGEST = 12


def _groups() -> list[Made]:
    """Few events each, so that in a sequence the same ones come again and again."""
    random = Random(1)
    kinds = sorted({type(event) for event in EVENTS}, key=lambda kind: kind.kind)
    of_kind = {kind: [event for event in EVENTS if type(event) is kind] for kind in kinds}
    core = (Zero, Backward, Step, Backward, Backward)
    sure = {
        kind: [event for event in of_kind[kind] if not event.may and not is_foreign(event)]
        for kind in core
    }
    rare = (Zero, Assign, Sync, New, Unknown, Observation)
    weights = [1 if issubclass(kind, rare) else 6 for kind in kinds]
    groups = []
    for _ in range(255):
        chosen = [random.choice(sure[kind]) for kind in core]
        more = [random.choice(of_kind[kind]) for kind in random.choices(kinds, weights, k=3)]
        groups.append(chosen + more)
    return [list(EVENTS[: 2 * len(PLAIN)]), *groups]


def is_foreign(event: Event) -> bool:
    return isinstance(event, Step) and event.foreign


EVENT_GROUPS = _groups()


def sequence(drawn: bytes) -> list[Event]:
    """The first byte is the group: drawing bytes is many times faster than drawing events."""
    if not drawn:
        return []
    group = EVENT_GROUPS[drawn[0]]
    return [group[byte % len(group)] for byte in drawn[1:]]


class Choices:
    """Bytes as a series of choices; when they are used up, the first is always taken."""

    def __init__(self, drawn: bytes) -> None:
        self._left = list(reversed(drawn))

    def below(self, number: int) -> int:
        return self._left.pop() % number if self._left else 0

    def of(self, options: Sequence[T]) -> T:
        return options[self.below(len(options))]

    def some(self, most: int, least: int = 0) -> range:
        return range(least + self.below(most - least + 1))


sequences = st.binary(max_size=1 + LONGEST).map(sequence)
