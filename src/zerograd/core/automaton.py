"""The driver for words: takes one event after the other from state to state, as a run brings them.

States are interned and the edges between them remembered, so that an edge taken before costs one
look-up. A word gets the verdicts that exploring it as a flow gives.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from zerograd.core.events import Event
from zerograd.core.lifecycle import START, State, advance
from zerograd.core.rule import Rule, Violation

MOST_EDGES = 4096
"""So many are remembered; then they are forgotten, because a long run must not grow."""


class Edge(NamedTuple):
    """Where an event leads from a state, and which laws it breaks on the way."""

    event: Event
    node: Node
    broken: tuple[tuple[Rule, Violation], ...]


class Node:
    """A state, and the edges that have been taken from it, by the identity of their event."""

    __slots__ = ("crossed", "edges", "grads", "state")

    def __init__(self, state: State) -> None:
        self.state = state
        self.grads, self.crossed = state.grads, state.crossed
        self.edges: dict[int, Edge] = {}


class Ledger:
    """The automaton of the given rules, as far as words have explored it."""

    def __init__(self, rules: Iterable[Rule]) -> None:
        self.rules = tuple(rules)
        self._nodes: dict[State, Node] = {}
        self._edges = 0

    def node(self, state: State = START) -> Node:
        """Where a word begins."""
        return self._nodes.setdefault(state, Node(state))

    def take(self, node: Node, event: Event) -> Edge:
        """The edge of an event; every rule is checked on it before the state moves on."""
        edge = node.edges.get(id(event))
        if edge is not None:
            return edge
        if self._edges >= MOST_EDGES:
            self._forget()
        checked = ((rule, rule.check(node.state, event)) for rule in self.rules)
        broken = tuple((rule, violation) for rule, violation in checked if violation is not None)
        # The edge keeps its event alive: no other can come to have the same identity.
        edge = Edge(event, self.node(advance(node.state, event)), broken)
        node.edges[id(event)] = edge
        self._edges += 1
        return edge

    def _forget(self) -> None:
        for node in self._nodes.values():
            node.edges.clear()
        self._nodes.clear()
        self._edges = 0
