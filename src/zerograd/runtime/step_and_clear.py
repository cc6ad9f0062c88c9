"""What a step uses of the gradients, and what a clear drops.

On the usual path neither looks at any gradient. If by the order of events a step has nothing to use, or nothing
new, the gradients are looked at: the program may have put some there.
"""

from __future__ import annotations

import math
import weakref
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from zerograd.core.events import Assign, Backward, Excuse, Measured, Site, Step, Sync, Unknown, Zero
from zerograd.core.lifecycle import EMPTY, Grads, Scale
from zerograd.runtime.call_sites import NOWHERE
from zerograd.runtime.event_cache import EventCache
from zerograd.runtime.finite_check import FiniteCheck
from zerograd.runtime.gradient_values import (
    any_holds,
    begins_with_a_number,
    holding,
    holds,
    nonzero,
    norms,
)
from zerograd.runtime.lanes import Lanes
from zerograd.runtime.missing_detach import MissingDetach
from zerograd.runtime.optimizer_lives import OptimizerLives
from zerograd.runtime.parameter_names import MOST_NAMES
from zerograd.runtime.posting import Posting
from zerograd.runtime.ranks.replicas import Replicas
from zerograd.runtime.ranks.sync import RankSync
from zerograd.runtime.steady_loop import OUTSIDE
from zerograd.runtime.step_guards import StepGuards
from zerograd.runtime.subjects import NOBODY, Subject

ENOUGH_LOST = 3
"""If so many steps have nothing to use, and every step so far had nothing, it is not an accident."""
SAME = 1e-4
"""Factors that differ by less are the same factor."""

# An attribute of an enumeration is looked up each time; a name of the module is not.
_LIVE, _SPENT = Grads.LIVE, Grads.SPENT


