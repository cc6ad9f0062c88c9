"""What an object is to gradients."""

from __future__ import annotations

from enum import Enum


class Role(Enum):
    """What an object does with gradients, as far as its class, its name or its use says so."""

    NONE = ""
    OPTIMIZER = "optimizer"
    SCALER = "scaler"
    """Scales losses, and steps optimizers with gradients that it unscales."""
    LOSS_SCALER = "loss scaler"
    """Runs backward and step in one call: `loss_scaler(loss, optimizer)`."""
    ACCELERATOR = "accelerator"
    """Runs backward, and decides when the optimizers that it prepared step."""
    FABRIC = "fabric"
    """Runs backward."""
    ENGINE = "engine"
    """Runs backward, and its step clears."""
    OTHER = "other"
    """None of these for sure: a scheduler, for instance."""

    def __bool__(self) -> bool:
        return self is not Role.NONE
