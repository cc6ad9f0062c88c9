"""Looking at gradients around a backward: what it meets that was used, and what it makes of it.

On the usual path nothing is looked at. Where a backward may meet used gradients, this finds out which
hold anything, and which of those it really reaches; where that has come to nothing time and again, one
parameter stands for all of them.
"""

from __future__ import annotations

import weakref
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from zerograd.core.events import Assign, Backward, Excuse, Unknown, Zero
from zerograd.core.lifecycle import EMPTY, Grads
from zerograd.runtime import verify
from zerograd.runtime.call_sites import NOWHERE
from zerograd.runtime.lanes import Bookkeeper
from zerograd.runtime.subjects import Meeting, Subject, names_of

if TYPE_CHECKING:
    from torch import Tensor

USUAL = 3
"""After so many times in a row a meeting with used gradients that was harmless is expected."""


class Look:
    """One subject whose gradients this backward must not meet, and how it is found out."""

    __slots__ = ("means", "params", "subject", "whole")

    def __init__(
        self,
        subject: Subject,
        params: list[Tensor],
        means: Any,
        whole: verify.Versions | None = None,
    ) -> None:
        self.subject = subject
        self.params = params
        self.means = means
        self.whole = whole

    def reached(self) -> list[Tensor]:
        """The parameters that hold used gradients and were reached."""
        exact = isinstance(self.means, verify.Touch)
        found: list[Tensor] = self.means.reached() if exact else self.means.changed()
        return found

    def touches(self) -> bool:
        """Whether the subject was reached at all."""
        return bool(self.reached()) or (self.whole is not None and bool(self.whole.changed()))


