"""Optimizers that are cleared again and again, and never step.

An optimizer counts if the run has seen how it was made, the program clears its gradients through it, and no
parameter of it changes until it is gone, or the run is over. A file that reads gradients itself may have no use for steps.
"""

from __future__ import annotations

import linecache
import re
from typing import TYPE_CHECKING, Any, NamedTuple

from zerograd.core.events import End, Site
from zerograd.core.lifecycle import Grads
from zerograd.runtime.event_cache import EventCache
from zerograd.runtime.gradient_values import imprint
from zerograd.runtime.optimizer_lives import OptimizerLives
from zerograd.runtime.posting import Posting

if TYPE_CHECKING:
    from types import FrameType

    from zerograd.runtime.subjects import Subject

ENOUGH = 3
"""Clears of that many windows are no test of a few batches."""
_READS = re.compile(r"\.grad\b(?!\s*=\s*None\b)")


class _Idle(NamedTuple):
    """What an optimizer was when a window of it was dropped for the first time."""

    made: Site
    file: str
    """The file that clears it."""
    imprints: list[object]
    dropped: list[Site]
    """The backward of each window that was dropped."""


class IdleOptimizers:
    """The optimizers that have not stepped yet, by the names of their subjects."""

    def __init__(self, events: EventCache, posting: Posting, lives: OptimizerLives) -> None:
        self._event = events.event
        self._post = posting.post
        self._lives = lives
        self._idle: dict[str, _Idle] = {}

    def cleared(self, subject: Subject, optimizer: Any, frame: FrameType) -> None:
        """The program is about to clear an optimizer that has not stepped yet."""
        state = subject.track.node.state
        if state.grads is not Grads.LIVE or state.backward is None or state.backward.may:
            return
        idle = self._idle.get(subject.name)
        if idle is None:
            made = self._lives.made_at(optimizer)
            if made is None or not subject.whole or subject.covers or subject.overlaps:
                return
            imprints = [imprint(param) for param in subject.params]
            idle = _Idle(made, frame.f_code.co_filename, imprints, [])
            self._idle[subject.name] = idle
        if len(idle.dropped) < ENOUGH:
            idle.dropped.append(state.backward.site)

    def over(self, subject: Subject) -> None:
        """The optimizer of a subject does nothing any more."""
        idle = self._idle.pop(subject.name, None)
        if idle is None or len(idle.dropped) < ENOUGH or subject.track.steps:
            return
        if [imprint(param) for param in subject.params] != idle.imprints:
            return  # they are updated in another way
        if not _READS.search("".join(linecache.getlines(idle.file))):
            event = self._event(End, idle.made, idle_loss=idle.dropped[-1])
            self._post(subject, event)
