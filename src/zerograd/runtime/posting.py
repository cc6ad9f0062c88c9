"""Hands the events of subjects to the judge, in the order in which they count."""

from __future__ import annotations

from zerograd.core.events import Event, Zero
from zerograd.fold.judge import Judge
from zerograd.runtime.subjects import Subject


class Posting:
    """Posts events. An event that is posted goes the ordinary way: no loop is followed any more."""

    def __init__(self, judge: Judge) -> None:
        self._post = judge.post

    def post(self, subject: Subject, event: Event) -> None:
        """An event has happened to a subject."""
        lane = subject.lane
        if lane is not None:
            lane.loop.posted(subject, event)
        if subject.stepping.held_clear is not None:
            self.release(subject)
        self._post(subject.track, event)

    def hold(self, subject: Subject, clear: Zero) -> None:
        """A step clears its gradients: whether it has used them before shows when it goes on."""
        self.release(subject)
        lane = subject.lane
        if lane is not None:
            lane.loop.posted(subject, clear)
        subject.stepping.held_clear = clear

    def release(self, subject: Subject) -> None:
        """The running step goes on after its clear: it did not use the gradients before."""
        clear = subject.stepping.held_clear
        if clear is not None:
            subject.stepping.held_clear = None
            self._post(subject.track, clear)
