"""What a step uses of the gradients, and what a clear drops.

On the usual path neither looks at anything. A step that by the order of events has nothing to use, or
nothing new, is looked at: somebody may have put gradients there.
"""

from __future__ import annotations

import weakref
from typing import Any

from zerograd.core.events import Assign, Backward, Excuse, Step, Sync, Unknown, Zero
from zerograd.core.lifecycle import EMPTY, Grads
from zerograd.fold.judge import Judge
from zerograd.runtime import verify
from zerograd.runtime.call_sites import NOWHERE
from zerograd.runtime.gradient_probe import Looking
from zerograd.runtime.lanes import OUTSIDE
from zerograd.runtime.ranks.replicas import Replicas
from zerograd.runtime.subjects import Subject

NOBODY: frozenset[str] = frozenset()
STEPPED = object()
"""Inside of a step: another optimizer of the subject has stepped."""

# An attribute of an enumeration is looked up each time; a name of the module is not.
_LIVE, _SPENT = Grads.LIVE, Grads.SPENT


class Using(Looking):
    """Knows what becomes of gradients that are there."""

    def __init__(self, judge: Judge, torch: Any) -> None:
        super().__init__(judge, torch)
        self._backwards = 0
        self.replicas = Replicas(torch, self._names)
        self.on_step: Any = None
        """Is told how many steps there were, where ranks share what they step."""

    def _step(self, subject: Subject, scaled: bool, frame: Any) -> Step | None:
        """A step, as it is told; None if it is one of which little can be said."""
        lane = self._here.lane
        if self._graph_task() != OUTSIDE:
            self._inner_step(subject, scaled, frame)
            return None
        event = self._events.step(frame, scaled, self._length)
        if subject.lane is not lane and not self._adopt(subject):
            self._post(subject, event)
            self._post(subject, self._event(Unknown, NOWHERE))
            return None
        grads = subject.track.node.grads
        grad = subject.probe.grad
        if subject.inside is not None and subject.inside is not STEPPED:
            # It has cleared its gradients itself, after it had used them.
            clear, subject.inside = subject.inside, None
            self._post(subject, event)
            self._post(subject, clear)
            return None
        if self.sync.active and self._shared_step(subject, event):
            pass  # there is something, and no rank has shared it
        elif grad is None or (grads is not _LIVE and (grads in EMPTY or grads is _SPENT)):
            event = self._look_at_step(subject, event)
            grad = subject.probe.grad
        elif subject.track.windows.drops and self._rewritten(subject):
            # What was dropped was read before, and went into what is there now.
            self._post(subject, self._event(Assign, event.site))
        if subject.print is not None:
            subject.print = verify.norms(verify.holding(subject.params))
        self._post(subject, event)
        if subject.met:
            self._settle(subject)
        subject.left = None
        if subject.stale:
            subject.stale = []
        if grad is None:
            subject.used = None
        else:
            subject.used = weakref.ref(grad)
            lane.watched[subject.name] = subject
        for other in lane.outer:
            if other is not subject:
                self._foreign_step(other, subject, event)
        subject.company = NOBODY
        if self.sync.active and self.on_step is not None:
            self.on_step(self._judge.steps)
        return event

    def _shared_step(self, subject: Subject, event: Step) -> bool:
        """What ranks have to say before a step; True if the gradients are where no step sees them."""
        for diverged in self.replicas.found(subject):
            seen = self._event(Sync, event.site)
            self._post(subject, self._variant(seen, diverged=diverged))
        told = self.sync.before_step(subject)
        if told is not None:
            self._post(subject, told)
        return isinstance(told, Backward)

    def _inner_step(self, subject: Subject, scaled: bool, frame: Any) -> None:
        """A step inside a backward: an optimizer that steps as soon as its gradient is there."""
        event = self._events.step(frame, scaled)
        self._post(subject, event)
        subject.left, subject.stale = None, []
        subject.used = None
        if subject.lane is None:
            subject.lane = self._here.lane
        subject.lane.outer = [one for one in subject.lane.outer if one is not subject]
        subject.lane.watched[subject.name] = subject

    def _look_at_step(self, subject: Subject, event: Step) -> Step:
        """A step that, by the order of events, has nothing to use, or nothing new."""
        state = subject.track.node.state
        held = verify.holding(subject.params)
        if not held:
            return self._empty(subject, event)
        if subject.probe.grad is None:
            subject.probe = held[0]
        if state.grads in EMPTY:
            if not verify.nonzero(held):
                return self._empty(subject, event)
            self._post(subject, self._event(Assign, event.site))
        elif state.grads is Grads.SPENT:
            prints = verify.norms(held)
            same, subject.print = prints == subject.print, prints
            # A step that is measured, or two optimizers over the same gradients, are meant.
            alike = same and any(prints) and subject.same_optimizer
            goes_on, subject.repeated_at = subject.repeated_at != self._backwards, self._backwards
            if not alike or not goes_on:
                self._post(subject, self._event(Assign, event.site))
        return event

    def _rewritten(self, subject: Subject) -> bool:
        """Whether the gradients are not those that the last backward has left, clips aside."""
        state = subject.track.node.state
        grad, filled = subject.probe.grad, subject.filled
        if filled is None or grad is None or filled() is not grad:
            return True
        known = state.clipped is not None or state.unscaled is not None
        return grad._version != subject.filled_version and not known

    def _empty(self, subject: Subject, event: Step) -> Step:
        """A step with nothing to use: from the second time, if no backward ran in between."""
        if not any(param.requires_grad for param in subject.params):
            self._post(subject, self._event(Unknown, event.site))
            return event
        if subject.track.node.grads not in EMPTY:
            self._post(subject, self._event(Zero, NOWHERE, excuse=Excuse.UNSEEN))
            subject.company = frozenset()
        again = subject.empty_at == self._backwards
        subject.empty_at = self._backwards
        return self._variant(event, fed=False, again=True) if again else event

    def _foreign_step(self, other: Subject, subject: Subject, event: Step) -> None:
        if other in subject.covers or other in subject.overlaps:
            shared = {id(param) for param in subject.params}
            if other.left is not None or other.name not in other.lane.watched:
                shared |= {id(param) for param in other.left or ()}
                left = [param for param in other.params if id(param) in shared]
            else:
                left = other.params
            other.left = left
            other.lane.watched[other.name] = other
            self._post(other, self._variant(event, foreign=True, part=True))
            return
        if subject.name not in other.company or other.name not in subject.company:
            return  # no backward that is still there has reached both
        if not verify.holds(subject.probe):
            return  # cleared by hand: the step has used nothing
        before = other.track.node
        self._post(other, self._variant(event, foreign=True))
        if other.track.node is not before and other.track.node.state.lent is not None:
            other.lane.watched[other.name] = other

    def _clear(self, subject: Subject, event: Zero) -> None:
        if subject.depth:
            event = self._variant(event, excuse=Excuse.IN_STEP)
        elif (
            subject.weights >= 0 and subject.track.node.grads is not _SPENT and self._moved(subject)
        ):
            # Something was done with the gradients: the weights are not what they were.
            event = self._variant(event, excuse=Excuse.WEIGHTS_MOVED)
        if subject.depth and subject.inside is not STEPPED:
            self._post_later(subject, event)
        else:
            self._post(subject, event)
        if subject.met:
            self._settle(subject)
        subject.left, subject.weights, subject.company = None, -1, NOBODY
        if subject.stale:
            subject.stale = []
        self._rest(subject)

    def _moved(self, subject: Subject) -> bool:
        if subject.weights != subject.probe._version:
            return True
        weighed, subject.weighed = subject.weighed, None
        # Writing through `.data` leaves the version as it is.
        return weighed is not None and not self._torch.equal(weighed, subject.probe.detach())

    def _before_clip(self, subject: Subject) -> None:
        """A clip of what may have been cleared unseen says nothing."""
        self._post_clear_of_step(subject)
        if subject.track.node.grads is Grads.SPENT:
            held = verify.holding(subject.params)
            if not held or not verify.nonzero(held):
                self._post(subject, self._event(Unknown, NOWHERE))
        elif subject.track.node.grads in EMPTY and verify.holding(subject.params):
            if verify.nonzero(verify.holding(subject.params)):
                self._post(subject, self._event(Assign, NOWHERE))
