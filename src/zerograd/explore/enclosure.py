"""Finds the code that runs only if a test has one outcome.

It is an arm of the branch and, if the other arm leaves, the code that the other arm skips. A violation in this
code happens whenever the code runs, so the decision about the test does not count against it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from zerograd.core.events import Site
from zerograd.explore.flow import (
    Alt,
    Block,
    Break,
    Continue,
    Emit,
    Flow,
    Label,
    Loop,
    Seq,
    children,
    leaves_by,
    walk,
)


class Enclosures:
    """The parts of a flow that the outcomes of its tests enclose."""

    def __init__(self, flow: Flow) -> None:
        self._after: dict[int, tuple[tuple[Flow, ...], Mapping[Label, int]]] = {}
        """By the identity of a branch: what follows it, the last first, and where labels lead in that."""
        self._outer: set[int] = set()
        """The identities of the branches that no loop is around."""
        self._visit(flow, (), {}, 0)

    def _visit(
        self, flow: Flow, after: tuple[Flow, ...], caught: Mapping[Label, int], loops: int
    ) -> None:
        if isinstance(flow, Seq):
            for index, item in enumerate(flow.items):
                self._visit(item, (*after, *reversed(flow.items[index + 1 :])), caught, loops)
            return
        if isinstance(flow, Alt):
            self._after[id(flow)] = (after, caught)
            if not loops:
                self._outer.add(id(flow))
        elif isinstance(flow, Block):
            caught = {**caught, flow.label: len(after)}
        elif isinstance(flow, Loop):
            caught = {**caught, Break(flow.ident): len(after), Continue(flow.ident): len(after)}
            loops += 1
        for part in children(flow):
            self._visit(part, after, caught, loops)

    def around(self, alt: Alt, outcome: bool) -> Iterator[Flow]:
        """The parts that run only if a test comes out so."""
        arm, other = (alt.then, alt.orelse) if outcome else (alt.orelse, alt.then)
        yield arm
        label = leaves_by(other)
        if label is not None:
            after, caught = self._after[id(alt)]
            yield from after[caught.get(label, 0) :]

    def decides_about_loops(self, alt: Alt, outcome: bool) -> bool:
        """Whether a test outside of all loops decides whether a loop runs at all."""
        if id(alt) not in self._outer:
            return False
        return any(True for part in self.around(alt, outcome) for _ in _loops(part))


def decides_only_whether(
    enclosed: tuple[Flow, ...], invariant: bool, reported: frozenset[Site], cited: frozenset[Site]
) -> bool:
    """Whether a test only decides whether the wrong code runs at all.

    An invariant test does if it encloses a reported call. Any other test does if it encloses a loop that goes wrong
    by itself: all cited places are in it.
    """
    if invariant:
        return any(not reported.isdisjoint(_sites(part)) for part in enclosed)
    return any(cited <= _sites(loop) for part in enclosed for loop in _loops(part))


def _sites(flow: Flow) -> frozenset[Site]:
    """The places of a flow: of its events, and of the tests that findings cite as guards."""
    return frozenset(
        part.event.site if isinstance(part, Emit) else part.site
        for part in walk(flow)
        if isinstance(part, (Emit, Alt))
    )


def _loops(flow: Flow) -> Iterator[Loop]:
    """The outermost loops of a flow."""
    if isinstance(flow, Loop):
        yield flow
    else:
        for part in children(flow):
            yield from _loops(part)