class Looking(Bookkeeper):
    """Knows what the gradients of a subject hold, and what a backward has done to them."""

    def _look(self, subject: Subject, event: Backward) -> Look | None:
        """Before a backward: what the subject still holds that was used."""
        held = verify.holding(subject.params if subject.left is None else subject.left)
        if not held:
            self._unseen_clear(subject, to_none=True)
            return None
        probe = subject.probe.grad
        used = subject.used
        if used is not None and subject.track.node.grads is Grads.SPENT:
            if probe is not None and used() is not probe:
                # Not what the step has used: somebody has put another gradient there.
                self._post(subject, self._event(Assign, event.site))
                self._rest(subject)
                return None
        even = subject.held == len(held) and not subject.uneven
        meeting = subject.meetings.get(id(event)) if even else None
        if meeting is not None and meeting.harmless >= USUAL and not subject.stale:
            # It has always reached them, and that has always come to nothing.
            small = meeting.reached[:1]
            if small and verify.holds(small[0]):
                self._narrow(subject, held)
                return Look(subject, small, verify.Versions(small))
        if meeting is not None and meeting.missed >= USUAL and subject.plain:
            if verify.holds(subject.probe if probe is not None else held[0]):
                self._narrow(subject, held)
                return Look(subject, held, verify.Versions(held))
        nonzero = verify.nonzero(held)
        if not nonzero:
            self._unseen_clear(subject, to_none=False)
            return None
        subject.uneven |= subject.held not in (0, len(nonzero))
        subject.held = len(nonzero)
        self._narrow(subject, nonzero)
        whole = None if subject.left is None else verify.Versions(subject.params)
        return Look(subject, nonzero, verify.Touch(nonzero), whole)

    def _narrow(self, subject: Subject, params: list[Tensor]) -> None:
        """No others can hold used gradients any more, whatever is brought to them."""
        if len(params) < len(subject.params):
            subject.left = params
            self._keep_mixes(subject, params)

    def _unseen_clear(self, subject: Subject, *, to_none: bool) -> None:
        self._post(subject, self._event(Zero, NOWHERE, to_none=to_none, excuse=Excuse.UNSEEN))
        subject.left, subject.stale, subject.weights = None, [], -1
        subject.company = frozenset()
        self._rest(subject)

    def _meet(self, look: Look, event: Backward, alone: bool, failed: bool) -> None:
        """After a backward: whether it has added to what was used."""
        subject, means = look.subject, look.means
        exact = isinstance(means, verify.Touch)
        reached = look.reached()
        if failed:
            self._post(subject, self._event(Unknown, event.site))
            self._rest(subject)
            return
        meeting = subject.meetings.get(id(event))
        if meeting is None:
            meeting = subject.meetings[id(event)] = Meeting(event)
        if reached:
            subject.met.append(meeting)
            if exact:
                meeting.reached = reached
            elif len(look.params) == 1:
                # Asked was for one; it stands for those that were reached whenever all were asked.
                reached = verify.holding(meeting.reached)
            meeting.missed = 0
        else:
            meeting.missed = 0 if subject.touched else meeting.missed + 1
        subject.used = None if subject.probe.grad is None else weakref.ref(subject.probe.grad)
        state = subject.track.node.state
        if reached or subject.touched:
            event = self._told(subject, event)
        if not reached:
            if subject.left is not None and subject.touched:
                self._post(subject, self._variant(event, leftover=False))
            elif state.lent is not None and state.grads is Grads.LIVE and subject.touched:
                self._post(subject, self._variant(event, alone=alone))
            return
        numbers = None
        if exact and (state.grads is not Grads.LIVE or alone):
            numbers = verify.measured(means, reached, names_of(reached, self._names(subject)))
        if state.grads is Grads.LIVE and state.used is None:
            crossing = self._variant(event, alone=alone, measured=numbers)
            self._post(subject, crossing)
            return
        mixing = self._variant(event, leftover=True, alone=alone, measured=numbers)
        if exact or not subject.stale:
            subject.stale = [*subject.stale, *((param, mixing) for param in reached)]
        self._post(subject, mixing)

    def _reaches(self, subject: Subject, event: Backward) -> bool:
        """Whether a backward that has missed the probe has filled other gradients of a subject.

        Asked where there were none before: the first times of all parameters, later of the one
        that it has reached then.
        """
        state = subject.track.node.state
        if state.grads not in EMPTY and (state.backward is None or not state.backward.may):
            return False
        known = subject.entries.get(event, 0)
        if isinstance(known, int) and known >= USUAL:
            return False
        held = verify.holding(subject.params if isinstance(known, int) else [known])
        held = verify.nonzero(held) if held else []
        if held:
            subject.entries[event] = held[0]
        elif isinstance(known, int):
            subject.entries[event] = known + 1
        return bool(held)

    def _note_company(self, outer: list[Subject]) -> None:
        """Subjects that one backward has reached: the step of one uses what it left in the other."""
        reached = [subject for subject in outer if subject.touched]
        if len(reached) > 1:
            names = {subject.name for subject in reached}
            for subject in reached:
                subject.company |= names

    def _settle(self, subject: Subject) -> None:
        """What the subject's gradients have met is cleared, or told."""
        for meeting in set(subject.met):
            meeting.harmless += 1
        subject.met.clear()

    def _prune(self, subject: Subject) -> None:
        """Before the step that would use a mix: see whether it is still there."""
        held = verify.holding([param for param, _ in subject.stale])
        self._keep_mixes(subject, verify.nonzero(held) if held else [])
        if not subject.stale:
            self._post(subject, self._event(Unknown, NOWHERE))
            subject.left = None

    def _keep_mixes(self, subject: Subject, params: list[Tensor]) -> None:
        """Parts of a mix may have been cleared by hand: the first backward of the rest counts."""
        left = set(map(id, params))
        before = subject.stale
        subject.stale = [one for one in before if id(one[0]) in left]
        used = subject.track.node.state.used
        if not before or used is None:
            return
        if subject.stale and subject.stale[0][1] is before[0][1]:
            return
        self._post(subject, self._event(Zero, NOWHERE, excuse=Excuse.UNSEEN))
        self._post(subject, self._variant(used, foreign=True, part=True))
        if subject.stale:
            self._post(subject, subject.stale[0][1])


def close(looks: Sequence[Look]) -> None:
    """Leave no hook behind."""
    for look in looks:
        if isinstance(look.means, verify.Touch):
            look.means.remove()
