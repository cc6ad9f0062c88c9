"""The open window as numbers, and the rule that says when a window is full.

NOTE [The gradient of a window]
The gradient of a window is Σ wᵢ·∇meanᵢ / Σ wᵢ, and Σ wᵢ is only known when the window ends. So the
loss of a batch is back-propagated with the factor wᵢ/c (a summed loss with 1/c), and at the end
the sum of gradients is multiplied once by c·R/Σ wᵢ. R is the number of ranks, which average their
gradients; Σ runs over all ranks. c is the power of two near the expected weight of a window, and
the same on all ranks. The division by c rounds nothing, and wᵢ/c is about one over the length of
the window, like a division by hand, so fp16 does not overflow. Where c·R equals Σ wᵢ, the
multiplication is left out.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from torch import Tensor

from zerograd.stepper.sharing import SingleProcess
from zerograd.stepper.weights import Scalar, power_of_two, to_number


@dataclass
class Window:
    """The numbers of the open window. A window with a count of 0 is not open."""

    count: int = 0
    """Batches so far, padding included."""
    length: int = 0
    """Batches so far, without padding."""
    weight: Scalar = 0.0
    """Σ w on this rank."""
    whole: Scalar = 0.0
    """Σ w on all ranks, where windows are closed by weight."""
    unit: Scalar = 1.0
    """c of NOTE [The gradient of a window]."""
    unsynced: bool = False
    """Whether the ranks hold gradients that they have not averaged yet."""
    due: bool = False
    """Whether the window is full and needs one more backward to synchronise its gradients."""

    def add(self, weight: Scalar, padding: bool) -> None:
        """Count one more batch."""
        self.count += 1
        self.length += not padding
        self.weight = self.weight + weight

    def reset(self, **values: Any) -> None:
        """Go back to a window that is not open, or to these values."""
        vars(self).update(vars(Window(**values)))

    def state(self) -> dict[str, Any]:
        """The values as numbers that a checkpoint can hold."""
        return {
            name: value if isinstance(value, (bool, int)) else to_number(value)
            for name, value in asdict(self).items()
        }


class WindowSize:
    """When a window is full: after a number of batches, or at a total weight over all ranks."""

    def __init__(self, batches: int | None, weight: float | None, ranks: SingleProcess) -> None:
        self.batches = None if weight is not None else batches or 1
        self.weight = weight
        self.mean_weight: Scalar | None = None
        """The mean weight of a batch in the previous window, over all ranks."""
        self._ranks = ranks

    def unit(self, first: Scalar) -> Scalar:
        """The c of NOTE [The gradient of a window]; `first` is the weight of the first batch."""
        if self.weight is not None:
            return power_of_two(self.weight / self._ranks.size)
        assert self.batches is not None
        if self.batches == 1 and self._ranks.size == 1 and not isinstance(first, Tensor):
            return first or 1.0  # one batch: the loss factor is 1 and no multiplication follows
        if self.mean_weight is None:
            self.mean_weight = self._ranks.largest(first)
        return power_of_two(self.mean_weight * self.batches)

    def next_is_last(self, window: Window) -> bool:
        """Whether the next batch closes the window, as far as that is known before its forward."""
        if self.weight is None:
            return window.count + 1 == self.batches
        mean = self.mean_weight if self.mean_weight is not None else 0.0
        return float(window.whole + mean * self._ranks.size) >= self.weight

    def is_heavy(self, window: Window) -> bool:
        """Whether a window that is closed by weight ends here.

        A window that is full but not synchronised becomes `due`: it ends with the next batch.
        """
        if self.weight is None:
            return False
        window.whole = self._ranks.start_sum(window.weight)()
        if window.due:
            return True
        self.measure(window, window.whole)
        full = float(window.whole) >= self.weight
        window.due = full and window.unsynced
        return full and not window.due

    def measure(self, window: Window, weight: Scalar) -> None:
        """Remember the mean weight of a batch, given the weight of the window over all ranks."""
        self.mean_weight = weight / (window.count * self._ranks.size)
