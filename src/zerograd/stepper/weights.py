"""Weights and the factors made of them: numbers where the host knows them, tensors where not.

Nothing here waits for a device.
"""

from __future__ import annotations

import math
import numbers

import torch
from torch import Tensor

Amount = float | Tensor
"""A number, or a tensor of one element on a device that is not waited for."""


def readable(tensor: Tensor) -> bool:
    """Whether a tensor can be read without waiting for a device."""
    return tensor.device.type == "cpu"


def amount(weight: object) -> Amount:
    """What the user handed in as a weight: finite and not negative."""
    if isinstance(weight, Tensor):
        if weight.numel() != 1:
            raise ValueError(f"weight is one number, not a tensor of shape {tuple(weight.shape)}")
        weight = weight.detach().reshape(())
        if not readable(weight):
            exact = torch.float32 if weight.device.type == "mps" else torch.float64
            weight = weight.to(exact)
            # Looked at on the device, when it gets there: a negative weight never becomes a step.
            torch._assert_async(
                (weight >= 0) & weight.isfinite(), "weight is negative or not finite"
            )
            return weight
        weight = weight.item()
    if not isinstance(weight, numbers.Real):
        raise TypeError(f"weight is a number or a tensor of one number, not {weight!r}")
    value = float(weight)
    if not (0 <= value < math.inf):
        raise ValueError(
            f"weight={value:g}: a weight is how many samples or tokens the loss was taken over,"
            " so finite and not negative; leave a batch out with weight=0"
        )
    return value


def power_of_two(value: Amount) -> Amount:
    """The power of two nearest to a value, and 1 for 0."""
    if isinstance(value, Tensor):
        return torch.where(value > 0, value.log2().round().exp2(), 1.0)
    return math.ldexp(1.0, round(math.log2(value))) if value > 0 else 1.0


def divided(value: Amount, total: Amount) -> Amount:
    """A value by a total that may be 0 on the device: then 0, since nothing was in it."""
    if isinstance(total, Tensor):
        return torch.where(total > 0, value / total, 0.0)
    return value / total if total else 0.0


def read(*values: Amount) -> list[float]:
    """Amounts as numbers, waiting for the device once if at all."""
    there = [value for value in values if isinstance(value, Tensor)]
    if there:
        exact = there[0].to(torch.float32 if there[0].device.type == "mps" else torch.float64)
        values = tuple(torch.stack([torch.as_tensor(one).to(exact) for one in values]).tolist())
    return [float(value) for value in values]


def number(value: Amount) -> float:
    """An amount as a number; waits for the device if it must."""
    return float(value)
