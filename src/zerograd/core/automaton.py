"""The state machine as far as it has been walked: states, and the edges that events take between them.

Both readers go through it: exploring source code asks for the edges of every sequence of events, a
run for those of the one that happens. States are interned and edges remembered, so that an edge that
was taken before costs one look-up (0.5 µs in `Judge.post`, where checking all rules takes 14 µs), and a
sequence breaks the same rules either way.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable

from zerograd.core.events import Event
from zerograd.core.lifecycle import FIELDS, START, State, advance
from zerograd.core.rule import Rule, Violation

MOST_EDGES = 4096
"""How many a run remembers; then it forgets them, because a long run must not grow."""
UNLIMITED = sys.maxsize


class Edge:
    """Where an event leads from a state, and which rules it breaks on the way."""

    __slots__ = ("broken", "event", "node")

    def __init__(
        self, event: Event, node: Node, broken: tuple[tuple[Rule, Violation], ...]
    ) -> None:
        self.event = event
        self.node = node
        self.broken = broken


class Node:
    """A state, and the edges that have been taken from it, by the identity of their event."""

    __slots__ = ("crossed", "edges", "grads", "state")

    def __init__(self, state: State) -> None:
        self.state = state
        self.grads, self.crossed = state.grads, state.crossed
        self.edges: dict[int, Edge] = {}


class Automaton:
    """The states and edges of some rules. States that differ only in what `reads` leaves out are one."""

    def __init__(
        self,
        rules: Iterable[Rule],
        *,
        reads: frozenset[str] = FIELDS,
        most_edges: int = MOST_EDGES,
    ) -> None:
        self.rules = tuple(rules)
        self.reads = reads
        self._most_edges = most_edges
        self._names = tuple(reads)
        self._nodes: dict[tuple[object, ...], Node] = {}
        self._edges = 0
        self._start: Node | None = None

    def node(self, state: State | None = None) -> Node:
        """The node of a state; by default, the node that every subject begins with."""
        if state is None:
            if self._start is None:
                self._start = self.node(START)
            return self._start
        fields = state.__dict__
        key = tuple([fields[name] for name in self._names])
        node = self._nodes.get(key)
        if node is None:
            read = {name: fields[name] for name in self._names}
            node = self._nodes[key] = Node(State(**read))
        return node

    def take(self, node: Node, event: Event) -> Edge:
        """The edge of an event; every rule is checked on it before the state moves on."""
        edge = node.edges.get(id(event))
        if edge is not None:
            return edge
        if self._edges >= self._most_edges:
            self.forget()
        state = node.state
        broken = tuple(
            (rule, violation)
            for rule in self.rules
            if (violation := rule.check(state, event)) is not None
        )
        # The edge keeps its event alive: no other can come to have the same identity.
        edge = Edge(event, self.node(advance(state, event)), broken)
        node.edges[id(event)] = edge
        self._edges += 1
        return edge

    def forget(self) -> None:
        """Forget all states and edges, which hold each other: no collector looks for cycles."""
        for node in self._nodes.values():
            node.edges.clear()
        self._nodes.clear()
        self._start = None
        self._edges = 0
