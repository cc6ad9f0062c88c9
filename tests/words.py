"""Random words: an alphabet of events that covers every letter with every attribute it can carry."""

from __future__ import annotations

from dataclasses import replace
from itertools import product
from random import Random

from hypothesis import strategies as st

from zerograd.events import Event, Kind, Site

PATH = "train.py"


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

COMMON = tuple(
    event
    for event in ALPHABET
    if event.kind in (Kind.ZERO, Kind.BACKWARD, Kind.STEP) and not event.may and not event.foreign
)

events = st.one_of(st.sampled_from(COMMON), st.sampled_from(ALPHABET))
words = st.lists(events, max_size=12)
