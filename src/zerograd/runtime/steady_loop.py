"""Steady loops: a training loop that repeats itself costs one comparison at each of its calls.

A round is what one thread does between two steps of its only subject. After two rounds that were
alike, and in which no gradient had to be looked at, the same calls are expected in the same order: each
is recognised by its place in the code. A round leads back to the state that it began in, so it is
only counted. At the first call that is another one, the loop is left: the calls of the unfinished
round take the edges of the state machine that they took before, and the other call goes the ordinary
way. A step of the MLP of `bench/loops.py` costs a third of what it costs without that.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterator, Sequence
from itertools import compress, repeat
from operator import is_not
from typing import TYPE_CHECKING, Any

from zerograd.core.automaton import Edge, Node
from zerograd.core.events import Backward, Clip, Event, Excuse, Step, Zero
from zerograd.core.lifecycle import EMPTY, Grads
from zerograd.fold.judge import Judge, Track
from zerograd.runtime.call_sites import Position
from zerograd.runtime.gradient_values import GRAD, VERSION, has_only_zero_bytes, holding, nonzero
from zerograd.runtime.subjects import LastBackward, Subject, UsedGradients

if TYPE_CHECKING:
    from torch import Tensor

LONGEST_ROUND = 64
"""A round with more calls is not followed."""

STEP_RUNNING = object()
"""The kind of call that is expected while a step runs: its end."""
BY_HAND = object()
"""The kind of a clear without a call: the next backward finds that the gradients are cleared."""
OUTSIDE = -1
"""No backward is running in this thread."""

_ref = weakref.ref


class ExpectedCall:
    """One call of a round: its place in the code, and the edge that it takes."""

    __slots__ = (
        "change",
        "code",
        "edge",
        "event",
        "grad",
        "groups",
        "groups_number",
        "instruction",
        "kind",
        "last_backward",
        "next",
        "node",
        "of",
        "param",
        "params",
        "running",
        "subject",
        "to_none",
        "track",
        "used",
        "version",
        "written",
    )

    edge: Edge
    """The edge from the call before to this one."""
    groups: Any
    groups_number: int
    params: Any
    """The groups of the optimizer that steps, their number, and the parameters of the last."""

    def __init__(
        self, subject: Any, event: Event | None, position: Position, of: object, node: Any
    ) -> None:
        self.subject: Subject = subject
        self.event: Any = event
        self.code, self.instruction = position
        unseen = isinstance(event, Zero) and event.excuse is Excuse.UNSEEN
        self.kind: object = BY_HAND if unseen else type(event)
        self.to_none = isinstance(event, Zero) and event.to_none
        self.of = of
        """Whose method it is: the identity of an optimizer, a reference to a module, …"""
        self.track: Track = subject and subject.track
        self.param: Tensor = subject and subject.probe.param
        self.used: UsedGradients = subject and subject.used
        self.last_backward: LastBackward = subject and subject.last_backward
        self.node: Node = node
        """The state after it."""
        self.grad: Tensor | None = None
        self.version = -1
        """The probe's gradient and its version, before the backward that is running."""
        self.written = self.change = 0
        """How often all gradients were written to before the last clear by hand, and how often since the one before."""
        self.next = self.running = self
        """What is expected after it; and while it runs, if it is one that takes a while."""

    def is_cleared(self, *, may_read: bool) -> bool:
        """Whether the program has cleared all gradients, as it did before."""
        every = list(map(GRAD, self.subject.params))
        grads = list(compress(every, map(is_not, every, repeat(None))))
        if self.to_none or not grads:
            return self.to_none and not grads
        used, grad = self.used.grad, self.param.grad
        if grad is not None and used is not None and used() is not grad:
            return False  # not what the step has used: somebody has put another gradient there
        written = sum(map(VERSION, grads))
        change = written - self.written
        # They were written to as often as between the last two clears, which write to them (`.data`
        # would not show), and one of them is zero.
        as_before = (
            change == self.change
            and grad is not None
            and grad._version != self.used.version
            and has_only_zero_bytes(grad)
        )
        if as_before or (may_read and not nonzero(holding(self.subject.params))):
            self.written, self.change = written, change
            return True
        return False

    def hand_over(self) -> None:
        """The backward goes the ordinary way: what was seen before it is kept where that looks."""
        probe, grad = self.subject.probe, self.grad
        probe.grad, probe.version_before, self.grad = grad, self.version, None


Call = tuple[Subject, Event, Position, object, Node, "Tensor"]
"""A noted call: its subject, its event, its position, the object of the method, the state after it, and the probe."""

