"""What a backward meets: whether it reaches a subject, and whether it adds to gradients that were used.

On the usual path no gradient is looked at: one parameter, the probe, shows whether a backward reaches the
subject. Where a backward may meet gradients that a step has used, `GradientProbe` finds out which parameters
hold any, and which of those the backward reaches; once that has found nothing several times, it looks at one
parameter.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Collection, Sequence
from typing import TYPE_CHECKING, Any

from zerograd.core.events import Assign, Backward, Excuse, Unknown, Zero
from zerograd.core.lifecycle import EMPTY, Grads
from zerograd.runtime.call_sites import NOWHERE
from zerograd.runtime.event_cache import EventCache
from zerograd.runtime.gradient_values import (
    any_holds,
    begins_with_a_number,
    holding,
    holds,
    nonzero,
)
from zerograd.runtime.lanes import ThreadLane
from zerograd.runtime.looks import GradientHooks, Look, Versions, close
from zerograd.runtime.posting import Posting
from zerograd.runtime.ranks.sync import RankSync
from zerograd.runtime.subjects import NOBODY, USUAL, Meeting, Subject

if TYPE_CHECKING:
    from torch import Tensor


class GradientProbe:
    """Compares the gradients of subjects before and after each backward."""

    thorough = False
    """Whether to look also where nothing was found before: a recording has the numbers of every step."""

    def __init__(
        self, events: EventCache, posting: Posting, sync: RankSync, heard: Callable[..., Any]
    ) -> None:
        self._heard = heard
        self._event = events.event
        self._variant = events.variant
        self._post = posting.post
        self._annotate = sync.annotate

    def before(self, lane: ThreadLane, event: Backward) -> list[Look]:
        """A backward is about to run: what the subjects of its thread hold that was used."""
        for subject in lane.probed:
            probe, used = subject.probe, subject.used
            probe.grad = grad = probe.param.grad
            probe.version_before = -1 if grad is None else probe.version(grad)
            probe.cleared = None
            if probe.hit and subject.track.node.grads is Grads.LIVE:
                # The last backward has filled the probe, and no call has cleared it.
                if grad is None:
                    if not holding(subject.params):
                        self._unseen_clear(subject, to_none=True)
                elif subject.last_backward.held and not begins_with_a_number(grad):
                    if not any_holds(subject.params):
                        self._unseen_clear(subject, to_none=False)
            if used.company and not (holds(probe.param) or any_holds(subject.params)):
                used.company = NOBODY  # cleared by hand
        looks: list[Look] = []
        if lane.used:
            lane.looks = looks
            try:
                for subject in tuple(lane.used.values()):
                    look = self._look(subject, event)
                    if look is not None:
                        looks.append(look)
            except BaseException:
                close(looks)
                raise
        return looks

    def after(
        self, subjects: list[Subject], looks: Sequence[Look], event: Backward, *, failed: bool
    ) -> Collection[str]:
        """It has run: note which subjects it has reached; the names of those that it was posted for."""
        met = {look.subject.name for look in looks} if looks else ()
        for subject in subjects:
            probe = subject.probe
            grad, probe.grad = probe.grad, None
            now = probe.param.grad
            hit = now is not grad or (
                now is not None and probe.version(now) != probe.version_before
            )
            probe.hit = probe.reached = hit
            if not hit and not failed and subject.name not in met:
                probe.reached = self._fills(subject, event)
        if looks:
            try:
                for look in looks:
                    look.subject.probe.reached |= look.reaches_subject()
                alone = sum([subject.probe.reached for subject in subjects]) <= 1
                self._note_company(subjects)
                for look in looks:
                    self._meet(look, event, alone, failed)
            finally:
                close(looks)
        elif len(subjects) > 1:
            self._note_company(subjects)
        return met

    def before_step(self, subject: Subject) -> None:
        """Before a step that would use a sum of used and new gradients: see whether the sum is still there."""
        used = subject.used
        if used.mixed and self._is_replaced(subject):
            self._forget_sum(subject)
        elif used.mixed:
            self._keep_mixed(subject, nonzero(holding(param for param, _ in used.mixed)))
            if not used.mixed:
                self._post(subject, self._event(Unknown, NOWHERE))
                used.left = None
        elif subject.track.node.crossed is not None:
            if not any_holds(subject.params if used.left is None else used.left):
                # What the other optimizer's backward had left is gone.
                self._post(subject, self._event(Unknown, NOWHERE))

    def _forget_sum(self, subject: Subject) -> None:
        subject.used.mixed, subject.used.left = [], None
        self._post(subject, self._event(Assign, NOWHERE))
        subject.holds_nothing_used()

    def _is_replaced(self, subject: Subject) -> bool:
        """Whether the program has put other gradients in the place of a sum of used and new ones."""
        used, grad = subject.used, subject.probe.param.grad
        if grad is None or used.grad is None or used.grad() is subject.probe.identity(grad):
            return False
        return not used.sum.is_still_there(subject.params)

    def _look(self, subject: Subject, event: Backward) -> Look | None:
        """Before a backward: what the subject still holds that was used."""
        used, param = subject.used, subject.probe.param
        held = holding(subject.params if used.left is None else used.left)
        if not held:
            self._unseen_clear(subject, to_none=True)
            return None
        if used.grad is not None and subject.track.node.grads is Grads.SPENT:
            grad = param.grad
            if grad is not None and used.grad() is not subject.probe.identity(grad):
                # Not what the step has used: the program has put another gradient there.
                self._post(subject, self._event(Assign, event.site))
                subject.holds_nothing_used()
                return None
        if used.mixed and self._is_replaced(subject):
            self._forget_sum(subject)
            return None
        even = used.count == len(held) and not used.uneven and not self.thorough
        meeting = used.meetings.get(id(event)) if even else None
        if meeting is not None and meeting.harmless >= USUAL and not used.mixed:
            # It has always reached them, and they were always cleared before a step.
            few = meeting.reached[:1]
            if few and holds(few[0]):
                self._narrow(subject, held)
                return Look(subject, few, Versions(few, subject.probe.version))
        if meeting is not None and meeting.missed >= USUAL and subject.whole:
            if holds(param if param.grad is not None else held[0]):
                self._narrow(subject, held)
                return Look(subject, held, Versions(held, subject.probe.version))
        filled = nonzero(held)
        if not filled:
            self._unseen_clear(subject, to_none=False)
            return None
        used.uneven |= used.count not in (0, len(filled))
        used.count = len(filled)
        self._narrow(subject, filled)
        all_ = None if used.left is None else Versions(subject.params, subject.probe.version)
        if self._begins_sum(subject, event):
            used.sum.begin(filled)
        return Look(subject, filled, GradientHooks(filled, self._heard), all_)

    def _begins_sum(self, subject: Subject, event: Backward) -> bool:
        """Whether nothing that is there is meant for the next step, as far as is known."""
        state = subject.track.node.state
        if state.crossed is not None:
            return False
        return state.mixed is None or (state.others is not None and state.others[0] == state.mixed)

    def _narrow(self, subject: Subject, params: list[Tensor]) -> None:
        """Notes the parameters that may still hold used gradients; no others can from now on."""
        if len(params) < len(subject.params):
            subject.used.left = params
            self._keep_mixed(subject, params)

    def _unseen_clear(self, subject: Subject, *, to_none: bool) -> None:
        clear = self._event(Zero, NOWHERE, to_none=to_none, excuse=Excuse.UNSEEN)
        self._post(subject, clear)
        subject.emptied()
        subject.probe.cleared = clear

    def _meet(self, look: Look, event: Backward, alone: bool, failed: bool) -> None:
        """After a backward: whether it has added to what was used."""
        subject, used, exact = look.subject, look.subject.used, look.exact
        reached = look.reached()
        if failed:
            self._post(subject, self._event(Unknown, event.site))
            subject.holds_nothing_used()
            return
        meeting = used.meetings.get(id(event))
        if meeting is None:
            meeting = used.meetings[id(event)] = Meeting(event)
        if reached:
            used.met.append(meeting)
            if exact is not None:
                meeting.reached = reached
            elif len(look.params) == 1:
                # Only one was looked at, for all that were reached when all were looked at.
                reached = holding(meeting.reached)
            meeting.missed = 0
        else:
            meeting.missed = 0 if subject.probe.reached else meeting.missed + 1
        grad = subject.probe.param.grad
        used.grad = None if grad is None else weakref.ref(subject.probe.identity(grad))
        state = subject.track.node.state
        if reached or subject.probe.reached:
            event = self._annotate(subject, event)
        if state.grads is Grads.LIVE and not subject.cleared:
            alone = False  # what is never cleared is stale from the next step on, which says more
        if not reached:
            if used.left is not None and subject.probe.reached:
                self._post(subject, self._variant(event, leftover=False))
            elif state.lent is not None and state.grads is Grads.LIVE and subject.probe.reached:
                self._post(subject, self._variant(event, alone=alone))
            return
        if exact is not None and (state.grads is not Grads.LIVE or alone):
            used.sum.added(subject.params, reached, exact.brought(reached))
        if state.grads is Grads.LIVE and state.used is None:
            self._post(subject, self._variant(event, alone=alone))
            return
        mixing = self._variant(event, leftover=True, alone=alone)
        if exact is not None or not used.mixed:
            used.mixed = [*used.mixed, *((param, mixing) for param in reached)]
        self._post(subject, mixing)

    def _fills(self, subject: Subject, event: Backward) -> bool:
        """Whether a backward that has missed the probe has filled other gradients of a subject.

        Asked where there were none before: the first times of all parameters, later of the one
        that it has reached then.
        """
        state = subject.track.node.state
        if state.grads not in EMPTY and (state.backward is None or not state.backward.may):
            return False
        fills = subject.probe.fills
        known = fills.get(event, 0)
        if isinstance(known, int) and known >= USUAL:
            return False
        filled = nonzero(holding(subject.params if isinstance(known, int) else [known]))
        if filled:
            fills[event] = filled[0]
        elif isinstance(known, int):
            fills[event] = known + 1
        return bool(filled)

    def _note_company(self, subjects: list[Subject]) -> None:
        """Subjects that one backward has reached: the step of one uses what it left in the other."""
        reached = [subject for subject in subjects if subject.probe.reached]
        if len(reached) > 1:
            names = {subject.name for subject in reached}
            for subject in reached:
                subject.used.company |= names

    def _keep_mixed(self, subject: Subject, params: list[Tensor]) -> None:
        """Parts of a sum may have been cleared by hand: the first backward of the rest counts."""
        left = set(map(id, params))
        used = subject.used
        before = used.mixed
        used.mixed = [one for one in before if id(one[0]) in left]
        step = subject.track.node.state.used
        if not before or step is None:
            return
        if used.mixed and used.mixed[0][1] is before[0][1]:
            return
        self._post(subject, self._event(Zero, NOWHERE, excuse=Excuse.UNSEEN))
        self._post(subject, self._variant(step, foreign=True, part=True))
        if used.mixed:
            self._post(subject, used.mixed[0][1])
