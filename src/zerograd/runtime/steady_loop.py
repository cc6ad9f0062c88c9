"""Laps: a loop that goes round as it went before costs one comparison at each turn.

A lap is what one thread does between two steps of its only subject. Two laps that were alike, and in
which nothing had to be looked at, are what the watcher then expects: turn by turn it compares where the
call stands, and follows the state of the gradients. The first turn that is another one goes the
ordinary way, and the lap is left.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from zerograd.core.events import Backward, Step, Zero
from zerograd.core.lifecycle import EMPTY, Grads

if TYPE_CHECKING:
    from torch import Tensor

    from zerograd.core.automaton import Node

LONGEST_LAP = 64
"""So many turns, or it is not followed."""

STEPPING = object()
"""The kind of the turn at which a step ends."""

Call = tuple[Any, int]
"""Where a call stands: its code, and the instruction in it."""
NO_CALL: Call = (None, -1)


class Turn:
    """One event of a lap: the call it comes from, and where it leads."""

    __slots__ = (
        "code",
        "edge",
        "event",
        "grad",
        "groups",
        "inside",
        "instruction",
        "kind",
        "lane",
        "next",
        "node",
        "number",
        "of",
        "params",
        "probe",
        "subject",
        "to_none",
        "track",
        "version",
    )

    def __init__(self, subject: Any, event: Any, call: Call, of: Any) -> None:
        self.subject, self.event = subject, event
        self.code, self.instruction = call
        self.kind: object = type(event)
        self.to_none = isinstance(event, Zero) and event.to_none
        self.of = of
        """Whose method was called: the identity of an optimizer, or a reference to a module."""
        self.track = subject and subject.track
        self.lane = subject and subject.lane
        self.probe = subject and subject.probe
        self.node: Any = subject and subject.track.node
        """The state after it."""
        self.edge: Any = None
        """The edge to there from the turn before."""
        self.groups: Any = None
        self.number = 0
        self.params: Any = None
        """The groups of the optimizer that has stepped, their number, and what the last holds."""
        self.grad: Tensor | None = None
        self.version = -1
        """The probe's gradient before the backward that is running."""
        self.next = self.inside = self
        """The turn that is expected after it; and while it runs, if it takes a while."""

    def alike(self, other: Turn) -> bool:
        """Whether it is the same call, and leads to the same."""
        return (
            self.event is other.event
            and self.code is other.code
            and self.instruction == other.instruction
            and self.of == other.of
            and self.node is other.node
            and self.probe is other.probe
        )

    def keep(self, groups: Any, number: int, params: Any) -> None:
        """Remember an optimizer's groups."""
        self.groups, self.number, self.params = groups, number, params


NO_TURN = Turn(None, None, NO_CALL, 0)
"""What is expected where nothing is: no call is it."""


def joined(lap: Sequence[Turn], before: Sequence[Turn]) -> Turn:
    """The first turn of a lap that is like the one before it, and in which nothing is looked at."""
    if len(lap) != len(before) or not all(map(Turn.alike, lap, before)):
        return NO_TURN
    backwards = sum(turn.kind is Backward for turn in lap)
    if backwards != lap[-1].track.windows.usual or not all(_plain(*pair) for pair in _pairs(lap)):
        return NO_TURN
    for earlier, turn in _pairs(lap):
        earlier.next = turn
    for turn in lap:
        turn.inside = Turn(turn.subject, turn.event, (turn.code, turn.instruction), turn.of)
        turn.inside.kind = STEPPING if turn.kind is Step else None
        turn.inside.edge, turn.inside.next = turn.edge, turn.next
    return lap[0]


def _pairs(lap: Sequence[Turn]) -> Iterator[tuple[Turn, Turn]]:
    """Each turn after the one before it; a lap goes round."""
    return zip((lap[-1], *lap[:-1]), lap, strict=True)


def _plain(earlier: Turn, turn: Turn) -> bool:
    """Whether an event breaks nothing, and nothing has to be looked at for it."""
    node: Node = earlier.node
    edge = node.edges.get(id(turn.event))
    if edge is None or edge.broken or edge.node is not turn.node or node.crossed is not None:
        return False
    turn.edge = edge
    if turn.kind is Zero:
        return node.grads in EMPTY or node.grads is Grads.SPENT
    if turn.kind is Backward:
        return node.grads in EMPTY or node.grads is Grads.LIVE
    return node.grads is Grads.LIVE
