"""The driver for words: folds events, one by one, into the state of every subject they concern.

A word gets the verdicts that exploring it as a flow gives. Edges that were taken before cost one
look-up, and no more than MOST_EDGES of them are remembered.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import NamedTuple

from zerograd.events import Event, Kind
from zerograd.lifecycle import START, State, advance
from zerograd.rule import Rule, Violation

ANY = ""
"""The subject of an event that concerns all: those that are known, and those still to come."""
MOST_EDGES = 4096


class Verdict(NamedTuple):
    """A rule that an event broke, how, and whose gradients it is about."""

    rule: Rule
    violation: Violation
    subject: str


class Ledger:
    """What the gradients of each subject hold now, judged by the given rules."""

    def __init__(self, rules: Iterable[Rule], *, start: State = START) -> None:
        self.rules = tuple(rules)
        self._edges: dict[tuple[int, Event, bool], tuple[int, tuple[tuple[Rule, Violation], ...]]]
        self._edges = {}
        self._states = [start]
        self._numbers = {start: 0}
        self._now = {ANY: 0}
        """The state of each subject, by number; that of ANY is where a new subject begins."""

    @property
    def subjects(self) -> tuple[str, ...]:
        """The subjects that events have named, in their order."""
        return tuple(subject for subject in self._now if subject != ANY)

    def state(self, subject: str = ANY) -> State:
        """The state of a subject."""
        return self._states[self._now.get(subject, self._now[ANY])]

    def post(self, event: Event) -> list[Verdict]:
        """Takes one event; every rule is checked on the edge before the state moves on."""
        if len(self._edges) >= MOST_EDGES:
            self._forget()
        self._now.setdefault(event.subject, self._now[ANY])
        judged = []
        for subject, foreign in self._concerned(event):
            before = self._now[subject]
            edge = self._edges.get((before, event, foreign)) or self._take(before, event, foreign)
            self._now[subject], broken = edge
            if subject != ANY or len(self._now) == 1:
                judged += [Verdict(rule, violation, subject) for rule, violation in broken]
        return judged

    def _concerned(self, event: Event) -> Iterator[tuple[str, bool]]:
        """Who is told of an event, and whether as of another's."""
        if event.subject == ANY:
            yield from ((subject, event.foreign) for subject in self._now)
            return
        yield event.subject, event.foreign
        if event.kind is Kind.STEP and not event.foreign:
            yield from ((other, True) for other in self._now if other != event.subject)

    def _take(
        self, before: int, event: Event, foreign: bool
    ) -> tuple[int, tuple[tuple[Rule, Violation], ...]]:
        state = self._states[before]
        told = replace(event, foreign=True) if foreign else event
        checked = ((rule, rule.check(state, told)) for rule in self.rules)
        broken = tuple((rule, violation) for rule, violation in checked if violation is not None)
        edge = (self._number(advance(state, told)), broken)
        self._edges[before, event, foreign] = edge
        return edge

    def _number(self, state: State) -> int:
        number = self._numbers.setdefault(state, len(self._states))
        if number == len(self._states):
            self._states.append(state)
        return number

    def _forget(self) -> None:
        """Keeps the subjects' states and drops the edges: a long run must not grow."""
        now = {subject: self._states[number] for subject, number in self._now.items()}
        self._edges.clear()
        self._states.clear()
        self._numbers.clear()
        self._now = {subject: self._number(state) for subject, state in now.items()}
