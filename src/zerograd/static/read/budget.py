"""How much is done for one file: counted, not timed, so that a busy machine finds what an idle one does."""

from __future__ import annotations

from dataclasses import dataclass

FILE = 120_000
"""Steps for one file. A step takes about ten microseconds, so that this is near a second."""
ROOT = 60_000
"""Steps for reading the top level, or one function and all that it calls."""
PATHS = 40_000
"""Steps for following one optimizer's gradients through it, for rules that are judged together."""

EXPRESSION = 2
BYTES = 16
"""Of an imported module, for one step."""


class Cut(Exception):
    """There was more to do than may be done."""


@dataclass
class Work:
    """What may still be done for a file."""

    left: int = FILE
    reading: int = FILE
    """What may still be done to read what is read now."""

    def begin(self) -> None:
        """Something else is read from here on."""
        self.reading = ROOT

    def read(self, steps: int) -> None:
        """Counts steps of reading; `Cut` when there were too many."""
        self.left -= steps
        self.reading -= steps
        if self.left < 0 or self.reading < 0:
            raise Cut
