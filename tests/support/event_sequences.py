"""Random words: an alphabet of events that covers every letter with every attribute it can carry."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import product
from random import Random
from typing import TypeVar

from hypothesis import strategies as st

from zerograd.core.events import Diverged, Event, Kind, Site

PATH = "train.py"
T = TypeVar("T")


def at(line: int) -> Site:
    return Site(PATH, line)


def _variants() -> list[Event]:
    """Plain events first, because a failing word shrinks towards the beginning."""
    plain = [Event(kind, at(line)) for line, kind in enumerate(Kind, start=1)]
    again = [replace(event, site=at(event.site.line + 20)) for event in plain]
    flags = (False, True)
    made: list[Event] = []
    for scaled, may, alone in product((False, True, None), flags, flags):
        for divisor in (0, None, 2, 4):
            event = Event(Kind.BACKWARD, at(40), scaled=scaled, may=may, divisor=divisor)
            made.append(replace(event, alone=alone, own_gradient=divisor == 2))
    for synced, may, volume in product(flags, flags, (0, 80)):
        event = Event(Kind.BACKWARD, at(45), synced=synced, may=may, volume=volume)
        made.append(replace(event, off=at(46), unsynced="no_sync()"))
    made.append(Event(Kind.SYNC, at(47), diverged=Diverged("parameters", 3, (1,), 0)))
    for scaled, foreign, fed, last in product((False, True), flags, flags, flags):
        for length, guard in ((0, None), (2, at(60)), (3, at(61))):
            event = Event(Kind.STEP, at(50), scaled=scaled, foreign=foreign, fed=fed, last=last)
            made.append(replace(event, length=length, guard=guard, idle_loss=at(62)))
    for may, to_none, bare in product(flags, flags, flags):
        made.append(Event(Kind.ZERO, at(70), may=may, to_none=to_none, bare=bare))
    for kind, may, scaled in product((Kind.CLIP, Kind.UNSCALE, Kind.ASSIGN), flags, flags):
        made.append(Event(kind, at(80), may=may, scaled=scaled, bare=scaled))
    for guard, length in ((None, 0), (at(60), 2), (at(61), 3)):
        made.append(Event(Kind.HOLD, at(50), guard=guard))
        made.append(Event(Kind.END, at(90), length=length, idle_loss=guard))
    random = Random(0)
    moved = [
        replace(event, site=at(random.randrange(1, 99)), loop=random.randrange(3), bypasses=wrapper)
        for event, wrapper in product(made, ("", "accelerator"))
    ]
    return plain + again + made + moved


ALPHABET = tuple(_variants())

LONGEST = 12


def _dialects() -> list[list[Event]]:
    """Small alphabets, in whose words the same few letters meet again and again."""
    random = Random(1)
    of_kind = {kind: [event for event in ALPHABET if event.kind is kind] for kind in Kind}
    sure = {
        kind: [event for event in of_kind[kind] if not event.may and not event.foreign]
        for kind in (Kind.ZERO, Kind.BACKWARD, Kind.STEP)
    }
    rare = (Kind.ZERO, Kind.ASSIGN, Kind.SYNC, Kind.NEW, Kind.UNKNOWN)
    weights = [1 if kind in rare else 6 for kind in Kind]
    dialects = []
    for _ in range(255):
        core = [random.choice(sure[kind]) for kind in (*sure, Kind.BACKWARD, Kind.BACKWARD)]
        more = [random.choice(of_kind[kind]) for kind in random.choices(list(Kind), weights, k=3)]
        dialects.append(core + more)
    return [list(ALPHABET[:26]), *dialects]


DIALECTS = _dialects()


def spell(letters: bytes) -> list[Event]:
    """The first byte is the dialect: drawing bytes is many times faster than drawing events."""
    if not letters:
        return []
    dialect = DIALECTS[letters[0]]
    return [dialect[letter % len(dialect)] for letter in letters[1:]]


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


words = st.binary(max_size=1 + LONGEST).map(spell)
