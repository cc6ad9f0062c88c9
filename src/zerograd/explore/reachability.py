"""Every state that a flow can reach if each test could have either outcome.

If no event breaks a rule in any of these states, the flow need not be explored: most code is right. It
saves 8 % of the instructions of a check (40 files of `bench/ecosystem.txt` that are parsed), and 10 % in
40 files of `bench/right`.
"""

from __future__ import annotations

from collections.abc import Iterable

from zerograd.core.automaton import Automaton, Node
from zerograd.core.events import Event, Step
from zerograd.core.records import dataclass, field
from zerograd.explore.executed import Executed, enters, holds
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
    Seq,
    Set,
    Try,
)
from zerograd.explore.logic import LastIteration

States = set[Node]


class _Broken(Exception):
    """Some event, in some state, breaks a rule."""


def is_clean(flow: Flow, automaton: Automaton, start: Node, executed: Executed | None) -> bool:
    """Whether no sequence of a flow can break a rule; `executed` where guards are executed."""
    if executed is not None and "divisors" in automaton.reads:
        return False  # only the exploration evaluates divisors
    try:
        _Reach(automaton, executed).run(flow, {start})
    except _Broken:
        return False
    return True


@dataclass
class _Reach:
    """Follows a flow with a set of states, and ignores what tests say."""

    automaton: Automaton
    executed: Executed | None
    jumps: dict[Label, States] = field(default_factory=dict)
    watchers: list[States] = field(default_factory=list)

    def run(self, flow: Flow, entry: States) -> States:
        """The states behind a flow that is entered in one of these."""
        if not entry or isinstance(flow, Set):
            return entry
        if isinstance(flow, Seq):
            for item in flow.items:
                entry = self.run(item, entry)
            return entry
        if isinstance(flow, Emit):
            return self.emit(flow, entry)
        if isinstance(flow, Alt):
            return self.run(flow.then, entry) | self.run(flow.orelse, entry)
        if isinstance(flow, Loop):
            return self.repeat(flow, entry)
        if isinstance(flow, Block):
            return self.run(flow.body, entry) | self.jumps.pop(flow.label, set())
        if isinstance(flow, Jump):
            self.jumps[flow.label] = self.jumps.get(flow.label, set()) | entry
            if flow.label == RAISE:
                self.watch(entry)
            return set()
        return self.attempt(flow, entry)

    def emit(self, flow: Emit, entry: States) -> States:
        out = set()
        take = self.automaton.take
        for event in self.variants(flow):
            for node in entry:
                edge = take(node, event)
                if edge.broken:
                    raise _Broken
                out.add(edge.node)
        self.watch(out)
        return out

    def variants(self, flow: Emit) -> Iterable[Event]:
        """The event as it is in the last iteration of its loop, and before."""
        event, executed = flow.event, self.executed
        if executed is None:
            return (event,)
        if not isinstance(event, Step):
            return (executed.event(flow, {}),)
        last = LastIteration(event.loop)
        return [executed.event(flow, {last: is_last}) for is_last in (False, True)]

    def watch(self, states: States) -> None:
        for watcher in self.watchers:
            watcher |= states

    def repeat(self, loop: Loop, entry: States) -> States:
        marked = loop.paced is not None and self.executed is not None
        if marked:
            entry = self.emit(enters(loop), entry)
        seen: States = set()
        out: States = set()
        while entry:
            seen |= entry
            after = self.run(loop.body, entry) | self.jumps.pop(Continue(loop.ident), set())
            if marked:
                after = self.emit(holds(loop), after)
            out |= after
            entry = after - seen
        if loop.forever:
            out = set()
        if loop.orelse is not None:
            out = self.run(loop.orelse, out)
        return out | self.jumps.pop(Break(loop.ident), set())

    def attempt(self, flow: Try, entry: States) -> States:
        seen = set(entry)
        waiting, self.jumps = self.jumps, {}
        if flow.handlers:
            self.watchers.append(seen)
        out = self.run(flow.body, entry)
        if flow.handlers:
            self.watchers.pop()
        out = self.run(flow.orelse, out)
        for handler in flow.handlers:
            out = out | self.run(handler, seen)
        leaving, self.jumps = self.jumps, waiting
        for label, states in leaving.items():
            self.jumps[label] = self.jumps.get(label, set()) | self.run(flow.final, states)
        return self.run(flow.final, out)
