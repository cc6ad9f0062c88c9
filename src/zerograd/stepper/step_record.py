"""What became of a window, as data. Tensors in it are read when somebody looks, not before."""

from __future__ import annotations

from dataclasses import dataclass

from zerograd.stepper.weights import Amount, number


@dataclass(frozen=True, eq=False, repr=False)
class Step:
    """One window: whether it was stepped, and what it held."""

    index: int
    """Windows are counted from 0, skipped ones too."""
    reason: str
    """Why it was skipped: "nonfinite", "no weight", "no gradient"; empty where it was stepped."""
    length: int
    """How many batches were in it on this rank; padding does not count."""
    _lr: tuple[Amount, ...]
    _weight: Amount
    _norm: Amount | None
    _scale: Amount | None

    @property
    def stepped(self) -> bool:
        """Whether the optimizer stepped."""
        return not self.reason

    @property
    def lr(self) -> tuple[float, ...]:
        """The learning rate of each parameter group in this step."""
        return tuple(number(rate) for rate in self._lr)

    @property
    def weight(self) -> float:
        """The weight of all its batches, on all ranks."""
        return number(self._weight)

    @property
    def norm(self) -> float | None:
        """The gradient's norm before clipping, where something needed it (see `Stepper`)."""
        return None if self._norm is None else number(self._norm)

    @property
    def scale(self) -> float | None:
        """The scaler's scale in this window."""
        return None if self._scale is None else number(self._scale)

    def __repr__(self) -> str:
        said = "stepped" if self.stepped else f"skipped: {self.reason}"
        parts = [f"{said}, length={self.length}, weight={self.weight:g}"]
        if self.norm is not None:
            parts.append(f"norm={self.norm:.4g}")
        if self.scale is not None:
            parts.append(f"scale={self.scale:g}")
        return f"Step({self.index}, {', '.join(parts)}, lr={self.lr})"
