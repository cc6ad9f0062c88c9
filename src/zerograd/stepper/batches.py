"""A loop over a loader: which batches every rank is given, until none has any left."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from zerograd.stepper.sharing import Ranks

if TYPE_CHECKING:
    from zerograd.stepper.stepper import Stepper

T = TypeVar("T")

_UNKNOWN = -1
_END: Any = object()


class Loop(Generic[T]):
    """The batches of a loader, given out by a stepper: an iterator, to be gone through once."""

    def __init__(self, stepper: Stepper, loader: Iterable[T]) -> None:
        self.stepper = stepper
        self._loader = loader
        self._batches = stepper._batches(loader)

    def __iter__(self) -> Iterator[T]:
        return self

    def __next__(self) -> T:
        return next(self._batches)

    def close(self) -> None:
        """Leave the loop now, whoever holds it."""
        self._batches.close()

    def __len__(self) -> int:
        return len(self._loader)  # type: ignore[arg-type]  # or a TypeError, as is due


def together(loader: Iterable[T], stepper: Stepper, ranks: Ranks) -> Iterator[tuple[T, bool, bool]]:
    """As many batches on every rank, each with whether it is padding and whether it is the last.

    Whose data has ended repeats its last batch. Where all lengths are known they are exchanged
    once; where not, the ranks agree whenever a window opens (and where weights close windows,
    before every batch) on whether anyone has data.
    """
    if isinstance(loader, Loop):
        yield from _alongside(loader, stepper)
        return
    lengths = ranks.each(_length(loader))
    known = _UNKNOWN not in lengths
    longest = max(lengths)
    if known and longest > 0 and 0 in lengths:
        raise _no_batch(lengths.index(0))
    source, last, ended, done = iter(loader), _END, False, 0
    while stepper._window.due or not known or done < longest:
        window = stepper._window
        if window.due:
            yield last, True, True
            continue
        batch = _END if ended else next(source, _END)
        if batch is _END:
            ended = True
        else:
            last = batch
        if not known and (window.count == 0 or stepper._enough is not None):
            there = ranks.each(not ended)
            if not any(there):
                if window.count == 0 or not window.unsynced:
                    return
                window.due = True
                continue
            if done == 0 and not all(there):
                raise _no_batch(there.index(0))
        done += 1
        yield last, ended, done == longest


def _alongside(loop: Loop[T], stepper: Stepper) -> Iterator[tuple[T, bool, bool]]:
    """The batches of another stepper's loop, which has brought the ranks together.

    A batch cannot be repeated here, since the other would not know: a window that is not
    synchronised when it ends is flushed.
    """
    inner = loop.stepper
    if not isinstance(inner._ranks, Ranks):
        raise TypeError(
            "of two steppers over one loader, the one under DDP or FSDP2 goes inside:"
            " for batch in other(distributed(loader))"
        )
    for batch in loop:
        yield batch, inner.padding, inner._final
        if stepper._window.due:
            stepper.flush()


def _length(loader: object) -> int:
    """How many batches a loader says it has."""
    try:
        return len(loader)  # type: ignore[arg-type]
    except (TypeError, NotImplementedError):
        return _UNKNOWN


def _no_batch(rank: int) -> ValueError:
    return ValueError(
        f"rank {rank} has no batch at all, while others have: it has nothing to repeat. Give every"
        " rank at least one batch"
    )
