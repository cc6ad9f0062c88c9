"""Exceptions that come from outside into running code: from a signal handler, a debugger, another thread.

Code that handles its own errors has to let these pass: a time limit that is swallowed never ends a run.
"""

from __future__ import annotations

import os
from types import FrameType, TracebackType

_OURS = os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + os.sep


def interrupts(error: BaseException) -> bool:
    """Whether an exception was raised in the middle of the code that it comes from, and not by it."""
    if not isinstance(error, Exception):
        return True
    if isinstance(error, TimeoutError) and error.errno is None:
        return (
            True  # another thread has set a time limit: those of the operating system have a number
        )
    trace: TracebackType | None = error.__traceback__
    while trace is not None:
        if _is_handler(trace.tb_frame):
            return True
        trace = trace.tb_next
    # A generator makes another exception of a StopIteration.
    return error.__cause__ is not None and interrupts(error.__cause__)


class Tolerating:
    """Ignores errors of some kinds in a block, but for those that interrupt it."""

    def __init__(self, *kinds: type[Exception]) -> None:
        self._kinds = kinds

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> bool:
        return isinstance(error, self._kinds) and not interrupts(error)


def _is_handler(frame: FrameType) -> bool:
    """Whether a frame is a signal handler or a trace function: Python hands it the frame that it interrupts."""
    interrupted = frame.f_back
    if interrupted is None or frame.f_code.co_filename.startswith(_OURS):
        return False  # a patch of ours holds the frame of its caller, and handles nothing
    for value in tuple(frame.f_locals.values()):
        if value is interrupted:
            return True
        if type(value) is tuple and any(one is interrupted for one in value):
            return True
    return False
