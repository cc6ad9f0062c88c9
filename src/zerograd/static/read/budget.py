"""How much is done for one file: counted, not timed, so that a busy machine finds what an idle one does."""

from __future__ import annotations

from zerograd.core.records import dataclass

FILE = 120_000
"""Steps for one file. A step takes about ten microseconds, so that this is near a second."""
ROOT = 80_000
"""Steps for interpreting the top level, or one function and all that it calls."""
PATHS = 40_000
"""Steps for following one optimizer's gradients through it, for rules that are explored together."""

EXPRESSION = 2
"""Steps for interpreting an expression."""
BYTES = 16
"""Bytes of an imported module that are read in one step."""


class Cut(Exception):
    """The budget is used up."""


@dataclass
class Budget:
    """The steps that are left."""

    file: int = FILE
    root: int = FILE
    """The steps left for the root that is interpreted now."""

    def begin_root(self) -> None:
        """Another root is interpreted from here on."""
        self.root = ROOT

    def spend(self, steps: int) -> None:
        """Count steps; `Cut` when there were too many."""
        self.file -= steps
        self.root -= steps
        if self.file < 0 or self.root < 0:
            raise Cut
