"""One file in bounded time: whatever it holds, its check ends, and ends in a verdict.

No exception leaves, neither for a file that takes too long nor for a bug of our own.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import NamedTuple

from zerograd.core.finding import Problem
from zerograd.static.check_file import CLEAN, Verdict, judge_bytes
from zerograd.static.read.load import read_bytes
from zerograd.static.read.prefilter import worth_parsing
from zerograd.static.read.source import Unreadable

LIMIT = 1.8
"""Seconds of work, however busy the machine, after which a file is given up. Counts end it before."""

TOO_LONG = "takes longer than 2 s and was given up; split it, or exclude it"


class Job(NamedTuple):
    """A file to judge; one that the user named is read whatever it holds."""

    path: str
    named: bool = False


class Overrun(BaseException):
    """Raised into a check that runs past its limit."""


@contextmanager
def limit(seconds: float) -> Iterator[None]:
    """Raise `Overrun` into the block when its time is over, where the system has such an alarm."""
    if (
        not hasattr(signal, "setitimer")
        or threading.current_thread() is not threading.main_thread()
    ):
        yield
        return

    def ring(number: int, frame: FrameType | None) -> None:
        raise Overrun

    before = signal.signal(signal.SIGPROF, ring)
    signal.setitimer(signal.ITIMER_PROF, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, before)


def judge_path(job: Job, begin: Callable[[], object] | None = None) -> Verdict:
    """The verdict on a file of the disk; `begin` is called if it takes more than a look."""
    try:
        data = read_bytes(job.path)
    except Unreadable as error:
        return Verdict(problems=(error.problem,), lasting=False)
    notebook = job.path.endswith(".ipynb")
    if not job.named and not worth_parsing(data, notebook=notebook):
        return CLEAN
    if begin is not None:
        begin()
    return guarded(job.path, lambda: judge_bytes(data, job.path))


def guarded(path: str, check: Callable[[], Verdict]) -> Verdict:
    """What a check finds, in bounded time, and without an exception."""
    try:
        with limit(LIMIT):
            return check()
    except Overrun:
        # On another day, with less to do, it may go through.
        return Verdict(problems=(Problem(path, TOO_LONG),), lasting=False)
    except Exception as error:  # noqa: BLE001 (our own bug in one file must not lose the others)
        return Verdict(problems=(Problem(path, _bug(error)),))


def _bug(error: Exception) -> str:
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    where = ""
    if trace is not None:
        file = trace.tb_frame.f_code.co_filename.replace("\\", "/").rpartition("/")[2]
        where = f" in {file}:{trace.tb_lineno}"
    return f"was not checked: zerograd failed{where} ({error!r}); report this as a bug in zerograd"
