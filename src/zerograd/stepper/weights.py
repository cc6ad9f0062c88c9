"""Batch weights and the factors computed from them.

A scalar is a Python number where the host knows it, and otherwise a tensor on a device. Only
`to_numbers` and `to_number` wait for a device.
"""

from __future__ import annotations

import math
import numbers

import torch
from torch import Tensor

Scalar = float | Tensor
"""A number, or a tensor of one element."""


def on_host(tensor: Tensor) -> bool:
    """Whether a tensor can be read without waiting for a device."""
    return tensor.device.type == "cpu"


def exact_dtype(device: torch.device) -> torch.dtype:
    """The most precise floating-point type of a device."""
    return torch.float32 if device.type == "mps" else torch.float64


def checked_weight(weight: object) -> Scalar:
    """The `weight` argument of `backward()`; it must be finite and not negative."""
    if isinstance(weight, Tensor):
        if weight.numel() != 1:
            raise ValueError(
                f"weight must be one number, not a tensor of shape {tuple(weight.shape)}"
            )
        weight = weight.detach().reshape(())
        if not on_host(weight):
            weight = weight.to(exact_dtype(weight.device))
            # The device checks the value when it gets there, so the host does not wait. A negative
            # weight never reaches an optimizer step.
            torch._assert_async(
                (weight >= 0) & weight.isfinite(), "weight is negative or not finite"
            )
            return weight
        weight = weight.item()
    if not isinstance(weight, numbers.Real):
        raise TypeError(f"weight must be a number or a tensor of one number, not {weight!r}")
    value = float(weight)
    if not (0 <= value < math.inf):
        raise ValueError(
            f"weight={value:g}: a weight is the number of samples or tokens in the loss, so it must"
            " be finite and not negative; to leave a batch out, use weight=0"
        )
    return value


def power_of_two(value: Scalar) -> Scalar:
    """The power of two nearest to a value; 1 for 0."""
    if isinstance(value, Tensor):
        return torch.where(value > 0, value.log2().round().exp2(), 1.0)
    return math.ldexp(1.0, round(math.log2(value))) if value > 0 else 1.0


def safe_divide(value: Scalar, total: Scalar) -> Scalar:
    """`value / total`, and 0 where the total is 0: no batch had any weight."""
    if isinstance(total, Tensor):
        return torch.where(total > 0, value / total, 0.0)
    return value / total if total else 0.0


def to_numbers(*values: Scalar) -> list[float]:
    """Scalars as Python numbers; waits for the device at most once."""
    tensors = [value for value in values if isinstance(value, Tensor)]
    if tensors:
        exact = tensors[0].to(exact_dtype(tensors[0].device))
        values = tuple(torch.stack([torch.as_tensor(one).to(exact) for one in values]).tolist())
    return [float(value) for value in values]


def to_number(value: Scalar) -> float:
    """A scalar as a Python number; waits for the device if it must."""
    return float(value)
