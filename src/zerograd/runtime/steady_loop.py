"""Steady loops: a training loop that repeats itself costs one comparison at each of its calls.

A round is what one thread does between two steps of its subject; of several subjects, the one that
steps least often. After a round in which no gradient had to be looked at, and which leads back to the
state that it began in, the same calls are expected in the same order: each is recognised by its place
in the code. Such rounds are only counted. At the first call that is another one, the loop is left: the
calls of the unfinished round take the edges of the state machine that they took before, and the other
call goes the ordinary way. A step of the MLP of `bench/loops.py` costs a third of what it costs
without that.

If the first round that was followed came out differently, the loop is followed again only after two rounds
that were alike. The same is true of loops with several subjects, which remember something of each other
(`round_memory`): these must remember the same at the end of a round as at its beginning.
"""

from __future__ import annotations

import threading
import weakref
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import compress, repeat
from operator import is_, is_not
from typing import TYPE_CHECKING, Any

from zerograd.core.automaton import Edge, Node
from zerograd.core.events import Backward, Clip, Event, Excuse, Step, Zero
from zerograd.core.lifecycle import EMPTY, Grads
from zerograd.fold.judge import Judge, Track
from zerograd.runtime.call_sites import Position
from zerograd.runtime.gradient_values import GRAD, VERSION, has_only_zero_bytes, holding, nonzero
from zerograd.runtime.looks import Look
from zerograd.runtime.round_memory import BackwardOnSubject, SubjectMemory, is_calm
from zerograd.runtime.subjects import LastBackward, Subject, UsedGradients

if TYPE_CHECKING:
    from torch import Tensor

LONGEST_ROUND = 64
"""A round with more calls is not followed."""

TRIES, REST = 12, 64
"""If so many rounds of several subjects could not be followed, so many are not noted."""

STEP_RUNNING = object()
"""The kind of call that is expected while a step runs: its end."""
SHARED_STEP_RUNNING = object()
"""The same of a step in a round of several subjects, whether it ends the round or not."""
BY_HAND = object()
"""The kind of a clear without a call: the next backward finds that the gradients are cleared."""
OUTSIDE = -1
"""No backward is running in this thread."""

_CLEARS = (Zero, BY_HAND)
_USED_OR_NONE = (*EMPTY, Grads.SPENT)
_ref = weakref.ref


Post = tuple[Subject, Event, Node]
"""An event of a subject, and the state before it."""


class ExpectedCall:
    """One call of a round: its place in the code, and the edge that it takes."""

    __slots__ = (
        "adds",
        "backward_at",
        "change",
        "code",
        "event",
        "grad",
        "groups",
        "groups_number",
        "instruction",
        "kind",
        "last_backward",
        "memories",
        "next",
        "node",
        "noted",
        "of",
        "of_clear",
        "of_step",
        "of_step_end",
        "param",
        "params",
        "parts",
        "posts",
        "running",
        "subject",
        "to_none",
        "track",
        "unused",
        "used",
        "version",
        "written",
    )

    posts: Sequence[tuple[Subject, Edge]]
    """The edges that it takes."""
    groups: Any
    groups_number: int
    params: Any
    """The groups of the optimizer that steps, their number, and the parameters of the last."""
    grad: Tensor | None
    version: int
    """The probe's gradient and its version, before the backward that is running."""
    running: ExpectedCall
    """What is expected while it runs, if it is one that takes a while."""

    def __init__(
        self,
        subject: Any,
        event: Event | None,
        position: Position,
        of: object,
        noted: Sequence[Post] = (),
        parts: Sequence[BackwardOnSubject] = (),
        memories: Sequence[SubjectMemory] = (),
    ) -> None:
        self.subject: Subject = subject
        self.event: Any = event
        self.code, self.instruction = position
        self.kind: object = type(event)
        self.to_none = False
        if type(event) is Zero:
            self.to_none = event.to_none
            if event.excuse is Excuse.UNSEEN:
                self.kind = BY_HAND
        self.backward_at = -1
        """The instruction, if it is a backward of one subject, and the first of its window."""
        self.adds = False
        """Whether it is a backward that adds to gradients of its window."""
        self.of_clear = self.of_step = self.of_step_end = 0
        """The identity of the optimizer that it clears, that it steps, or whose step is running."""
        self.of = of
        """Whose method it is: the identity of an optimizer, a reference to a module, …"""
        self.noted = noted
        """The events that it has posted."""
        self.parts = parts
        """If several subjects are compared with it: each of them."""
        self.memories = memories
        """What each of several subjects remembers after it."""
        self.unused: Sequence[Subject] = ()
        """The subjects with gradients that it clears and no step of theirs has used."""
        self.written = self.change = 0
        """How often all gradients were written to before the last clear by hand, and how often since the one before."""
        self.next = self
        """What is expected after it."""
        if subject is not None:
            self.track: Track = subject.track
            self.node: Node = subject.track.node
            """The state after it."""
            self.param: Tensor = subject.probe.param
            self.used: UsedGradients = subject.used
            self.last_backward: LastBackward = subject.last_backward

    def is_like(self, other: ExpectedCall) -> bool:
        """Whether two rounds have the same call here, which leads to the same state."""
        return (
            self.event is other.event
            and self.code is other.code
            and self.instruction == other.instruction
            and self.of == other.of
            and self.node is other.node
            and self.param is other.param
            and len(self.noted) == len(other.noted)
            and all(map(_are_alike, self.noted, other.noted))
            and [part.key for part in self.parts] == [part.key for part in other.parts]
        )

    def is_cleared(self, *, may_read: bool) -> bool:
        """Whether the program has cleared all gradients, as it did before."""
        if self.to_none:
            # After a step, when the processor's caches hold none of it, this takes four fifths of the
            # time of `map` and `all`.
            for param in self.subject.params:  # noqa: SIM110
                if param.grad is not None:
                    return False
            return True
        every = list(map(GRAD, self.subject.params))
        grads = list(compress(every, map(is_not, every, repeat(None))))
        if not grads:
            return False
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

    def hand_over(self) -> list[Look]:
        """The backward goes the ordinary way: what was seen before it is kept where that looks."""
        if self.parts:
            return [look for part in self.parts for look in part.hand_over()]
        probe, grad = self.subject.probe, self.grad
        probe.grad, probe.version_before, self.grad = grad, self.version, None
        return []


