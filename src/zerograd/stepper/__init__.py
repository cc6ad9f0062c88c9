"""A training step that cannot get it wrong: the gradient of a window is that of the one big batch.

It gives `Stepper`, and the `Step` that each optimizer step returns.

May import: nothing of zerograd.
"""

try:
    import torch as torch
except ImportError as error:
    raise ImportError("zerograd.Stepper needs torch: pip install 'zerograd[torch]'") from error

from zerograd.stepper.step_record import Step as Step
from zerograd.stepper.stepper import Stepper as Stepper

__all__ = ["Step", "Stepper"]
