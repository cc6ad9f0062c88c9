"""Which stepper's gradients are in `.grad`.

NOTE [Ownership of .grad]
A stepper clears its parameters when its window opens. While its loop runs, the backward of another
stepper leaves nothing in those parameters: they do not require gradients meanwhile. Where two
steppers share parameters, and under FSDP2, which stores gradients itself, the stepper that runs
moves the gradients of the other out of `.grad`; each moves its own back in before it continues.
"""

from __future__ import annotations

import weakref
from collections.abc import Iterator
from contextlib import contextmanager

from zerograd.stepper.gradients import Gradients
from zerograd.stepper.sharing import SingleProcess
from zerograd.stepper.window import Window

_active: weakref.WeakSet[Ownership] = weakref.WeakSet()
"""One for each stepper that is in a loop or holds a loaded window."""


class Ownership:
    """The claim of one stepper to the `.grad` of its parameters."""

    def __init__(self, gradients: Gradients, window: Window, ranks: SingleProcess) -> None:
        self._gradients = gradients
        self._window = window
        self._ranks = ranks

    def begin(self) -> None:
        """From now on other steppers leave these parameters alone."""
        _active.add(self)

    def end(self) -> None:
        """Other steppers need not care for these parameters any more."""
        _active.discard(self)

    def others(self) -> list[Ownership]:
        """The claims of other steppers."""
        if not _active or (len(_active) == 1 and self in _active):
            return []
        return [other for other in _active if other is not self]

    def acquire(self, strict: bool = True) -> None:
        """Move the gradients of other steppers out of the `.grad` that this stepper uses."""
        for other in self.others():
            if other._ranks.sharded and other._window.unsynced and strict:
                raise RuntimeError(
                    "another stepper has an open window, and FSDP2 stores its gradients where they"
                    ' cannot be moved: make that stepper with sync="every"'
                )
            if other._ranks.sharded or other._gradients.ids & self._gradients.ids:
                other._gradients.move_out(copy=other._ranks.bucket_views)

    @contextmanager
    def freeze_others(self) -> Iterator[None]:
        """Inside, a backward leaves nothing in the parameters of other steppers."""
        frozen = [
            param
            for other in self.others()
            if not other._ranks.sharded
            for param in other._gradients.params
            if param.requires_grad and id(param) not in self._gradients.ids
        ]
        try:
            for param in frozen:
                param.requires_grad_(False)  # autograd then skips it
            yield
        finally:
            for param in frozen:
                param.requires_grad_(True)
