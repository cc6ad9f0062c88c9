"""The reader of runs: turns what torch does into events, after looking where looking is needed.

In a loop that goes round as it went before, every happening costs a comparison, whatever the model's
size: that part of a listener stands first, and in place, because calls cost as much. Gradients are
looked at only where a backward meets some that a step has used, or another optimizer's phase has
left: which hold anything, and which of those the backward really reaches. What is posted to the
judge has been seen, not guessed.
"""

from __future__ import annotations

import sys
import weakref
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from zerograd.core.events import Assign, Backward, Clip, Event, Step, Unknown, Unscale, Update, Zero
from zerograd.fold.judge import Judge
from zerograd.runtime import autograd_graph, verify
from zerograd.runtime.call_sites import NOWHERE
from zerograd.runtime.gradient_probe import USUAL, Look, close
from zerograd.runtime.lanes import OUTSIDE, Lane
from zerograd.runtime.orphans import Orphans
from zerograd.runtime.steady_loop import (
    LONGEST_LAP,
    NO_CALL,
    STEPPING,
    Call,
    Turn,
    joined,
)
from zerograd.runtime.step_and_clear import STEPPED, Using
from zerograd.runtime.subjects import Subject

if TYPE_CHECKING:
    from zerograd.runtime.norms import Meter

ABOVE_TORCH = 3
"""How far above a listener the user can be: our hook is below it, and below that some of torch."""


_Backward = tuple[Backward, Sequence[Look], list[Subject], Call]
"""A backward that is running, what is to be asked when it has ended, of whom, and who called it."""
NO_LOOKS: tuple[Look, ...] = ()

_frame, _ref = sys._getframe, weakref.ref


