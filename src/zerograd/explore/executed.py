"""Events as they are where guards are executed: in a window of a known length, under known values."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache

from zerograd.core.events import Backward, End, Enter, Event, Hold, Step, Zero
from zerograd.core.records import dataclass, field, replace
from zerograd.explore import logic
from zerograd.explore.flow import Emit, Loop
from zerograd.explore.logic import Fact, LastIteration, Value, Variable


@dataclass
class Executed:
    """Makes the variants of events. Each variant is one object, because edges are found by the identity of events."""

    length: int
    """How many backward calls the guards mean a window to have."""
    _variants: dict[tuple[int, object], tuple[Event, Event]] = field(default_factory=dict)
    """By the identity of the event in the flow. The event is kept alive: no other one gets its identity."""

    def event(self, flow: Emit, values: Mapping[Variable | Fact, Value]) -> Event:
        """The event under what is known."""
        event = flow.event
        if isinstance(event, (Zero, End)):
            return self._variant(event, None, length=self.length)
        if isinstance(event, Step):
            last = bool(values.get(LastIteration(event.loop), False))
            return self._variant(event, last, length=self.length, last=last)
        if flow.divisor is None:
            return event
        assert isinstance(event, Backward)
        value = logic.evaluate(flow.divisor, values)
        number = isinstance(value, (int, float)) and not isinstance(value, bool)
        divisor = max(int(value), 1) if number else 0  # type: ignore[arg-type]
        return self._variant(event, divisor, divisor=divisor)

    def _variant(self, event: Event, key: object, **changes: object) -> Event:
        made = self._variants.get((id(event), key))
        if made is None:
            made = self._variants[id(event), key] = (event, replace(event, **changes))
        return made[1]


@lru_cache(maxsize=256)
def enters(loop: Loop) -> Emit:
    """The event at the beginning of a guarded loop. It is one object, because edges are found by the identity of events."""
    return Emit(Enter(loop.site, loop=loop.ident))


@lru_cache(maxsize=256)
def holds(loop: Loop) -> Emit:
    """The event after each iteration of a guarded loop. It is one object, too."""
    return Emit(Hold(loop.closes or loop.site, loop=loop.ident, guard=loop.paced))
