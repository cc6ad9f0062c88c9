"""What code does to gradients before it is known whose: events with targets, still to be projected."""

from __future__ import annotations

from dataclasses import dataclass

from zerograd.flow import Emit


@dataclass(eq=False)
class Act(Emit):
    """An event of the code. `whose` are keys of optimizers, modules or leaf tensors."""

    whose: frozenset[str] = frozenset()
    anyone: bool = False
    """It cannot be seen whose gradients it touches."""
    perhaps: frozenset[str] = frozenset()
    """backward: things that the loss may run through."""
    leaf: bool = False
    """zero: of one tensor, not of all that a module or an optimizer holds."""