class Watcher(Using):
    """Listens to torch and tells the judge."""

    def __init__(self, judge: Judge, torch: Any) -> None:
        super().__init__(judge, torch)
        # Of torch's own frames those that may stand between.
        self._method = torch.Tensor.backward.__code__
        self._clearing = torch.optim.Optimizer.zero_grad.__code__
        self._walks: dict[object, list[bool | None]] = {}
        """By call: whether the last losses that were followed to the leaves had been scaled."""
        self._clips: dict[object, list[Subject]] = {}
        self._next_walk = 1
        """The backward whose graph is looked at for what no optimizer has."""
        self.scalers = False
        nobody = judge.track("")
        self._orphans = Orphans(torch, self._subjects, lambda event: judge.post(nobody, event))
        self._follow = judge.follow
        self.sync.fault = self.fault
        self.sync.on_shared = self.leave_laps
        self._begins = self.sync.begins
        self.replicas.scaler = lambda: self.scaler and self.scaler()
        self.meter: Meter | None = None
        """Who measures what steps use, if anybody asks for it."""
        self.scaler: Any = None
        self.failure: Exception | None = None
        self.on_fault: Any = None
        self.passing: tuple[type[Exception], ...] = ()
        """What is meant to reach the user."""

    # What torch tells

    def backward_begins(self, outputs: Any) -> Turn | _Backward | None:
        if self._graph_task() != OUTSIDE:
            return None  # one inside another, as in checkpointing, is part of it
        lane = self._here.lane
        turn = lane.turn
        self._backwards += 1
        frame: Any = _frame(ABOVE_TORCH)
        if frame.f_code is self._method:
            frame = frame.f_back
        if (
            turn.code is frame.f_code
            and turn.instruction == frame.f_lasti
            and turn.kind is Backward
        ):
            if self._backwards >= self._next_walk:
                self._walk(lane, outputs, turn.event)
            if lane.turn is turn:
                turn.grad = grad = turn.probe.grad
                turn.version = -1 if grad is None else grad._version
                lane.turn = turn.inside
                return turn
        return self._backward_begins(lane, frame, outputs)

    def _backward_begins(self, lane: Lane, frame: Any, outputs: Any) -> _Backward | None:
        if self.failure:
            return None
        lane.leave_lap()
        if lane.pending:
            self._register(lane)
        scaled: bool | None = False
        if self.scalers:
            scaled = self._is_scaled(outputs, frame)
        event = self._events.backward(frame, scaled)
        self._begins(event)
        if self._backwards >= self._next_walk:
            self._walk(lane, outputs, event)
        for subject in lane.outer:
            grad = subject.probe.grad
            subject.probe_grad = grad
            subject.probe_version = -1 if grad is None else subject.version(grad)
            if subject.company and not verify.filled(subject.probe, subject.params):
                subject.company = frozenset()  # cleared by hand
            if subject.depth:
                self._post_clear_of_step(subject)
                subject.inside = None
        looks: list[Look] = []
        if lane.watched:
            if self.meter is not None:
                self.meter.before(lane.watched.values())
            try:
                for subject in tuple(lane.watched.values()):
                    look = self._look(subject, event)
                    if look is not None:
                        looks.append(look)
            except BaseException:
                close(looks)
                raise
        return event, looks, lane.outer, self._call(frame)

    def _walk(self, lane: Lane, outputs: Any, event: Backward) -> None:
        """Follow the graph to what it reaches and no optimizer has."""
        leaves = autograd_graph.leaves(outputs)
        if not self._searched and self._orphans.unclaimed(leaves):
            self._search(lane, leaves)
        self._orphans.look(leaves, event.site, self._judge.steps)
        self._next_walk = self._orphans.next(self._backwards)

    def backward_ended(self, token: Turn | _Backward, failed: bool) -> None:
        if isinstance(token, Turn):
            probe, lane = token.probe, token.lane
            now, grad, token.grad = probe.grad, token.grad, None
            if (
                lane.turn is token.inside
                and not failed
                and (now is not grad or (now is not None and now._version != token.version))
            ):
                token.subject.weights = probe._version
                self._follow(token.track, token.edge)
                lane.turn = token.next
                return
            subject = token.subject
            subject.probe_grad, subject.probe_version = grad, token.version
            token = (token.event, NO_LOOKS, lane.outer, (token.code, token.instruction))
        self._backward_ended(token, failed)

    def _backward_ended(self, token: _Backward, failed: bool) -> None:
        event, looks, outer, call = token
        if self.failure:
            close(looks)
            return
        met = {look.subject.name for look in looks} if looks else ()
        for subject in outer:
            grad, now = subject.probe_grad, subject.probe.grad
            probed = now is not grad or (
                now is not None and subject.version(now) != subject.probe_version
            )
            subject.probed = subject.touched = probed
            if not probed and not failed and subject.name not in met:
                subject.touched = self._reaches(subject, event)
        if looks:
            try:
                for look in looks:
                    look.subject.touched |= look.touches()
                alone = sum(subject.touched for subject in outer) <= 1
                self._note_company(outer)
                for look in looks:
                    self._meet(look, event, alone, failed)
            finally:
                close(looks)
        elif len(outer) > 1:
            self._note_company(outer)
        for subject in outer:
            now = subject.probe.grad
            if subject.probed and not failed:
                subject.weights = subject.probe._version
                if subject.track.windows.cuts:
                    subject.weighed = subject.probe.detach().clone()
                if subject.track.windows.drops and now is not None:
                    subject.filled = weakref.ref(now)
                    subject.filled_version = now._version
            subject.probe_grad = None
            if subject.name in met:
                continue
            if subject.touched and not failed:
                self._post(subject, self._told(subject, event))
            else:
                self._post(subject, self._variant(event, may=True))
        if len(outer) == 1:
            plain = not looks and not failed and outer[0].probed
            self._turned(outer[0], event, call if plain else NO_CALL)

    def _is_scaled(self, outputs: Any, frame: Any) -> bool | None:
        """Whether a scaler has multiplied the loss; None if that cannot be seen."""
        if not outputs:
            return None
        if autograd_graph.is_marked(outputs[0]):
            return True
        if len(self._walks) >= MOST_WALKS:
            self._walks.clear()
        walks = self._walks.setdefault((frame.f_code, frame.f_lasti), [])
        if len(walks) < USUAL or walks[0] is not False:
            walks[USUAL - 1 :] = []
            walks.insert(0, autograd_graph.scaled_by_a_scaler(outputs[0]))
        return walks[0]

    def step_begins(self, optimizer: Any) -> None:
        lane = self._here.lane
        turn = lane.turn
        if turn.kind is Step and turn.of == id(optimizer):
            groups = turn.groups
            if (
                optimizer.param_groups is groups
                and len(groups) == turn.number
                and groups[-1]["params"] is turn.params
            ):
                turn.subject.depth = 1
                lane.turn = turn.inside
                return
        if self.failure:
            return
        lane.leave_lap()
        subject = self._subjects.of(optimizer)
        if subject is None:
            return
        subject.depth += 1
        if subject.depth == 1:
            subject.inside = None
            if self.sync.active:
                self.replicas.step_begins(subject, self.sync.stepping(subject), optimizer)
        if subject.stale:
            self._prune(subject)
        elif subject.track.node.crossed is not None:
            held = verify.holding(subject.params if subject.left is None else subject.left)
            if not held or not verify.nonzero(held):
                # What the other phase had left is there no more.
                self._post(subject, self._event(Unknown, NOWHERE))

    def step_ended(self, optimizer: Any) -> None:
        lane = self._here.lane
        turn = lane.turn
        frame = _frame(ABOVE_TORCH)
        if (
            turn.code is frame.f_code
            and turn.instruction == frame.f_lasti
            and turn.kind is STEPPING
            and turn.of == id(optimizer)
        ):
            grad = turn.probe.grad
            if grad is not None:
                subject = turn.subject
                subject.depth = 0
                self._follow(turn.track, turn.edge)
                subject.used = _ref(grad)
                lane.watched[subject.name] = subject
                lane.turn = turn.next
                return
        if self.failure:
            return
        subject = self._subjects.known(optimizer)
        if subject is None:
            return
        subject.depth -= 1
        if subject.inside is STEPPED and subject.depth == 0:
            subject.inside = None
            return  # the optimizer inside has stepped, and this one wraps it
        subject.same_optimizer = subject.stepped_by == id(optimizer)
        subject.stepped_by = id(optimizer)
        event = self._step(subject, lane.scaling is not None, frame)
        subject.inside = STEPPED if subject.depth else None
        if event is not None:
            self._lap_ends(subject, event, self._call(frame))

    def zeroed(self, optimizer: Any, to_none: bool) -> None:
        frame: Any = _frame(ABOVE_TORCH)
        if frame.f_code is self._clearing:
            frame = frame.f_back
        if self._expected_clear(self._here.lane, frame, id(optimizer), to_none) or self.failure:
            return
        subject = self._subjects.known(optimizer)
        if subject is None:
            return
        if subject.lane is None and self._graph_task() == OUTSIDE:
            self._adopt(subject)
        event = self._events.zero(frame, to_none)
        self._clear(subject, event)
        for other in subject.covers:
            self._clear(other, event)
        self._turned(subject, event, self._call(frame), id(optimizer))

    def module_zeroed(self, module: Any, to_none: bool) -> None:
        lane = self._here.lane
        frame = _frame(ABOVE_TORCH - 1)
        if self._expected_clear(lane, frame, _ref(module), to_none) or self.failure:
            return
        if lane.pending:
            self._register(lane)
        for subject in self._subjects.covered(module):
            event = self._events.zero(frame, to_none)
            self._clear(subject, event)
            self._turned(subject, event, self._call(frame), _ref(module))

    def clipped(self, params: list[Any]) -> None:
        if self.failure or not params:
            return
        lane = self._here.lane
        turn = lane.turn
        frame = self._places.outside_torch(_frame(ABOVE_TORCH))
        key = (id(params[0]), id(params[-1]), len(params), self._subjects.generation)
        if (
            turn.code is frame.f_code
            and turn.instruction == frame.f_lasti
            and turn.kind is Clip
            and turn.of == key
        ):
            self._follow(turn.track, turn.edge)
            lane.turn = turn.next
            return
        if lane.pending:
            self._register(lane)
        met = self._clips.get(key)
        if met is None:
            if len(self._clips) >= MOST_CLIPS:
                self._clips.clear()
            met = self._clips[key] = self._subjects.among(params)
        if met:
            event = self._event(Clip, self._places.site(frame))
            for subject in met:
                self._before_clip(subject)
                self._post(subject, event)
                self._turned(subject, event, self._call(frame), key)

    def scaled(self, outputs: Any) -> None:
        self.scalers = True
        self._here.lane.leave_lap()
        for output in outputs if isinstance(outputs, (list, tuple)) else (outputs,):
            autograd_graph.mark_scaled(output)

    def unscaling(self, optimizer: Any) -> None:
        if self._here.lane.scaling is None and not self.failure:
            subject = self._subjects.of(optimizer)
            if subject is not None:
                site = self._places.site(sys._getframe(3))
                self._scaled_before(subject, optimizer)
                self._post(subject, self._event(Unscale, site, scaled=True))

    def scaler_step_begins(self, optimizer: Any) -> None:
        if self.failure:
            return
        self._here.lane.scaling = optimizer
        subject = self._subjects.of(optimizer)
        if subject is not None:
            self._scaled_before(subject, optimizer)
            state = subject.track.node.state
            if state.stepped is not None:
                # torch raises now, before any hook of the step: it uses nothing.
                site = self._places.site(sys._getframe(3))
                self._post(subject, self._event(Assign, site))
                self._post(subject, self._event(Step, site, scaled=True))
            self._post_clear_of_step(subject)
            subject.inside = None

    def _scaled_before(self, subject: Subject, optimizer: Any) -> None:
        """A scaler keeps count by optimizer: what it did for another one of the subject's is past."""
        if subject.scaling not in (0, id(optimizer)):
            self._post(subject, self._event(Update, NOWHERE))
        subject.scaling = id(optimizer)

    def scaler_step_ended(self, optimizer: Any, failed: bool) -> None:
        if self.failure:
            return
        subject = self._subjects.of(optimizer)
        lane = self._here.lane
        stepping, lane.scaling = lane.scaling, None
        if subject is None or failed or stepping is None:
            return
        state = subject.track.node.state
        if state.stepped is None:
            # The scaler has found inf or nan and skipped the step: the gradients are used up.
            self._step(subject, True, sys._getframe(3))

    def updated(self) -> None:
        if self.failure:
            return
        site = self._places.site(sys._getframe(3))
        event = self._event(Update, site)
        for subject in self._subjects.all:
            state = subject.track.node.state
            if state.unscaled is not None or state.stepped is not None:
                self._post(subject, event)

    def grouped(self, optimizer: Any) -> None:
        if not self.failure:
            self._subjects.changed(optimizer)
            self.sync.grouped(optimizer.param_groups[-1]["params"])
            self._here.lane.leave_lap()
            self._here.lane.pending.append(weakref.ref(optimizer))

    def fault(self, error: Exception) -> None:
        """Something of ours went wrong: say so once, and watch no more."""
        if isinstance(error, self.passing):
            raise error
        if self.failure is None:
            self.failure = error
            for subject in self._subjects.all:
                if subject.lane is not None:
                    subject.lane.leave_lap()
                    subject.lane.watched.clear()
                    subject.lane.outer.clear()
            if self.on_fault is not None:
                self.on_fault(error)

    # Laps

    def _expected_clear(self, lane: Lane, frame: Any, of: Any, to_none: bool) -> bool:
        """Whether a clear is the next turn of a lap; then it is taken."""
        turn = lane.turn
        if (
            turn.code is not frame.f_code
            or turn.instruction != frame.f_lasti
            or turn.kind is not Zero
            or turn.of != of
            or turn.to_none is not to_none
        ):
            return False
        self._follow(turn.track, turn.edge)
        turn.subject.weights = -1
        lane.watched.pop(turn.subject.name, None)
        lane.turn = turn.next
        return True

    def _call(self, frame: Any) -> Call:
        """Where a call stands, if that alone says what its event is."""
        return (frame.f_code, frame.f_lasti) if self._places.is_users(frame) else NO_CALL

    def _turned(self, subject: Subject, event: Event, call: Call, of: Any = 0) -> None:
        """An event has gone the ordinary way: it may be a turn of a lap."""
        lane = subject.lane
        if lane is not None and lane.trail is not None:
            here = len(lane.outer) == 1 and lane is self._here.lane
            # Whatever else was told of the subject since is no turn, and there is no lap.
            if here and call is not NO_CALL and lane.told == len(lane.trail) + 1 <= LONGEST_LAP:
                lane.trail.append(Turn(subject, event, call, of))
            else:
                lane.trail = None

    def _lap_ends(self, subject: Subject, event: Step, call: Call) -> None:
        lane = subject.lane
        self._turned(subject, event, call, subject.stepped_by)
        trail, before = lane.trail, lane.lap
        lane.trail, lane.lap, lane.told = [], trail, 0
        if trail and before and self._is_calm(subject, lane):
            trail[-1].keep(*self._subjects.groups(subject.stepped_by))
            lane.turn = joined(trail, before)

    def _is_calm(self, subject: Subject, lane: Lane) -> bool:
        """Whether there is nothing about a subject that has to be looked at in every lap."""
        windows = subject.track.windows
        return windows.steady and not (
            self.sync.active
            or self.scalers
            or self._length
            or self._judge.recorder
            or lane.pending
            or lane.scaling
            or windows.drops
            or windows.cuts
            or subject.met
            or subject.stale
            or subject.depth
            or subject.inside
            or subject.covers
            or subject.overlaps
            or subject.print is not None
            or subject.left is not None
            or not subject.plain
        )


MOST_CLIPS = 64
MOST_WALKS = 1024
