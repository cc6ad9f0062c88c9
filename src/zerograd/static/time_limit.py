"""A limit on the time that one file may take, however busy the machine is.

The counts of `read.budget` end most checks before it, and always at the same place.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

LIMIT = 1.8
"""Seconds of work after which a file is given up."""

TOO_LONG = "takes longer than 2 s and was given up; split it, or exclude it"


class Overrun(BaseException):
    """Raised into a check that runs past its limit."""


@contextmanager
def time_limit() -> Iterator[None]:
    """Raise `Overrun` into the block after LIMIT seconds, where the system has such an alarm."""
    if (
        not hasattr(signal, "setitimer")
        or threading.current_thread() is not threading.main_thread()
    ):
        yield
        return

    def ring(number: int, frame: FrameType | None) -> None:
        raise Overrun

    before = signal.signal(signal.SIGPROF, ring)
    signal.setitimer(signal.ITIMER_PROF, LIMIT)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, before)
