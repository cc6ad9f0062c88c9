"""Optimizers that are cleared again and again, and never step.

It is reported when it is gone, or the run is over. Until then no parameter of it may have changed, and the run
must have seen where it was made: it may have stepped before. A program that clears it in a file that reads gradients
may not need steps.
"""

from __future__ import annotations

import linecache
import re
from typing import TYPE_CHECKING, Any, NamedTuple

from zerograd.core.events import End, Site
from zerograd.runtime.event_cache import EventCache
from zerograd.runtime.gradient_values import imprint
from zerograd.runtime.optimizer_lives import OptimizerLives
from zerograd.runtime.posting import Posting
from zerograd.runtime.program_source import program_files

if TYPE_CHECKING:
    from types import FrameType

    from zerograd.runtime.subjects import Subject

ENOUGH = 3
"""A program that clears fewer windows may only try out a batch or two."""
_READS = re.compile(
    r"\.grad\b(?!\s*=\s*None\b)|['\"]grad['\"]|\bclip_grad_norm_\b.*\binf\b|\bget_total_norm\b|_hook\("
)
"""Code that may do something with a gradient other than to drop it."""


class _Idle(NamedTuple):
    """What an optimizer was when a window of it was dropped for the first time."""

    made: Site
    file: str
    """What clears it: a file, or the cell of a notebook."""
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
        """The program is about to clear gradients that are not used, of an optimizer that has not stepped yet."""
        backward = subject.track.node.state.backward
        if backward is None or backward.may or backward.site.via:
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
            idle.dropped.append(backward.site)

    def over(self, subject: Subject, *, blamed: bool) -> None:
        """The optimizer of a subject is gone, or the run is over; with `blamed`, it is reported if it never stepped."""
        idle = self._idle.pop(subject.name, None)
        if not blamed or idle is None or len(idle.dropped) < ENOUGH or subject.track.steps:
            return
        if [imprint(param) for param in subject.params] != idle.imprints:
            return  # they are updated in another way
        if not any(map(_reads, {idle.file, *program_files()})):
            event = self._event(End, idle.made, idle_loss=idle.dropped[-1])
            self._post(subject, event)


def _reads(file: str) -> bool:
    return bool(_READS.search("".join(linecache.getlines(file))))
