"""The backward of one batch, with the factor that its weight demands."""

from __future__ import annotations

from contextlib import nullcontext
from typing import Any

import torch
from torch import Tensor

from zerograd.stepper.gradients import Gradients
from zerograd.stepper.in_backward import InBackward
from zerograd.stepper.ownership import Ownership
from zerograd.stepper.weights import Scalar, safe_divide


class BackwardPass:
    """Back-propagates losses into the gradients of one stepper."""

    def __init__(
        self,
        gradients: Gradients,
        ownership: Ownership,
        scaler: torch.amp.GradScaler | None,
        in_backward: InBackward | None,
        *,
        summed: bool,
    ) -> None:
        self._gradients = gradients
        self._ownership = ownership
        self._scaler = scaler
        self._in_backward = in_backward
        self._summed = summed
        self._last_seed: tuple[Any, Tensor] | None = None

    def __call__(
        self, loss: Tensor, weight: Scalar, unit: Scalar, *, averages: bool, retain_graph: bool
    ) -> None:
        """Run backward. `averages` says that the ranks average their gradients in this backward."""
        factor = self._factor(weight, unit)
        if self._scaler is not None:
            loss = self._scaler.scale(loss)
        if averages:
            self._gradients.write_grad()
        seed = self._seed(loss, factor)
        if self._in_backward is None and not self._ownership.others():
            torch.autograd.backward(loss, seed, retain_graph=retain_graph)
        else:
            with self._in_backward or nullcontext(), self._ownership.freeze_others():
                torch.autograd.backward(loss, seed, retain_graph=retain_graph)
        self._gradients.accumulate()

    def _factor(self, weight: Scalar, unit: Scalar) -> Scalar:
        """See NOTE [The gradient of a window] in window.py."""
        if self._in_backward is not None:  # the window has one batch, and no multiplication follows
            return safe_divide(1.0 if self._summed else weight, weight)
        if self._summed and (isinstance(weight, Tensor) or weight != 0):
            return 1.0 / unit
        return weight / unit

    def _seed(self, loss: Tensor, factor: Scalar) -> Tensor | None:
        """The factor as the gradient of the loss. Most batches need the same one, so it is kept."""
        if isinstance(factor, Tensor):
            return factor.to(loss).reshape(loss.shape)
        if factor == 1.0:
            return None
        key = factor, loss.dtype, loss.device, loss.shape
        if self._last_seed is None or self._last_seed[0] != key:
            self._last_seed = key, torch.full_like(loss, factor, requires_grad=False)
        return self._last_seed[1]
