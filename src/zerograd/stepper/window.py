"""An open window, in numbers."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from zerograd.stepper.weights import Amount, number


@dataclass
class Window:
    """How far a window has come. One with a count of 0 is not open."""

    count: int = 0
    """Batches so far, padding included."""
    length: int = 0
    """Batches so far, without padding."""
    weight: Amount = 0.0
    """Σ w on this rank."""
    whole: Amount = 0.0
    """Σ w on all ranks, where windows are closed by their weight."""
    unit: Amount = 1.0
    """c of NOTE [The gradient of a window]."""
    unsynced: bool = False
    """Whether ranks hold gradients that they have not shared."""
    due: bool = False
    """Whether it is full, and waits for a batch that synchronises it."""

    def add(self, weight: Amount, padding: bool) -> None:
        """One more batch."""
        self.count += 1
        self.length += not padding
        self.weight = self.weight + weight

    def state(self) -> dict[str, Any]:
        """As numbers that can be saved."""
        return {
            name: value if isinstance(value, (bool, int)) else number(value)
            for name, value in asdict(self).items()
        }
