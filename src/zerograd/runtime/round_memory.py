"""What the subjects of one thread remember between two calls of a round that they share.

In a GAN the calls of a round concern several subjects: a backward adds to the gradients of one and of
the other, and a step uses what another's backward has left. If a round begins and ends with the same
memories, then the next round, with the same calls, goes through them again. So nothing is remembered
while it is followed, and a round that is left in the middle gets the memories that belong there.
"""

from __future__ import annotations

import weakref

from zerograd.runtime.gradient_values import begins_with_a_number, holding, holds
from zerograd.runtime.looks import Look, Versions
from zerograd.runtime.subjects import Subject


class SubjectMemory:
    """What one subject remembers after a call."""

    def __init__(self, subject: Subject) -> None:
        used, leak, stepping = subject.used, subject.leak, subject.stepping
        windows = subject.track.windows
        self.subject = subject
        self._used = subject.name in subject.lane.used
        self._weights = subject.last_backward.weights_version >= 0
        self._lists = (used.company, used.mixed, tuple(used.met), used.version < 0)
        self._leak = (leak.lender, leak.lent, leak.site, leak.apart, leak.together, frozenset(leak.returned))  # fmt: skip
        self._stepping = (stepping.depth, stepping.optimizer, stepping.same_optimizer, stepping.handled, stepping.clipped)  # fmt: skip
        self.key = (
            id(subject),
            id(subject.track.node),
            (windows.open, windows.usual, windows.steady),
            self._used,
            self._weights,
            used.company,
            tuple((id(param), id(event)) for param, event in used.mixed),
            tuple(map(id, used.met)),
            used.version < 0,
            used.count,
            self._leak,
            self._stepping,
            subject.cleared,
            id(subject.probe.param),
        )
        """Memories with the same key are the same."""

    def restore(self) -> None:
        """The subject remembers this again."""
        subject = self.subject
        used, leak, stepping = subject.used, subject.leak, subject.stepping
        used.company, used.mixed, met, unknown = self._lists
        used.met = list(met)
        if unknown:
            used.version = -1
        leak.lender, leak.lent, leak.site, leak.apart, leak.together, returned = self._leak
        leak.returned = set(returned)
        (stepping.depth, stepping.optimizer, stepping.same_optimizer, stepping.handled, stepping.clipped) = self._stepping  # fmt: skip
        if not self._weights:
            subject.last_backward.weights_version = -1
        if self._used:
            subject.lane.used[subject.name] = subject
        else:
            subject.lane.used.pop(subject.name, None)


def is_calm(subject: Subject) -> bool:
    """Whether a subject can remember the same in every round, and needs no other look."""
    used, leak, stepping, windows = (
        subject.used,
        subject.leak,
        subject.stepping,
        subject.track.windows,
    )
    return not (
        windows.drops
        or windows.cuts
        or used.left is not None
        or used.sum.began
        or leak.crossed
        or leak.kept
        or leak.rounds
        or stepping.inner_stepped
        or stepping.held_clear is not None
        or stepping.norms is not None
        or stepping.measured is not None
        or stepping.left
        or subject.finite.suspicious
        or subject.covers
        or subject.overlaps
        or not subject.whole
    )


class BackwardOnSubject:
    """What a backward did to one of the subjects that it is compared with."""

    def __init__(self, subject: Subject, look: Look | None) -> None:
        """`look` is what the subject was looked at with, if it held used gradients."""
        self.subject = subject
        self.hit = subject.probe.hit
        self._looked = None if look is None else look.params
        self._met = look is not None and bool(look.reached())
        self._look: Look | None = None

    @property
    def key(self) -> tuple[object, ...]:
        """Parts with the same key are alike."""
        few = None if self._looked is None else (len(self._looked), id(self._looked[0]))
        return id(self.subject), self.hit, self._met, few

    def begins(self, *, may_read: bool) -> bool:
        """The backward is about to run; False if the gradients are not as they were."""
        subject, probe = self.subject, self.subject.probe
        grad = probe.param.grad
        if self._looked is not None:
            used = subject.used.grad
            if grad is None or used is None or used() is not grad:
                return False  # cleared, or somebody has put another gradient there
            if len(holding(subject.params)) != len(subject.params):
                return False
            first = self._looked[0] if len(self._looked) < len(subject.params) else probe.param
            if not (begins_with_a_number(first.grad) or (may_read and holds(first))):
                return False
            self._look = Look(subject, self._looked, Versions(self._looked))
        probe.grad = grad
        probe.version_before = -1 if grad is None else grad._version
        return True

    def ends(self) -> bool:
        """The backward has run: whether it did to the subject what it did before."""
        probe = self.subject.probe
        now = probe.param.grad
        hit = now is not probe.grad or (now is not None and now._version != probe.version_before)
        return hit is self.hit and (self._look is None or bool(self._look.reached()) is self._met)

    def taken(self) -> None:
        """The backward did what it did before: update what the subject remembers."""
        subject, probe = self.subject, self.subject.probe
        grad, probe.grad = probe.param.grad, None
        self._look = None
        if self.hit:
            subject.last_backward.weights_version = probe.param._version
            used = subject.used
            if self._looked is not None and grad is not None and used.grad is not None:
                if used.grad() is not grad:
                    used.grad = weakref.ref(grad)

    def hand_over(self) -> list[Look]:
        """The backward leaves the loop: what the subject is looked at with."""
        look, self._look = self._look, None
        return [] if look is None else [look]
