"""The automaton as an exploration walks it: states by number, and every edge it has taken before."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import lru_cache

from zerograd.core.events import Event, Kind
from zerograd.core.lifecycle import State, advance
from zerograd.core.records import replace
from zerograd.core.rule import Rule, Violation
from zerograd.explore import logic
from zerograd.explore.flow import Emit, Loop
from zerograd.explore.logic import Known, LastIteration

Verdicts = tuple[tuple[Rule, Violation], ...]


@dataclass
class Edges:
    """States and events are numbered, so that an edge that was taken before costs one look-up."""

    rules: Sequence[Rule]
    keep: frozenset[str]
    """The fields of a state that the rules read: states that differ elsewhere are one."""
    states: list[State] = field(default_factory=list)
    numbers: dict[tuple[object, ...], int] = field(default_factory=dict)
    events: dict[tuple[int, int, int | None, bool], Event] = field(default_factory=dict)
    moves: dict[tuple[int, int], tuple[int, Verdicts]] = field(default_factory=dict)
    known: dict[tuple[Emit, Known], Event] = field(default_factory=dict)

    def number(self, state: State) -> int:
        """The number of a state."""
        fields = state.__dict__
        key = tuple([fields[name] for name in self.keep])
        number = self.numbers.get(key)
        if number is None:
            number = self.numbers[key] = len(self.states)
            self.states.append(State(**{name: fields[name] for name in self.keep}))
        return number

    def move(self, number: int, event: Event) -> tuple[int, Verdicts]:
        """The state after an event, and what the event breaks."""
        edge = (number, id(event))
        move = self.moves.get(edge)
        if move is None:
            state = self.states[number]
            verdicts = tuple(
                (rule, violation)
                for rule in self.rules
                if (violation := rule.check(state, event)) is not None
            )
            # The event is kept, so that its id stays its own.
            self.events[(id(event), -1, None, False)] = event
            move = self.moves[edge] = (self.number(advance(state, event)), verdicts)
        return move

    def executed(self, flow: Emit, known: Known, length: int) -> Event:
        """The event as it is in a window of that length, under what is known."""
        if (event := self.known.get((flow, known))) is None:
            event = self.known[flow, known] = self._executed(flow, known, length)
        return event

    def _executed(self, flow: Emit, known: Known, length: int) -> Event:
        event, values = flow.event, dict(known)
        divisor = event.divisor
        if flow.divisor is not None:
            value = logic.evaluate(flow.divisor, values)
            number = isinstance(value, (int, float)) and not isinstance(value, bool)
            divisor = max(int(value), 1) if number else 0  # type: ignore[arg-type]
        last = bool(values.get(LastIteration(event.loop), False))
        key = (id(event), length, divisor, last)
        if key not in self.events:
            self.events[key] = replace(event, length=length, divisor=divisor, last=last)
            self.events[(id(event), -1, None, False)] = event
        return self.events[key]


@lru_cache(maxsize=256)
def ends(loop: Loop, kind: Kind) -> Emit:
    """The event that a guarded loop gives when it begins, and after each of its iterations."""
    site = loop.site if kind is Kind.ENTER else loop.closes or loop.site
    return Emit(Event(kind, site, loop=loop.ident, guard=loop.paced))
