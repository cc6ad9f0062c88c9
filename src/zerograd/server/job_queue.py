"""One queue of work for the main thread: a newer job takes the place of an older one with the same key.

A job that runs while a newer one of its key arrives is interrupted. Jobs run one at a time.
"""

from __future__ import annotations

import _thread
import gc
import signal
import threading
from collections.abc import Callable, Hashable
from types import FrameType

Job = Callable[[], object]

BREATH = 0.02
"""Seconds without work after which `tidy` is called."""
IDLE = 1.0
"""Seconds without work after which garbage is collected."""
_SIGNAL: signal.Signals = getattr(signal, "SIGUSR1", signal.SIGINT)
"""No other part of zerograd uses it. It is not really sent: `interrupt_main` only simulates its arrival."""


class Stale(BaseException):
    """Raised into a job when a newer one has taken its place."""


class JobQueue:
    """Runs jobs in the main thread; other threads put them."""

    def __init__(self, tidy: Job = lambda: None) -> None:
        self._tidy = tidy
        self._waiting: dict[Hashable, Job] = {}
        self._changed = threading.Condition()
        self._running: Hashable = None
        self._is_stale = False
        self._inside = False
        """The main thread runs a job: only there it may be interrupted."""
        self._ended = False
        self._litter: list[tuple[float, Job]] = []
        """Jobs for the time without work: after how many seconds, and what."""

    def put(self, key: Hashable, job: Job) -> None:
        """Add a job; an older one with this key does not start, or is interrupted."""
        with self._changed:
            self._waiting.pop(key, None)
            self._waiting[key] = job
            self._interrupt(key)
            self._changed.notify()

    def drop(self, key: Hashable) -> None:
        """Forget a job, wherever it is."""
        with self._changed:
            self._waiting.pop(key, None)
            self._interrupt(key)

    def end(self) -> None:
        """Let `run` return; what waits is not done any more."""
        with self._changed:
            self._ended = True
            self._waiting.clear()
            if threading.current_thread() is not threading.main_thread():
                self._interrupt(self._running)
            self._changed.notify()

    def _interrupt(self, key: Hashable) -> None:
        if key is not None and self._running == key and not self._is_stale:
            self._is_stale = True
            _thread.interrupt_main(_SIGNAL)

    def run(self, interrupted: Job) -> None:
        """Run jobs in the main thread until the queue ends; `interrupted` is called after each that did not end."""
        before = signal.signal(_SIGNAL, self._ring)
        try:
            while (job := self._next()) is not None:
                try:
                    self._inside = True
                    job()
                    self._inside = False
                except Stale:
                    interrupted()
        finally:
            signal.signal(_SIGNAL, before)

    def _next(self) -> Job | None:
        """The job that has waited longest; None at the end."""
        with self._changed:
            self._running = None
            self._is_stale = False
            while not self._waiting and not self._ended:
                if not self._changed.wait(self._litter[0][0] if self._litter else None):
                    # No client waits for a result now, so slow jobs are done.
                    self._litter.pop(0)[1]()
            if self._ended:
                return None
            self._litter = [(BREATH, self._tidy), (IDLE, gc.collect)]
            key = next(iter(self._waiting))
            self._running = key
            return self._waiting.pop(key)

    def _ring(self, number: int, frame: FrameType | None) -> None:
        # The job may have ended before the main thread looked.
        if self._inside and self._is_stale:
            self._inside = False
            raise Stale
        if number == signal.SIGINT:
            raise KeyboardInterrupt