NOTHING = ExpectedCall(None, None, (None, -1), 0, None)
"""Expected where no loop is followed: no call is like it."""


class BackwardCount:
    """How many backward calls there were, in all threads."""

    __slots__ = ("backwards", "next_look")

    def __init__(self) -> None:
        self.backwards = 0
        self.next_look = 1
        """The number of the backward before which something has to be looked at."""


class SteadyLoop:
    """The loop of one thread: notes its rounds, and follows them once they repeat."""

    __slots__ = (
        "_calls",
        "_count",
        "_end_rounds",
        "_events",
        "_follow",
        "_graph_task",
        "_look",
        "_rounds",
        "expected",
        "round",
    )

    def __init__(
        self,
        judge: Judge,
        count: BackwardCount,
        graph_task: Callable[[], int],
        look: Callable[[Subject], bool],
    ) -> None:
        """`look` makes the checks that are due before the next backward; False if the loop has to be left."""
        self._look = look
        self._follow, self._end_rounds = judge.follow, judge.end_rounds
        self._count = count
        self._graph_task = graph_task
        self.expected = NOTHING
        """The next call, if the loop goes on as it did."""
        self.round: list[Call] | None = None
        """The calls since the last step; None if they cannot be followed."""
        self._rounds: tuple[list[Call] | None, list[Call] | None] = (None, None)
        """The same of the round before, and of the one before that."""
        self._calls: Sequence[ExpectedCall] = ()
        """The calls of the round that is followed."""
        self._events = 0
        """How many events were posted since the last step."""

    @property
    def is_followed(self) -> bool:
        """Whether the loop repeats itself now."""
        return self.expected is not NOTHING

    # Whether a call is the expected one. Then it is taken; if it is not, the loop is left.

    def clears(self, frame: Any, of: object, to_none: bool) -> bool:
        """A clear."""
        call = self.expected
        if (
            call.code is frame.f_code
            and call.instruction == frame.f_lasti
            and call.kind is Zero
            and call.of == of
            and call.to_none is to_none
        ):
            self.expected = call.next
            return True
        self.leave()
        return False

    def clips(self, frame: Any, of: object) -> bool:
        """A clip."""
        call = self.expected
        if (
            call.code is frame.f_code
            and call.instruction == frame.f_lasti
            and call.kind is Clip
            and call.of == of
        ):
            self.expected = call.next
            return True
        return False  # it may be none of the subject's, and then the loop goes on

    def backward_begins(self, frame: Any, *, may_read: bool = False) -> ExpectedCall | None:
        """A backward; the call if it is the expected one, and then it is running.

        Numbers are read only with `may_read`: a mode of the program would see that.
        """
        expected, count = self.expected, self._count
        call = expected
        if (
            call.code is not frame.f_code
            or call.instruction != frame.f_lasti
            or self._graph_task() != OUTSIDE
        ):
            return None
        if count.backwards + 1 >= count.next_look and not self._look(call.subject):
            return None
        if call.kind is BY_HAND:
            if not call.is_cleared(may_read=may_read):
                return None
            call = call.next
        elif call.kind is not Backward:
            return None
        count.backwards += 1
        call.grad = grad = call.param.grad
        call.version = -1 if grad is None else grad._version
        if self.expected is expected:  # else another thread has left the loop
            self.expected = call.running
        return call

    def backward_ends(self, call: ExpectedCall) -> bool:
        """The end of a backward: whether it has reached the gradients as expected."""
        param = call.param
        now, grad = param.grad, call.grad
        if self.expected is call.running and (
            now is not grad or (now is not None and now._version != call.version)
        ):
            call.grad = None
            call.last_backward.weights_version = param._version
            self.expected = call.next
            return True
        return False

    def step_begins(self, optimizer: Any) -> bool:
        """A step, which is then running."""
        call = self.expected
        if call.kind is Step and call.of == id(optimizer):
            groups = call.groups
            if (
                optimizer.param_groups is groups
                and len(groups) == call.groups_number
                and groups[-1]["params"] is call.params
                and self.expected is call
            ):
                self.expected = call.running
                return True
        self.leave()
        return False

    def step_ends(self, frame: Any, optimizer: Any) -> bool:
        """The end of a step."""
        call = self.expected
        if (
            call.code is frame.f_code
            and call.instruction == frame.f_lasti
            and call.kind is STEP_RUNNING
            and call.of == id(optimizer)
        ):
            grad = call.param.grad
            if grad is not None:
                call.used.grad, call.used.version = _ref(grad), grad._version
                if self.expected is call:  # else another thread has left the loop
                    call.track.rounds += 1
                    self.expected = call.next
                    return True
        self.leave()
        return False

    # Noting rounds, and leaving the loop

    def leave(self) -> None:
        """The loop does not go on as it did: bring up to date what it has not kept."""
        call, self.expected = self.expected, NOTHING
        if call is not NOTHING:
            self.round = None
            self._end_rounds(call.track)
            for one in self._before(call):
                self._follow(one.track, one.edge)
            subject = call.subject
            subject.stepping.depth = int(call.kind is STEP_RUNNING)
            grads = subject.track.node.grads
            if grads is Grads.SPENT:
                subject.lane.used[subject.name] = subject
            else:
                subject.lane.used.pop(subject.name, None)
                if grads in EMPTY:
                    subject.last_backward.weights_version = -1

    def taken(self) -> Iterator[ExpectedCall]:
        """The calls of the unfinished round: their edges are followed only when the loop is left."""
        return self._before(self.expected)

    def _before(self, expected: ExpectedCall) -> Iterator[ExpectedCall]:
        for call in () if expected is NOTHING else self._calls:
            if call is expected or call.running is expected:
                return
            yield call

    def forget(self) -> None:
        """Leave the loop, and keep nothing of it."""
        self.leave()
        self.round, self._rounds, self._calls = None, (None, None), ()

    def posted(self) -> None:
        """An event goes the ordinary way."""
        if self.expected is not NOTHING:
            self.leave()
        self._events += 1

    def add(
        self, subject: Subject, event: Event, position: Position | None, of: object = 0
    ) -> None:
        """Note the call that has posted the last event; without a position it cannot be followed."""
        if self.round is not None:
            # A call that has posted more than one event is one for which something was looked at.
            if position is not None and self._events == len(self.round) + 1 <= LONGEST_ROUND:
                node, param = subject.track.node, subject.probe.param
                self.round.append((subject, event, position, of, node, param))
            else:
                self.round = None

    def round_ends(self) -> bool:
        """The call that was added last is a step; whether the last two rounds might be followed."""
        this, before = self.round, self._rounds[0]
        self._rounds = (this, before)
        self.round, self._events = [], 0
        return bool(this and before)

    def follow(self, groups: tuple[Any, int, Any]) -> None:
        """Expect the last round again, if it was like the one before; it has stepped these groups."""
        this, before = self._rounds
        assert this is not None
        assert before is not None
        if len(this) == len(before) and all(map(_are_alike, this, before)):
            calls = _linked(this)
            if calls:
                calls[-1].groups, calls[-1].groups_number, calls[-1].params = groups
                self._calls, self.expected = calls, calls[0]


