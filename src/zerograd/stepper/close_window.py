"""The end of a window: unscale, normalise, clip, step, update. In this order, once."""

from __future__ import annotations

import math
import weakref

import torch
from torch import Tensor
from torch.nn.utils import clip_grad_value_
from torch.optim import Optimizer

from zerograd.stepper.gradients import Gradients, multiply, total_norm
from zerograd.stepper.sharing import SingleProcess
from zerograd.stepper.weights import Scalar, on_host, safe_divide, to_numbers

_scaler_users: weakref.WeakKeyDictionary[torch.amp.GradScaler, weakref.ref[CloseWindow]] = (
    weakref.WeakKeyDictionary()
)


class CloseWindow:
    """Steps with the gradients of a window, or says why not."""

    def __init__(
        self,
        optimizers: list[Optimizer],
        scaler: torch.amp.GradScaler | None,
        ranks: SingleProcess,
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
        self._check_finite = skip_nonfinite or scaler is not None
        """Whether to look for inf and nan. Only this waits for a device."""

    def claim_scaler(self) -> None:
        """Refuse a scaler that another stepper uses."""
        if self._scaler is None:
            return
        user = _scaler_users.get(self._scaler, lambda: None)()
        if user is not None and user is not self:
            raise ValueError(
                "two steppers share a GradScaler, but it has one scale and each stepper would"
                " update it: give each stepper its own scaler"
            )
        _scaler_users[self._scaler] = weakref.ref(self)

    def scale(self, device: torch.device) -> Scalar | None:
        """The scale of the scaler, read without waiting for the device: 1, scaled."""
        return None if self._scaler is None else self._scaler.scale(torch.ones((), device=device))

    def __call__(
        self, gradients: Gradients, unit: Scalar, weight: Scalar
    ) -> tuple[Scalar | None, str]:
        """The norm before clipping, where an option needs it, and the reason if there was no step.

        `unit` and `weight` are c and Σ w of NOTE [The gradient of a window] in window.py.
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
        self, gradients: Gradients, unit: Scalar, weight: Scalar
    ) -> tuple[Scalar | None, str]:
        grads = gradients.present()
        norm: Scalar | None = None
        if self._check_finite or self._clip_norm is not None:
            norm = total_norm(grads)
            if self._check_finite:
                norm, unit, weight = to_numbers(norm, unit, weight)
                if weight == 0:
                    return None, "no weight"
            elif on_host(norm):
                norm = norm.item()
        factor = unit * safe_divide(self._ranks.size, weight)
        if norm is not None:
            norm = norm * factor
            if self._check_finite and not math.isfinite(norm):
                return norm, "nonfinite"
            if self._clip_norm is not None:
                factor = factor * _at_most_one(self._clip_norm / (norm + 1e-6))
        if isinstance(factor, Tensor) or factor != 1.0:
            multiply(self._ranks.local(grads), factor)
        gradients.write_grad()
        if self._clip_value is not None:
            clip_grad_value_(gradients.params, self._clip_value)
        # Not scaler.step(): the gradients are unscaled and checked, and it would wait again.
        for optimizer in self._optimizers:
            optimizer.step()
        return norm, ""


def _at_most_one(factor: Scalar) -> Scalar:
    if isinstance(factor, Tensor):
        return factor.clamp(max=1.0)
    return min(factor, 1.0)  # nan stays nan
