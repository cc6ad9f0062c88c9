"""A training step that cannot get it wrong: the gradient of a window is that of the one big batch.

Imports torch, and nothing else of zerograd.
"""

try:
    import torch as torch
except ImportError as error:
    raise ImportError("zerograd.Stepper needs torch: pip install 'zerograd[torch]'") from error

from zerograd.stepper.step_record import Step as Step
from zerograd.stepper.stepper import Stepper as Stepper

__all__ = ["Step", "Stepper"]