def _are_alike(one: Call, other: Call) -> bool:
    """Whether two rounds have the same call here, which leads to the same state."""
    _, event, (code, instruction), of, node, param = one
    _, event_before, (code_before, instruction_before), of_before, node_before, param_before = other
    return (
        event is event_before
        and code is code_before
        and instruction == instruction_before
        and of == of_before
        and node is node_before
        and param is param_before
    )


def _linked(round_: Sequence[Call]) -> Sequence[ExpectedCall]:
    """The expected calls of a round in which nothing has to be checked; else none."""
    calls = [ExpectedCall(*call[:5]) for call in round_]
    if sum(call.kind is Backward for call in calls) != calls[-1].track.windows.usual:
        return ()
    earlier = calls[-1]
    for call in calls:
        if not _takes_a_plain_edge(earlier, call):
            return ()
        earlier.next = call
        earlier = call
    for call in calls:
        if call.kind is Backward or call.kind is Step:
            position = (call.code, call.instruction)
            running = ExpectedCall(call.subject, call.event, position, call.of, call.node)
            running.kind = STEP_RUNNING if call.kind is Step else None
            running.edge, running.next = call.edge, call.next
            call.running = running
    return calls


def _takes_a_plain_edge(earlier: ExpectedCall, call: ExpectedCall) -> bool:
    """Whether the call breaks no rule, and no gradient has to be looked at for it."""
    node = earlier.node
    edge = node.edges.get(id(call.event))
    if edge is None or edge.broken or edge.node is not call.node or node.crossed is not None:
        return False
    call.edge = edge
    if call.kind is Zero or call.kind is BY_HAND:
        return node.grads in EMPTY or node.grads is Grads.SPENT
    if call.kind is Backward:
        return node.grads in EMPTY or node.grads is Grads.LIVE
    return node.grads is Grads.LIVE
