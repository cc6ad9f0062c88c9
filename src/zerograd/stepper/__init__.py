"""A training step that handles gradients correctly, with or without accumulation.

It has `Stepper`, and `Step`, the record of one optimizer step.

May import: nothing of zerograd.
"""

try:
    import torch as torch
except ImportError as error:
    raise ImportError("zerograd.Stepper needs torch: pip install 'zerograd[torch]'") from error

from zerograd.stepper.step_record import Step as Step
from zerograd.stepper.stepper import Stepper as Stepper

__all__ = ["Step", "Stepper"]