NOTHING = ExpectedCall(None, None, (None, -1), 0)
"""Expected where no loop is followed: no call is like it."""


class BackwardCount:
    """How many backward calls there were, in all threads."""

    __slots__ = ("backwards", "next_look")

    def __init__(self) -> None:
        self.backwards = 0
        self.next_look = 0
        """After so many, something has to be looked at before the next one."""


class SteadyLoop:
    """The loop of one thread: notes its rounds, and follows them once they repeat."""

    __slots__ = (
        "_began",
        "_calls",
        "_careful",
        "_edge",
        "_end_rounds",
        "_follow",
        "_look",
        "_posts",
        "_remembers",
        "_rest",
        "_rounds",
        "_steps",
        "_steps_in_round",
        "_tries",
        "count",
        "expected",
        "round",
        "thread",
    )

    def __init__(
        self,
        judge: Judge,
        count: BackwardCount,
        look: Callable[[Iterable[Subject]], bool],
    ) -> None:
        """`look` makes the checks that are due before the next backward; False if the loop has to be left."""
        self.thread = threading.get_ident()
        """The thread whose loop it is."""
        self._look = look
        self._follow, self._end_rounds, self._edge = judge.follow, judge.end_rounds, judge.edge
        self.count = count
        self.expected = NOTHING
        """The next call, if the loop goes on as it did."""
        self.round: list[ExpectedCall] | None = None
        """The calls since the last step; None if they cannot be followed."""
        self._careful = False
        """Whether the last round that was followed came out differently, and none like it before."""
        self._rounds: tuple[list[ExpectedCall] | None, list[ExpectedCall] | None] = (None, None)
        """The same of the round before, and of the one before that."""
        self._steps_in_round: Sequence[tuple[Track, int]] = ()
        """If the round that is followed has several subjects: the tracks of those that step, and how often."""
        self._calls: Sequence[ExpectedCall] = ()
        """The calls of the round that is followed."""
        self._posts: list[Post] = []
        """The events that were posted since the last call that was noted."""
        self._steps: dict[str, int] = {}
        """Of several subjects: how often each has stepped."""
        self._tries, self._rest = TRIES, REST
        self._remembers = False
        """Whether the round that is noted was begun with memories, and each call is noted with them."""
        self._began: Sequence[SubjectMemory] = ()
        """The memories that it was begun with."""

    @property
    def is_followed(self) -> bool:
        """Whether the loop repeats itself now."""
        return self.expected is not NOTHING

    # Whether a call is the expected one. Then it is taken; if it is not, the loop is left.
    # The patches compare most calls of a round of one subject themselves, and ask here for the others.

    def clears(self, frame: Any, of: object, to_none: bool) -> bool:
        """A clear."""
        call = self.expected
        if (
            call.code is frame.f_code
            and call.instruction == frame.f_lasti
            and call.kind is Zero
            and call.of == of
            and call.to_none is to_none
            and not (call.unused and any(map(_has_moved, call.unused)))
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
        call = expected = self.expected
        if call.code is not frame.f_code or call.instruction != frame.f_lasti:
            return None  # also while a backward runs, of which this one is a part
        count = self.count
        if count.backwards >= count.next_look and not self._look(_subjects(call)):
            return None
        if call.kind is not Backward:
            if call.kind is not BY_HAND or not call.is_cleared(may_read=may_read):
                return None
            call = call.next
        if call.parts:
            for part in call.parts:
                if not part.begins(may_read=may_read):
                    return None
        else:
            call.grad = grad = call.param.grad
            if grad is None and call.adds:
                return None  # cleared by hand
            call.version = -1 if grad is None else grad._version
        count.backwards += 1
        if self.expected is expected:  # else another thread has left the loop
            self.expected = call.running
        return call

    def backward_ends(self, call: ExpectedCall) -> bool:
        """The end of a backward: whether it has reached the gradients as expected."""
        if call.parts:
            return self._ends_together(call)
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

    def _ends_together(self, call: ExpectedCall) -> bool:
        if self.expected is not call.running:
            return False
        for part in call.parts:
            if not part.ends():
                return False
        for part in call.parts:
            part.taken()
        self.expected = call.next
        return True

    def step_ends(self, frame: Any, optimizer: Any) -> bool:
        """The end of a step."""
        call = self.expected
        if (
            call.of_step_end == id(optimizer)
            and call.instruction == frame.f_lasti
            and call.code is frame.f_code
        ):
            grad = call.param.grad
            if grad is not None:
                used = call.used
                used.grad, used.version = _ref(grad), grad._version
                if self.expected is call:  # else another thread has left the loop
                    call.track.rounds += 1
                    self.expected = call.next
                    return True
        elif call.kind is SHARED_STEP_RUNNING and self._ends_shared_step(call, frame, optimizer):
            return True
        self.leave()
        return False

    def _ends_shared_step(self, call: ExpectedCall, frame: Any, optimizer: Any) -> bool:
        """The end of a step in a round of several subjects."""
        if call.code is not frame.f_code or call.instruction != frame.f_lasti:
            return False
        grad = call.param.grad
        if call.of != id(optimizer) or grad is None or self.expected is not call:
            return False
        call.used.grad, call.used.version = _ref(grad), grad._version
        self.expected = call.next
        if call.next is self._calls[0]:
            for track, steps in self._steps_in_round:
                track.rounds += steps
        return True

    # Noting rounds, and leaving the loop

    def begins(self, *, alone: bool) -> None:
        """The thread begins to drive a subject; `alone` if it is the only one. Its first round begins."""
        self.leave()
        self.round, self._posts = ([] if alone else None), []

    def leave(self) -> None:
        """The loop does not go on as it did: bring up to date what it has not kept."""
        call, self.expected = self.expected, NOTHING
        if call is not NOTHING:
            self.round = None
            self._careful = not call.track.rounds
            before = list(self._before(call))
            self._end_rounds(call.track)
            for track, _ in self._steps_in_round:
                self._end_rounds(track)
            for one in before:
                for subject, edge in one.posts:
                    self._follow(subject.track, edge)
            last = before[-1] if before else self._calls[-1]
            if last.memories:
                for memory in last.memories:
                    memory.restore()
                if call.kind is SHARED_STEP_RUNNING:
                    call.subject.stepping.depth = 1
                return
            subject = call.subject
            taken = before if self._careful else self._calls
            subject.cleared |= any(one.kind in _CLEARS for one in taken)
            subject.stepping.depth = int(call.kind is STEP_RUNNING)
            grads = subject.track.node.grads
            if grads is Grads.SPENT:
                subject.lane.used[subject.name] = subject
            else:
                subject.lane.used.pop(subject.name, None)
                if grads in EMPTY:
                    subject.last_backward.weights_version = -1

    def taken(self) -> Iterator[tuple[Subject, Edge]]:
        """The edges of the unfinished round: they are followed only when the loop is left."""
        for call in self._before(self.expected):
            yield from call.posts

    def _before(self, expected: ExpectedCall) -> Iterator[ExpectedCall]:
        for call in () if expected is NOTHING else self._calls:
            if call is expected or call.running is expected:
                return
            yield call

    def forget(self) -> None:
        """Leave the loop, and keep nothing of it."""
        self.leave()
        self._unlink()
        self.round, self._rounds, self._calls = None, (None, None), ()
        self._posts, self._steps_in_round, self._began, self._remembers = [], (), (), False

    def _unlink(self) -> None:
        """The calls of a round lead to each other: else they would keep the parameters until Python looks for garbage."""
        for call in self._calls:
            call.next = call.running = NOTHING

    def posted(self, subject: Subject, event: Event) -> None:
        """An event goes the ordinary way."""
        if self.expected is not NOTHING:
            self.leave()
        if self.round is not None:
            self._posts.append((subject, event, subject.track.node))

    def add(
        self,
        subject: Subject,
        event: Event,
        position: Position | None,
        of: object = 0,
        parts: Sequence[BackwardOnSubject] = (),
        beside: Sequence[Subject] = (),
    ) -> None:
        """Note the call that has posted the last events; without a position it cannot be followed.

        `beside` has all subjects of the thread, if they are several.
        """
        posts, self._posts = self._posts, []
        if self.round is not None:
            if position is None or not _are_of(posts, event, several=bool(beside)):
                # A call of one subject with more than one event is one for which something was looked at.
                self.round = None
            elif len(self.round) == LONGEST_ROUND:
                self.round, self._steps = None, {}
            else:
                memories: Sequence[SubjectMemory] = ()
                if beside and self._remembers:
                    if all(map(is_calm, beside)):
                        memories = list(map(SubjectMemory, beside))
                    else:
                        self._remembers = False
                self.round.append(
                    ExpectedCall(subject, event, position, of, posts, parts, memories)
                )

    def round_ends(self, subject: Subject, *, several: bool) -> bool:
        """The call that was added last is a step; whether the last round might be followed."""
        if several:
            steps = self._steps
            steps[subject.name] = mine = steps.get(subject.name, 0) + 1
            if min(steps.values()) < mine:
                return False  # another one steps less often
            if not self._tries:
                self._rest -= 1
                self._tries = 0 if self._rest else TRIES
                self.round, self._rounds = None, (None, None)
                return False
            self._tries -= 1
            self._rest = REST
        this, before = self.round, self._rounds[0]
        self._rounds = (this, before)
        self.round, self._posts = [], []
        return bool(this and (before or not (several or self._careful)))

    def follow(
        self, groups: Callable[[Any], tuple[Any, int, Any]], beside: Sequence[Subject] = ()
    ) -> None:
        """Expect the last round again."""
        this, before = self._rounds
        assert this is not None
        remembered, self._remembers = self._remembers, False
        if not (before and _are_like(this, before)):
            if beside or self._careful or not all(map(_is_usual, this)):
                return
        if beside and not remembered:
            if all(map(is_calm, beside)):
                self._remembers, self._began = True, list(map(SubjectMemory, beside))
            return
        if beside and [one.key for one in self._began] != [one.key for one in this[-1].memories]:
            return
        calls = _linked_together(this) if beside else _linked(this, self._edge)
        if calls:
            for call in calls:
                if call.kind is Step:
                    call.groups, call.groups_number, call.params = groups(call.of)
            self._unlink()
            self._calls, self.expected, self._tries = calls, calls[0], TRIES
            self._steps_in_round = _steps_in(calls) if beside else ()


def _are_of(posts: Sequence[Post], event: Event, *, several: bool) -> bool:
    """Whether these events are what a call posts where nothing has to be looked at."""
    if not several:
        return len(posts) == 1
    kind, site = type(event), event.site
    return bool(posts) and all(type(one) is kind and one.site is site for _, one, _ in posts)


def _are_alike(one: Post, other: Post) -> bool:
    return all(map(is_, one, other))


def _are_like(this: Sequence[ExpectedCall], before: Sequence[ExpectedCall]) -> bool:
    """Whether two rounds have the same calls."""
    return len(this) == len(before) and all(map(ExpectedCall.is_like, this, before))


def _is_usual(call: ExpectedCall) -> bool:
    """Whether the event of a call has nothing that is true of this round alone."""
    event = call.event
    if isinstance(event, Zero):
        return event.excuse is None or event.excuse is Excuse.UNSEEN
    if isinstance(event, Step):
        return event.decided is None and event.remade is None and not event.again
    return True


def _linked(
    calls: Sequence[ExpectedCall], take: Callable[[Node, Event], Edge]
) -> Sequence[ExpectedCall]:
    """The expected calls of a round in which nothing has to be checked; else none."""
    earlier = calls[-1]
    if sum([call.kind is Backward for call in calls]) != earlier.track.windows.usual:
        return ()
    begin = node = earlier.track.node
    for call in calls:
        edge = take(node, call.event)
        if not _is_plain(call, node, edge):
            return ()
        call.posts = ((call.subject, edge),)
        node = edge.node
        earlier.next = call
        earlier = call
    if node is not begin:
        return ()
    _add_running(calls, STEP_RUNNING)
    return calls


def _linked_together(calls: Sequence[ExpectedCall]) -> Sequence[ExpectedCall]:
    """The same of a round of several subjects."""
    nodes: dict[str, Node] = {}
    for call in (*calls, *calls):  # the second time each subject begins where it has ended
        posts = []
        for subject, event, node in call.noted:
            edge = node.edges.get(id(event))
            if edge is None or not _is_harmless(event, node, edge):
                return ()
            if nodes.setdefault(subject.name, node) is not node:
                return ()
            nodes[subject.name] = edge.node
            posts.append((subject, edge))
        call.posts = posts
        if call.kind is Zero:
            call.unused = [one for one, _, node in call.noted if node.grads not in _USED_OR_NONE]
        if not call.memories or (call.kind is Backward and not call.parts):
            return ()
    for call, following in zip(calls, (*calls[1:], calls[0]), strict=True):
        call.next = following
        if call.kind is Step and not call.track.windows.steady:
            return ()
    _add_running(calls, SHARED_STEP_RUNNING)
    return calls


def _add_running(calls: Sequence[ExpectedCall], step: object) -> None:
    """Add what is expected while a call runs, and what the patches compare themselves."""
    alone = step is STEP_RUNNING
    for call in calls:
        call.running = call
        if call.kind is Step:
            position = (call.code, call.instruction)
            call.running = running = ExpectedCall(call.subject, None, position, call.of)
            running.kind, running.next = step, call.next
            assert isinstance(call.of, int)
            call.of_step = call.of
            running.of_step_end = call.of if alone else 0
        elif call.kind is Backward:
            call.running = running = ExpectedCall(call.subject, None, (None, -1), call.of)
            running.kind, running.next = None, call.next
            call.adds = any(node.grads is Grads.LIVE for _, _, node in call.noted)
            call.backward_at = call.instruction if alone and not call.adds else -1
        elif alone and call.kind is Zero and type(call.of) is int:
            call.of_clear = call.of


def _steps_in(calls: Sequence[ExpectedCall]) -> Sequence[tuple[Track, int]]:
    """The tracks of the subjects that step in a round, and how often each does."""
    steps = Counter(call.subject.name for call in calls if call.kind is Step)
    tracks = {call.subject.name: call.track for call in calls}
    return [(tracks[name], times) for name, times in steps.items()]


def _subjects(call: ExpectedCall) -> Sequence[Subject]:
    return [part.subject for part in call.parts] or (call.subject,)


def _has_moved(subject: Subject) -> bool:
    """Whether the weights are not those of the last backward although no step has used its gradients."""
    version = subject.last_backward.weights_version
    return version >= 0 and version != subject.probe.param._version


def _is_harmless(event: Event, node: Node, edge: Edge) -> bool:
    """Whether an event of one of several subjects breaks no rule, and nothing else has to be looked at."""
    if edge.broken or node.crossed is not None:
        return False
    if isinstance(event, Zero):
        return node.grads is not Grads.LIVE or node.state.lent is not None
    if isinstance(event, Step) and not event.foreign:
        return node.grads is Grads.LIVE and event.remade is None
    return isinstance(event, Step | Backward) or node.grads is Grads.LIVE


def _is_plain(call: ExpectedCall, node: Node, edge: Edge) -> bool:
    """Whether the call breaks no rule, and no gradient has to be looked at for it."""
    if edge.broken or node.crossed is not None:
        return False
    if call.kind is Zero or call.kind is BY_HAND:
        return node.grads in EMPTY or node.grads is Grads.SPENT
    if call.kind is Backward:
        return node.grads in EMPTY or node.grads is Grads.LIVE
    return node.grads is Grads.LIVE
