"""What a gradient scaler does: which losses it multiplies, which gradients it divides, what it skips."""

from __future__ import annotations

import math
import weakref
from typing import Any

from zerograd.core.events import Assign, Step, Unscale, Update
from zerograd.core.lifecycle import Scale
from zerograd.runtime import autograd_graph
from zerograd.runtime.call_sites import NOWHERE, CallSites
from zerograd.runtime.event_cache import EventCache
from zerograd.runtime.gradient_values import plain
from zerograd.runtime.lanes import Lanes
from zerograd.runtime.posting import Posting
from zerograd.runtime.subjects import Subject

MOST_CALLS = 1024
MOST_FRAMES = 8
ENOUGH_WALKS = 3
"""If no scaler had multiplied so many losses of a call, its graphs are not walked any more."""


class Scaling:
    """Posts what scalers do to subjects. The frames are those of the user's calls."""

    active = False
    """Whether a scaler was used."""
    _scaler: weakref.ref[Any] | None = None
    _unused = 0
    """How often something was scaled since the last backward of something scaled."""
    _handed_on = False
    """In this round, a scaled backward has filled tensors that are not parameters."""

    def __init__(
        self, places: CallSites, events: EventCache, posting: Posting, lanes: Lanes
    ) -> None:
        self._places = places
        self._event = events.event
        self._posting = posting
        self._post = posting.post
        self._lanes = lanes
        self._walks: dict[object, list[bool | None]] = {}
        """By call: whether the last losses that no scaler had marked were scaled all the same."""
        self._to_parameters: dict[object, list[bool]] = {}
        """By call: whether the backward of the first scaled losses fills parameters only."""

    def last_scaler(self) -> Any:
        """The scaler that has stepped last; None if there is none any more."""
        return None if self._scaler is None else self._scaler()

    def is_scaled(self, outputs: Any, gradients: Any, frame: Any) -> bool | None:
        """Whether a scaler has multiplied the loss; None if that cannot be seen."""
        if not outputs:
            return None
        if len(self._walks) + len(self._to_parameters) >= MOST_CALLS:
            self._walks.clear()
            self._to_parameters.clear()
        call = (frame.f_code, frame.f_lasti)
        if autograd_graph.is_marked(outputs[0]):
            self._unused = 0
            filled = self._to_parameters.setdefault(call, [])
            if len(filled) < ENOUGH_WALKS:
                # What it leaves in a tensor that is not a parameter may be handed on by the program.
                filled.append(all(map(self._is_parameter, autograd_graph.leaves(outputs))))
            self._handed_on |= not all(filled)
            return True
        walks = self._walks.setdefault(call, [])
        if autograd_graph.has_a_scaled_copy(outputs[0]):
            return False
        if len(walks) < ENOUGH_WALKS or walks[0] is not False:
            walks[ENOUGH_WALKS - 1 :] = []
            walks.insert(0, self._walked(outputs[0], gradients))
        if walks[0] is False and (self._unused or self._handed_on):
            return None  # something scaled was not back-propagated to parameters: it may be in this
        return walks[0]

    def _walked(self, output: Any, gradients: Any) -> bool | None:
        given = gradients[0] if gradients else None
        if given is not None and (given.numel() != 1 or float(given) != 1.0):
            return None  # the program has scaled the gradient itself, or brings one along
        scale = getattr(self.last_scaler(), "_scale", None)
        return autograd_graph.scaled_by_a_scaler(output, 1.0 if scale is None else float(scale))

    def _is_parameter(self, leaf: Any) -> bool:
        return self._lanes.subjects.owns(leaf)

    def scaled(self, scaler: Any, outputs: Any) -> None:
        """A scaler has multiplied a loss, or several."""
        self.active = True
        self._scaler = weakref.ref(scaler)
        self._unused += 1
        self._lanes.here.lane.loop.leave()
        for output in outputs if isinstance(outputs, (list, tuple)) else (outputs,):
            autograd_graph.mark_scaled(output)

    def unscale_begins(self, scaler: Any, optimizer: Any, frame: Any) -> None:
        """A scaler is about to divide the gradients of an optimizer. Inside its `step()`, that is part of the step."""
        if self._lanes.here.lane.scaling is None:
            subject = self._lanes.subjects.of(optimizer)
            if subject is not None:
                subject.leave_loop()
                self._follow_optimizer(subject, optimizer)
                self._catch_up(subject, scaler, optimizer)
                self._post(subject, self._event(Unscale, self._places.site(frame), scaled=True))

    def before_use(self, subject: Subject, frame: Any) -> None:
        """Gradients are about to be clipped, or used without a scaler. The program may have unscaled them itself."""
        scaler = self.last_scaler()
        if scaler is None or subject.track.node.state.scale is not Scale.SCALED:
            return
        stages = [_stage(scaler, owner) for owner in subject.owners]
        if "UNSCALED" in stages:
            self._post(subject, self._event(Unscale, NOWHERE, scaled=True))
        elif (
            _overrides(scaler, "unscale_")
            or _is_inside(scaler, frame)
            or self._divided_by_hand(subject, scaler)
        ):
            self._post(subject, self._event(Unscale, NOWHERE, scaled=None))
        subject.last_backward.scaled = None  # the clip changes it

    def backward_reached(self, subject: Subject) -> None:
        """The backward of a scaled loss has reached a subject."""
        last = subject.last_backward
        if last.sample is None:
            last.sample = min(subject.params, key=lambda param: param.numel())
        grad = last.sample.grad
        last.scaled = None if grad is None else plain(grad).clone()

    def _divided_by_hand(self, subject: Subject, scaler: Any) -> bool:
        """Whether gradients are much smaller than after the scaled backward: by more than the root of the scale."""
        last = subject.last_backward
        if last.scaled is None or last.sample is None or last.sample.grad is None:
            return False
        then, now = float(last.scaled.norm()), float(plain(last.sample.grad).norm())
        return then > now * math.sqrt(max(float(scaler.get_scale()), 1.0)) and then > now

    def _catch_up(self, subject: Subject, scaler: Any, optimizer: Any) -> None:
        """Post what a subclass of the scaler has done unseen: the stage that the scaler keeps shows it."""
        state, stage = subject.track.node.state, _stage(scaler, id(optimizer))
        known = "STEPPED" if state.stepped is not None else "UNSCALED" if state.unscaled else stage
        if known != stage:
            self._post(subject, self._event(Update, NOWHERE))
        if stage == "UNSCALED" and subject.track.node.state.unscaled is None:
            self._post(subject, self._event(Unscale, NOWHERE, scaled=True))
        # Until a scaler was seen, no loss was looked at.
        unseen, own = not self.active, _overrides(scaler, "scale")
        self.active |= not own
        if state.plain is not None and (unseen or own):
            self._post(subject, self._event(Unscale, NOWHERE, scaled=None))

    def step_begins(self, scaler: Any, optimizer: Any, frame: Any) -> None:
        """A scaler is about to step an optimizer."""
        self._scaler = weakref.ref(scaler)
        self._lanes.here.lane.scaling = optimizer
        subject = self._lanes.subjects.of(optimizer)
        if subject is None:
            return
        subject.leave_loop()
        self._follow_optimizer(subject, optimizer)
        self._catch_up(subject, scaler, optimizer)
        if subject.track.node.state.stepped is not None:
            # torch raises now, before any hook of the step: it uses nothing.
            site = self._places.site(frame)
            self._post(subject, self._event(Assign, site))
            self._post(subject, self._event(Step, site, scaled=True))
        self._posting.release(subject)
        subject.stepping.inner_stepped = False

    def step_ended(self, optimizer: Any, failed: bool) -> Subject | None:
        """A scaler has stepped an optimizer. Returns its subject if the step was skipped because of inf or nan."""
        subject = self._lanes.subjects.of(optimizer)
        lane = self._lanes.here.lane
        stepping, lane.scaling = lane.scaling, None
        if subject is None or failed or stepping is None:
            return None
        return subject if subject.track.node.state.stepped is None else None

    def updated(self, frame: Any) -> None:
        """A scaler has updated its scale: its round is over for all subjects."""
        self._unused, self._handed_on = 0, False
        event = self._event(Update, self._places.site(frame))
        for subject in self._lanes.subjects.all:
            state = subject.track.node.state
            if state.unscaled is not None or state.stepped is not None:
                self._post(subject, event)

    def _follow_optimizer(self, subject: Subject, optimizer: Any) -> None:
        """A scaler has one stage per optimizer: with another optimizer of the subject, a new round begins."""
        if subject.stepping.scaled_optimizer not in (0, id(optimizer)):
            self._post(subject, self._event(Update, NOWHERE))
        subject.stepping.scaled_optimizer = id(optimizer)


def _stage(scaler: Any, optimizer: int) -> str:
    """What a scaler says that it has done for an optimizer: torch's `OptState`."""
    state = scaler._per_optimizer_states.get(optimizer)
    return "READY" if state is None else str(state["stage"].name)


def _overrides(scaler: Any, method: str) -> bool:
    """Whether the scaler is a subclass that overrides a method."""
    inherited = (vars(kind).get(method) for kind in type(scaler).__mro__)
    own = next(one for one in inherited if one is not None)
    return not (own.__module__ or "").startswith("torch.")


def _is_inside(scaler: Any, frame: Any) -> bool:
    """Whether a method of a scaler has led to a call."""
    for _ in range(MOST_FRAMES):
        if frame is None:
            return False
        if frame.f_locals.get("self") is scaler:
            return True
        frame = frame.f_back
    return False
