"""The end of a window: unscale, normalise, clip, step, update. In this order, once."""

from __future__ import annotations

import math

import torch
from torch import Tensor
from torch.nn.utils import clip_grad_value_
from torch.optim import Optimizer

from zerograd.stepper.gradients import Gradients, multiply, total_norm
from zerograd.stepper.sharing import Alone
from zerograd.stepper.weights import Amount, divided, read, readable


class Finish:
    """Steps on a window's gradients, or says why not."""

    def __init__(
        self,
        optimizers: list[Optimizer],
        scaler: torch.amp.GradScaler | None,
        ranks: Alone,
        *,
        clip_norm: float | None,
        clip_value: float | None,
        skip_nonfinite: bool,
    ) -> None:
        self._optimizers = optimizers
        self._scaler = scaler
        self._ranks = ranks
        self._clip_norm = clip_norm
        self._clip_value = clip_value
        self._look = skip_nonfinite or scaler is not None
        """Whether to look for inf and nan, which is the one time a device is waited for."""

    def scale(self, device: torch.device) -> Amount | None:
        """The scaler's scale, not waited for: 1, scaled."""
        return None if self._scaler is None else self._scaler.scale(torch.ones((), device=device))

    def __call__(
        self, gradients: Gradients, unit: Amount, weight: Amount
    ) -> tuple[Amount | None, str]:
        """The norm before clipping, where it was needed, and why there was no step.

        `unit` and `weight` are c and Σ w of NOTE [The gradient of a window].
        """
        if self._scaler is None:
            return self._step(gradients, unit, weight)
        for optimizer in self._optimizers:
            self._scaler.unscale_(optimizer)
        try:
            return self._step(gradients, unit, weight)
        finally:
            self._scaler.update()

    @torch.no_grad()
    def _step(
        self, gradients: Gradients, unit: Amount, weight: Amount
    ) -> tuple[Amount | None, str]:
        grads = gradients.present()
        norm: Amount | None = None
        if self._look or self._clip_norm is not None:
            norm = total_norm(grads)
            if self._look:
                norm, unit, weight = read(norm, unit, weight)
                if weight == 0:
                    return None, "no weight"
            elif readable(norm):
                norm = norm.item()
        factor = unit * divided(self._ranks.size, weight)
        if norm is not None:
            norm = norm * factor
            if self._look and not math.isfinite(norm):
                return norm, "nonfinite"
            if self._clip_norm is not None:
                factor = factor * _most_one(self._clip_norm / (norm + 1e-6))
        if isinstance(factor, Tensor) or factor != 1.0:
            multiply(self._ranks.local(grads), factor)
        gradients.lay_open()
        if self._clip_value is not None:
            clip_grad_value_(gradients.params, self._clip_value)
        # Unscaled and looked at: scaler.step() would do the same after waiting for the device.
        for optimizer in self._optimizers:
            optimizer.step()
        return norm, ""


def _most_one(factor: Amount) -> Amount:
    if isinstance(factor, Tensor):
        return factor.clamp(max=1.0)
    return min(factor, 1.0)  # a nan stays one
