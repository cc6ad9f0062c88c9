"""The record of one window. Tensors in it are read only when somebody looks at them."""

from __future__ import annotations

from dataclasses import dataclass

from zerograd.stepper.weights import Scalar, to_number


@dataclass(frozen=True, eq=False, repr=False)
class Step:
    """What happened at the end of one window."""

    index: int
    """The number of the window, from 0; skipped windows count too."""
    reason: str
    """Why there was no step: "nonfinite", "no weight" or "no gradient"; empty after a step."""
    length: int
    """The number of batches in the window on this rank, without padding."""
    _lr: tuple[Scalar, ...]
    _weight: Scalar
    _norm: Scalar | None
    _scale: Scalar | None

    @property
    def stepped(self) -> bool:
        """Whether the optimizer stepped."""
        return not self.reason

    @property
    def lr(self) -> tuple[float, ...]:
        """The learning rate of each parameter group in this step."""
        return tuple(to_number(rate) for rate in self._lr)

    @property
    def weight(self) -> float:
        """The total weight of the batches, over all ranks."""
        return to_number(self._weight)

    @property
    def norm(self) -> float | None:
        """The norm of the gradient before clipping, or None if no option needs it (see `Stepper`)."""
        return None if self._norm is None else to_number(self._norm)

    @property
    def scale(self) -> float | None:
        """The scale of the GradScaler in this window."""
        return None if self._scale is None else to_number(self._scale)

    def __repr__(self) -> str:
        outcome = "stepped" if self.stepped else f"skipped: {self.reason}"
        parts = [f"{outcome}, length={self.length}, weight={self.weight:g}"]
        if self.norm is not None:
            parts.append(f"norm={self.norm:.4g}")
        if self.scale is not None:
            parts.append(f"scale={self.scale:g}")
        return f"Step({self.index}, {', '.join(parts)}, lr={self.lr})"
