"""The batches that a stepper hands out: on every rank the same number of them."""

from __future__ import annotations

import sys
from collections.abc import Callable, Generator, Iterable, Iterator
from dataclasses import dataclass
from types import FrameType
from typing import Any, Generic, TypeVar

from zerograd.stepper.sharing import SingleProcess
from zerograd.stepper.window import Window

T = TypeVar("T")

_UNKNOWN = -1
_END: Any = object()


@dataclass
class Current:
    """The batch that a stepper handed out last."""

    padding: bool = False
    """Whether it repeats a batch, only to keep the ranks together."""
    final: bool = False
    """Whether it is the last of the loop, on all ranks."""


Batch = tuple[T, bool, bool]
"""A batch to be handed out, whether it is padding, and whether it is final (see `Current`)."""


class Loop(Generic[T]):
    """One pass over a loader. `stepper(loader)` returns it."""

    def __init__(
        self,
        loader: Iterable[T],
        batches: Generator[T, None, None],
        current: Current,
        *,
        advances: Callable[[FrameType | None], None],
        distributed: bool,
    ) -> None:
        self._loader = loader
        self._advances = advances
        self._batches = batches
        self.current = current
        self.distributed = distributed

    def __iter__(self) -> Iterator[T]:
        return self

    def __next__(self) -> T:
        self._advances(sys._getframe(1))
        return next(self._batches)

    def close(self) -> None:
        """End the loop now, even if something still holds it."""
        self._batches.close()

    def __len__(self) -> int:
        return len(self._loader)  # type: ignore[arg-type]  # a loader without len() is a TypeError


def batches_for(
    loader: Iterable[T],
    ranks: SingleProcess,
    window: Window,
    *,
    by_weight: bool,
    flush: Callable[[], None],
) -> Iterator[Batch[T]]:
    """The batches of a loader. `window` is the open window; `by_weight` says what closes it.

    `flush` closes a window that can get no further batch.
    """
    if not ranks.distributed:
        for value in loader:
            yield value, isinstance(loader, Loop) and loader.current.padding, False
    elif isinstance(loader, Loop):
        yield from _nested(loader, window, flush)
    else:
        yield from _equal_numbers(loader, ranks, window, by_weight)


def _equal_numbers(
    loader: Iterable[T], ranks: SingleProcess, window: Window, by_weight: bool
) -> Iterator[Batch[T]]:
    """The same number of batches on every rank.

    A rank whose data has ended repeats its last batch. Where all lengths are known the ranks
    exchange them once. Otherwise the ranks ask each other whether anyone has data, whenever a
    window opens (and before every batch, where windows are closed by weight).
    """
    lengths = ranks.gather(_length(loader))
    known = _UNKNOWN not in lengths
    longest = max(lengths)
    if known and longest > 0 and 0 in lengths:
        raise _no_batch(lengths.index(0))
    source, last, ended, done = iter(loader), _END, False, 0
    while window.due or not known or done < longest:
        if window.due:
            yield last, True, True
            continue
        value = _END if ended else next(source, _END)
        if value is _END:
            ended = True
        else:
            last = value
        if not known and (window.count == 0 or by_weight):
            has_data = ranks.gather(not ended)
            if not any(has_data):
                if window.count == 0 or not window.unsynced:
                    return
                window.due = True
                continue
            if done == 0 and not all(has_data):
                raise _no_batch(has_data.index(0))
        done += 1
        yield last, ended, done == longest


def _nested(loop: Loop[T], window: Window, flush: Callable[[], None]) -> Iterator[Batch[T]]:
    """The batches of another stepper's loop, which gives every rank the same number.

    No batch can be repeated here, since the other stepper would not know about it. So a window
    that ends unsynchronised is flushed.
    """
    if not loop.distributed:
        raise TypeError(
            "of two steppers over one loader, the one under DDP or FSDP2 goes inside:"
            " for batch in other(distributed(loader))"
        )
    for value in loop:
        yield value, loop.current.padding, loop.current.final
        if window.due:
            flush()


def _length(loader: object) -> int:
    """The number of batches of a loader, or -1."""
    try:
        return len(loader)  # type: ignore[arg-type]
    except (TypeError, NotImplementedError):
        return _UNKNOWN


def _no_batch(rank: int) -> ValueError:
    return ValueError(
        f"rank {rank} has no batch at all, so it has none to repeat while the other ranks train:"
        " give every rank at least one batch"
    )
