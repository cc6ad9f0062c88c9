"""Tracebacks as the user would see them without zerograd."""

from __future__ import annotations

from types import TracebackType

from zerograd.runtime.call_sites import OURS


def tidy(error: BaseException) -> None:
    """Remove our own frames from the tracebacks of an exception, its causes and its contexts."""
    waiting: list[BaseException | None] = [error]
    seen: set[int] = set()
    while waiting:
        one = waiting.pop()
        if one is None or id(one) in seen:
            continue
        seen.add(id(one))
        one.__traceback__ = _without_us(one.__traceback__)
        waiting += [one.__cause__, one.__context__, *getattr(one, "exceptions", ())]


def _without_us(trace: TracebackType | None) -> TracebackType | None:
    kept: list[TracebackType] = []
    while trace is not None:
        if trace.tb_frame.f_code.co_filename.startswith(OURS):
            # Python hides the frames of importlib, but not if a loader of ours is among them.
            while kept and kept[-1].tb_frame.f_code.co_filename.startswith("<frozen importlib"):
                kept.pop()
        else:
            kept.append(trace)
        trace = trace.tb_next
    following = None
    for one in reversed(kept):
        one.tb_next = following
        following = one
    return following
