"""What a gradient scaler does: which losses it multiplies, which gradients it divides, what it skips."""

from __future__ import annotations

import weakref
from typing import Any

from zerograd.core.events import Assign, Step, Unscale, Update
from zerograd.runtime import autograd_graph
from zerograd.runtime.call_sites import NOWHERE, Places
from zerograd.runtime.event_cache import EventCache
from zerograd.runtime.lanes import Lanes
from zerograd.runtime.posting import Posting
from zerograd.runtime.subjects import Subject

MOST_CALLS = 1024
ENOUGH_WALKS = 3
"""After so many losses of a call that no scaler had multiplied, the graph is not walked any more."""


class Scaling:
    """Posts what scalers do to subjects. The frames are those of the user's calls."""

    def __init__(self, places: Places, events: EventCache, posting: Posting, lanes: Lanes) -> None:
        self._places = places
        self._event = events.event
        self._posting = posting
        self._post = posting.post
        self._lanes = lanes
        self.active = False
        """Whether a scaler was used."""
        self._scaler: weakref.ref[Any] | None = None
        self._walks: dict[object, list[bool | None]] = {}
        """By call: whether the last losses whose graphs were walked had been scaled."""

    def last_scaler(self) -> Any:
        """The scaler that has stepped last; None if there is none any more."""
        return None if self._scaler is None else self._scaler()

    def is_scaled(self, outputs: Any, frame: Any) -> bool | None:
        """Whether a scaler has multiplied the loss; None if that cannot be seen."""
        if not outputs:
            return None
        if autograd_graph.is_marked(outputs[0]):
            return True
        if len(self._walks) >= MOST_CALLS:
            self._walks.clear()
        walks = self._walks.setdefault((frame.f_code, frame.f_lasti), [])
        if len(walks) < ENOUGH_WALKS or walks[0] is not False:
            walks[ENOUGH_WALKS - 1 :] = []
            walks.insert(0, autograd_graph.scaled_by_a_scaler(outputs[0]))
        return walks[0]

    def scaled(self, outputs: Any) -> None:
        """A scaler has multiplied a loss, or several."""
        self.active = True
        self._lanes.here.lane.loop.leave()
        for output in outputs if isinstance(outputs, (list, tuple)) else (outputs,):
            autograd_graph.mark_scaled(output)

    def unscaling(self, optimizer: Any, frame: Any) -> None:
        """A scaler is about to divide the gradients of an optimizer; in its step, that is part of it."""
        if self._lanes.here.lane.scaling is None:
            subject = self._lanes.subjects.of(optimizer)
            if subject is not None:
                self._count_anew(subject, optimizer)
                self._post(subject, self._event(Unscale, self._places.site(frame), scaled=True))

    def step_begins(self, scaler: Any, optimizer: Any, frame: Any) -> None:
        """A scaler is about to step an optimizer."""
        self._scaler = weakref.ref(scaler)
        self._lanes.here.lane.scaling = optimizer
        subject = self._lanes.subjects.of(optimizer)
        if subject is None:
            return
        self._count_anew(subject, optimizer)
        if subject.track.node.state.stepped is not None:
            # torch raises now, before any hook of the step: it uses nothing.
            site = self._places.site(frame)
            self._post(subject, self._event(Assign, site))
            self._post(subject, self._event(Step, site, scaled=True))
        self._posting.release(subject)
        subject.stepping.inner_stepped = False

    def step_ended(self, optimizer: Any, failed: bool) -> Subject | None:
        """A scaler has stepped an optimizer; the subject if it has skipped the step: inf or nan."""
        subject = self._lanes.subjects.of(optimizer)
        lane = self._lanes.here.lane
        stepping, lane.scaling = lane.scaling, None
        if subject is None or failed or stepping is None:
            return None
        return subject if subject.track.node.state.stepped is None else None

    def updated(self, frame: Any) -> None:
        """A scaler has updated its scale: its round is over for all subjects."""
        event = self._event(Update, self._places.site(frame))
        for subject in self._lanes.subjects.all:
            state = subject.track.node.state
            if state.unscaled is not None or state.stepped is not None:
                self._post(subject, event)

    def _count_anew(self, subject: Subject, optimizer: Any) -> None:
        """A scaler keeps count by optimizer: what it did for another one of the subject's is past."""
        if subject.stepping.scaled_optimizer not in (0, id(optimizer)):
            self._post(subject, self._event(Update, NOWHERE))
        subject.stepping.scaled_optimizer = id(optimizer)