@dataclass(eq=False, repr=False)
class StepAndClear:
    """Posts the steps and clears of subjects, and the events that come before them."""

    _torch: Any
    _events: EventCache
    _posting: Posting
    _lanes: Lanes
    _sync: RankSync
    _replicas: Replicas
    _finite: FiniteCheck
    _detach: MissingDetach
    _lives: OptimizerLives
    _guards: StepGuards
    _backwards: Callable[[], int]
    """Counts the backward calls so far."""
    _stepped: Callable[[], None]
    """It is called when a rank steps."""
    length: int = 0
    """How many backward calls a window is meant to have, as the user says; 0 if the user says nothing."""

    def __post_init__(self) -> None:
        self._graph_task = self._torch._C._current_graph_task_id
        self._post = self._posting.post

    def expect(self, length: int) -> None:
        """From now on windows are meant to be so long."""
        self.length = length

    # Around a backward

    def backward_in_step(self, subject: Subject) -> None:
        """A backward begins while the subject steps: if it was cleared, it had not used anything."""
        self._posting.release(subject)
        subject.stepping.inner_stepped, subject.stepping.measured = False, None

    def backward_reached(self, subject: Subject) -> None:
        """A backward has reached the probe of a subject."""
        param, last, windows = subject.probe.param, subject.last_backward, subject.track.windows
        last.weights_version, last.weights, last.finite = param._version, None, True
        last.held = subject.whole and begins_with_a_number(param.grad)
        if windows.cuts or subject.stepping.lost:
            last.weights = param.detach().clone()
        if windows.cuts:
            last.finite = all(map(math.isfinite, norms(holding(subject.params))))
        if windows.drops and param.grad is not None:
            last.grad = weakref.ref(param.grad)
            last.grad_version = param.grad._version

    # Steps

    def begin_step(self, subject: Subject, optimizer: Any) -> None:
        """An optimizer of a subject is about to step."""
        stepping = subject.stepping
        stepping.depth += 1
        if stepping.depth == 1:
            stepping.inner_stepped = False
            stepping.began_at = self._backwards()
            self._lives.step_begins(optimizer, subject.params[0], subject.track)
            if not stepping.has_used and self._are_gone(subject):
                stepping.has_used = subject.last_backward.have_weights_moved(subject.probe.param)
                stepping.lacks = not stepping.has_used
            if self._sync.active:
                self._replicas.step_begins(subject, self._sync.stepping(subject), optimizer)

    def end_step(self, subject: Subject, optimizer: Any, scaled: bool, frame: Any) -> Step | None:
        """It has stepped: the event, or None if too little is known about the step."""
        stepping = subject.stepping
        stepping.depth -= 1
        if stepping.inner_stepped and stepping.depth == 0:
            stepping.inner_stepped = False
            return None  # the optimizer inside has stepped, and this one wraps it
        stepping.same_optimizer = stepping.optimizer == id(optimizer)
        stepping.optimizer = id(optimizer)
        inside = stepping.began_at != self._backwards()
        remade = self._lives.step_ended(optimizer, subject.params[0], inside=inside)
        event = self.step(subject, scaled, frame, remade=remade)
        stepping.inner_stepped = stepping.depth > 0
        return event

    def skip(self, subject: Subject, frame: Any) -> None:
        """A scaler has skipped a step. The gradients are used up all the same."""
        self.step(subject, True, frame, skipped=True)

    def step(
        self,
        subject: Subject,
        scaled: bool,
        frame: Any,
        *,
        skipped: bool = False,
        remade: Site | None = None,
    ) -> Step | None:
        """A step was taken: the event, or None if too little is known about it."""
        if self._graph_task() != OUTSIDE:
            self._step_in_backward(subject, scaled, frame)
            return None
        lane = self._lanes.here.lane
        event = self._event(subject, scaled, frame, skipped=skipped)
        if remade is not None:
            event = self._events.variant(event, remade=remade)
        if subject.lane is not lane and not self._lanes.adopt(subject):
            self._post(subject, event)
            self._post(subject, self._events.event(Unknown, NOWHERE))
            return None
        clear = subject.stepping.held_clear
        if clear is not None:
            # It has cleared its gradients itself, after it had used them.
            subject.stepping.held_clear = None
            self._post(subject, event)
            self._post(subject, clear)
            return None
        grads, stepping = subject.track.node.grads, subject.stepping
        grad = subject.probe.param.grad
        lacks, stepping.lacks = stepping.lacks, False
        stepping.has_used |= grad is not None and not lacks
        if self._sync.active and self._say_what_ranks_share(subject, event):
            pass  # there are gradients, and no rank has shared them
        elif lacks:
            event = self._empty(subject, self._with_lost(subject, event))
        elif grad is None or (grads is not _LIVE and (grads in EMPTY or grads is _SPENT)):
            event = self._look_at_step(subject, event)
            grad = subject.probe.param.grad
        elif subject.track.windows.drops and self._rewritten(subject):
            # The program has read what was dropped, and computed the present gradients from it.
            self._post(subject, self._events.event(Assign, event.site))
        windows = subject.track.windows
        if windows.drops or 1 < windows.open != windows.usual:
            # It is unlike the last windows: what decides about its end is read.
            event = self._events.variant(event, decided=self._guards.of(frame))
        event = self._looked_at(subject, event, scaled=scaled)
        self._post(subject, event)
        used = subject.used
        if used.met:
            used.came_to_nothing()
        used.left, used.mixed = None, []
        used.sum.forget()
        if grad is None:
            used.grad = None
        else:
            used.grad = weakref.ref(subject.probe.identity(grad))
            used.version = subject.probe.version(grad)
            lane.used[subject.name] = subject
        for other in lane.probed:
            if other is not subject:
                self._step_of_another(other, subject, event)
        used.company = NOBODY
        if self._sync.active:
            self._stepped()
        return event

    def _event(self, subject: Subject, scaled: bool, frame: Any, *, skipped: bool) -> Step:
        """The event of a step, with what was looked at for it."""
        event = self._events.step(frame, scaled, self.length)
        finite = None if skipped else self._finite.of_step(subject)
        if skipped or finite is not None:
            event = self._events.variant(event, finite=finite, skipped=skipped)
        if subject.lane is not None and len(subject.lane.probed) > 1:
            if self._detach.stepped(subject):
                event = self._events.variant(event, leaked=True)
        return event

    def _with_repeated(self, subject: Subject, event: Step) -> Step:
        """The event of a step, with the parameters whose used gradients are used once more."""
        stepping, state = subject.stepping, subject.track.node.state
        before, stepping.left = stepping.left, {}
        if state.grads is not _LIVE or state.used is None or subject.covers or subject.overlaps:
            return event
        new = {id(param) for param, _ in subject.used.mixed}
        held = [one for one in holding(subject.used.left or ()) if id(one) not in new]
        now = {id(one): norm for one, norm in zip(held, norms(held), strict=True) if norm}
        stepping.left = now
        factors = {now[key] / norm for key, norm in before.items() if key in now}
        same = factors == {1.0}
        if state.clipped is not None and len(now) > 1 and factors:
            same = max(factors) - min(factors) < SAME  # a clip changes all of them by one factor
        repeated = [one for one in held if id(one) in now and id(one) in before]
        if not repeated or not same or not stepping.same_optimizer:
            return event
        names = tuple(subject.names(repeated)[:MOST_NAMES])
        return self._events.variant(event, repeated=names, repeated_count=len(repeated))

    def _looked_at(self, subject: Subject, event: Step, *, scaled: bool) -> Step:
        """The event of a step with what it uses. What a later step is compared with is noted."""
        if subject.used.sum.concerned:
            event = self._with_numbers(subject, event, scaled=scaled)
        if subject.used.left or subject.stepping.left:
            event = self._with_repeated(subject, event)
        stepping, state = subject.stepping, subject.track.node.state
        by_hand = state.backward is None or state.backward.may
        if stepping.norms is not None or (by_hand and state.grads is _LIVE):
            stepping.norms = _norms(subject)
        stepping.clipped = state.clipped is not None or state.grads is Grads.UNKNOWN
        return event

    def _with_numbers(self, subject: Subject, event: Step, *, scaled: bool) -> Step:
        """The event of a step, with the numbers if it uses gradients that are not meant for it."""
        measured, subject.stepping.measured = subject.stepping.measured, None
        if not (subject.used.mixed or subject.track.node.crossed is not None or event.leaked):
            return event
        measured = measured or self._measured(subject, scaled=scaled)
        return event if measured is None else self._events.variant(event, measured=measured)

    def measure(self, subject: Subject, optimizer: Any, *, scaled: bool) -> None:
        """A step is about to use more than it should: its optimizer may change the gradients."""
        if getattr(optimizer, "grad_scale", None) is None:  # else it divides them itself
            subject.stepping.measured = self._measured(subject, scaled=scaled)

    def _measured(self, subject: Subject, *, scaled: bool) -> Measured | None:
        state = subject.track.node.state
        divided = scaled or state.scale is not Scale.PLAIN or state.unscaled is not None
        return subject.measured(divided=divided)

    def _say_what_ranks_share(self, subject: Subject, event: Step) -> bool:
        """Post what ranks have shared before a step; True if they keep gradients where no step sees them."""
        for diverged in self._replicas.found(subject):
            seen = self._events.event(Sync, event.site)
            self._post(subject, self._events.variant(seen, diverged=diverged))
        shared = self._sync.before_step(subject)
        if shared is not None:
            self._post(subject, shared)
        return isinstance(shared, Backward)

    def _step_in_backward(self, subject: Subject, scaled: bool, frame: Any) -> None:
        """A step inside a backward: an optimizer that steps as soon as its gradient is there."""
        self._post(subject, self._events.step(frame, scaled))
        subject.used.left, subject.used.mixed, subject.used.grad = None, [], None
        subject.used.sum.forget()
        if subject.lane is None:
            subject.lane = self._lanes.here.lane
        subject.lane.probed = [one for one in subject.lane.probed if one is not subject]
        subject.lane.used[subject.name] = subject

    def _look_at_step(self, subject: Subject, event: Step) -> Step:
        """A step that, by the order of events, has nothing to use, or nothing new."""
        grads, stepping = subject.track.node.grads, subject.stepping
        held = holding(subject.params)
        if not held:
            return self._empty(subject, event)
        if subject.probe.param.grad is None:
            subject.probe.param = held[0]
        if grads in EMPTY:
            if not nonzero(held):
                return self._empty(subject, event)
            self._post(subject, self._events.event(Assign, event.site))
        elif grads is _SPENT:
            now = _norms(subject)
            same, stepping.norms = _are_of(now, stepping.norms), now
            # A step that is measured, or two optimizers over the same gradients, are meant.
            again = same and any(now.values()) and stepping.same_optimizer
            backwards = self._backwards()
            goes_on, stepping.repeated_at = stepping.repeated_at != backwards, backwards
            if not again or not goes_on:
                self._post(subject, self._events.event(Assign, event.site))
        return event

    def _rewritten(self, subject: Subject) -> bool:
        """Whether the gradients are not those that the last backward has left, clips aside."""
        state, last = subject.track.node.state, subject.last_backward
        grad = subject.probe.param.grad
        if last.grad is None or grad is None or last.grad() is not grad:
            return True
        known = state.clipped is not None or state.unscaled is not None
        return grad._version != last.grad_version and not known

    def _empty(self, subject: Subject, event: Step) -> Step:
        """A step with nothing to use: from the second time, if no backward ran in between."""
        if not any(param.requires_grad for param in subject.params):
            # Nothing is known about them any more, and this step has nothing to use.
            self._post(subject, self._events.event(Unknown, event.site))
            self._post(subject, self._events.event(Zero, NOWHERE, excuse=Excuse.UNSEEN))
            return event
        if subject.track.node.grads not in EMPTY:
            self._post(subject, self._events.event(Zero, NOWHERE, excuse=Excuse.UNSEEN))
            subject.used.company = NOBODY
        backwards, stepping = self._backwards(), subject.stepping
        again = stepping.empty_at == backwards and stepping.handled
        stepping.empty_at, stepping.handled = backwards, False
        return self._events.variant(event, fed=False, again=True) if again else event

    def _are_gone(self, subject: Subject) -> bool:
        """Before a step: whether the gradients of the last backward are gone, although no call has cleared them."""
        state = subject.track.node.state
        if state.grads is not _LIVE or state.backward is None or state.backward.may:
            return False
        if not subject.whole or subject.covers or subject.overlaps or self._sync.active:
            return False  # they may be in another form, or another optimizer or rank has them
        grad = subject.probe.param.grad
        if grad is None:
            return not holding(subject.params)
        if not subject.last_backward.held or begins_with_a_number(grad):
            return False
        return not any_holds(subject.params)

    def _with_lost(self, subject: Subject, event: Step) -> Step:
        """The event of a step whose gradients are gone, with the backward if that is no accident."""
        stepping, state = subject.stepping, subject.track.node.state
        stepping.lost += 1
        if stepping.lost < ENOUGH_LOST or state.backward is None:
            return event
        return self._events.variant(event, lost=state.backward.site)

    def _step_of_another(self, other: Subject, subject: Subject, event: Step) -> None:
        """A step of a subject may have used gradients of another one of the same thread."""
        if other in subject.covers or other in subject.overlaps:
            left = other.params
            if other.used.left is not None or other.name not in other.lane.used:
                ids = subject.ids | {id(param) for param in other.used.left or ()}
                left = [param for param in other.params if id(param) in ids]
            other.used.left = left
            other.lane.used[other.name] = other
            self._post(other, self._events.variant(event, foreign=True, part=True))
            return
        if subject.name not in other.used.company or other.name not in subject.used.company:
            return  # no backward whose gradients are still there has reached both
        if not holds(subject.probe.param):
            return  # cleared by hand: the step has used nothing
        before, state = other.track.node, other.track.node.state
        through = self._detach.passes(state.backward, other, subject)
        if state.mixed is not None and state.mixed != state.backward:
            through = False  # what was added to used gradients first was not for this step
        self._post(other, self._events.variant(event, foreign=True, through=through))
        if other.track.node is not before and other.track.node.state.lent is not None:
            other.lane.used[other.name] = other
            self._detach.lent(other, subject)

    # Clears and clips

    def clear(self, subject: Subject, event: Zero, frame: Any) -> None:
        """The gradients of a subject were cleared, by the user's call above a frame."""
        stepping = subject.stepping
        stepping.handled = True
        if stepping.depth:
            event = self._events.variant(event, excuse=Excuse.IN_STEP)
        elif subject.track.node.grads is not _SPENT and subject.last_backward.have_weights_moved(
            subject.probe.param
        ):
            # The gradients were used: the weights have changed.
            event = self._events.variant(event, excuse=Excuse.WEIGHTS_MOVED)
        elif subject.track.windows.open and subject.track.node.grads is _LIVE:
            if not subject.last_backward.finite:
                event = self._events.variant(event, excuse=Excuse.NOT_FINITE)
            elif self._guards.chooses(frame):
                event = self._events.variant(event, excuse=Excuse.CHOSEN)
        if stepping.depth and not stepping.inner_stepped:
            self._posting.hold(subject, event)
        else:
            self._post(subject, event)
        if subject.used.met:
            subject.used.came_to_nothing()
        subject.emptied()

    def before_clip(self, subjects: list[Subject], *, strangers: bool) -> list[Subject]:
        """A clip of some subjects, and of parameters of others: those of the subjects that it is meant for."""
        subjects = [one for one in subjects if any(param.requires_grad for param in one.params)]
        for subject in subjects:
            self._before_clip(subject)
        if strangers or any(one.track.node.grads is _LIVE for one in subjects):
            # One call clips for all phases: a subject that was clipped before its last step is not meant.
            return [
                one
                for one in subjects
                if one.track.node.grads is not _SPENT or not one.stepping.clipped
            ]
        return subjects

    def _assigned(self, subject: Subject) -> bool:
        """Whether the gradients are not those that the last step has used: put there by hand."""
        used, norms_then, probe = subject.used, subject.stepping.norms, subject.probe
        grad = probe.param.grad
        if norms_then is not None:
            return not _are_of(_norms(subject), norms_then)
        if grad is None or not any_holds([probe.param]):
            return False  # some are cleared: the step has used the rest
        if used.grad is None or used.grad() is not probe.identity(grad):
            return True
        return used.version >= 0 and probe.version(grad) != used.version

    def _before_clip(self, subject: Subject) -> None:
        """The program may have cleared or set the clipped gradients by hand."""
        self._posting.release(subject)
        grads = subject.track.node.grads
        subject.stepping.handled = True
        subject.used.sum.clips(subject.params)
        if grads is _SPENT:
            if not any_holds(subject.params):
                self._post(subject, self._events.event(Unknown, NOWHERE))
            elif self._assigned(subject):
                self._post(subject, self._events.event(Assign, NOWHERE))
            subject.used.version = -1  # the clip changes it
        elif grads in EMPTY and any_holds(subject.params):
            self._post(subject, self._events.event(Assign, NOWHERE))
        elif grads is _LIVE and subject.track.windows.drops and self._rewritten(subject):
            # After the clip that would not be seen any more.
            if any_holds(subject.params):
                self._post(subject, self._events.event(Assign, NOWHERE))


def _norms(subject: Subject) -> dict[int, float]:
    """The norms of all gradients that a subject holds, by the identity of the parameter."""
    held = holding(subject.params)
    return dict(zip(map(id, held), norms(held), strict=True))


def _are_of(now: dict[int, float], then: dict[int, float] | None) -> bool:
    """Whether gradients are those that a step has used, or a part of those."""
    return then is not None and all(then.get(key) == norm for key, norm in now.items() if norm)
