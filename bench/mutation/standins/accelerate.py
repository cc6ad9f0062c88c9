"""A stand-in for accelerate on one process: it scales the loss, and gates step and clear."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import torch


class _Loader:
    """Knows the last batch, which ends a window of any length."""

    def __init__(self, batches: Any, accelerator: Accelerator) -> None:
        self.batches, self.accelerator = batches, accelerator

    def __len__(self) -> int:
        return len(self.batches)

    def __iter__(self) -> Iterator[Any]:
        for number, batch in enumerate(self.batches, 1):
            self.accelerator.at_the_end = number == len(self.batches)
            yield batch


class _Optimizer:
    """Steps and clears only at the end of a window."""

    def __init__(self, optimizer: torch.optim.Optimizer, accelerator: Accelerator) -> None:
        self.optimizer, self.accelerator = optimizer, accelerator

    @property
    def param_groups(self) -> list[dict[str, Any]]:
        return self.optimizer.param_groups

    def step(self) -> None:
        if self.accelerator.sync_gradients:
            self.accelerator.scaler.step(self.optimizer)
            self.accelerator.scaler.update()

    def zero_grad(self, set_to_none: bool = True) -> None:
        if self.accelerator.sync_gradients:
            self.optimizer.zero_grad(set_to_none)


class Accelerator:
    """The part of Accelerator that one process on the CPU needs."""

    def __init__(self, gradient_accumulation_steps: int = 1) -> None:
        self.steps = gradient_accumulation_steps
        self.sync_gradients, self.at_the_end, self.count = True, False, 0
        self.scaler = torch.amp.GradScaler("cpu", init_scale=64.0)
        self.optimizers: list[torch.optim.Optimizer] = []

    def prepare(self, *things: Any) -> Any:
        wrapped = tuple(map(self._wrap, things))
        return wrapped if len(wrapped) > 1 else wrapped[0]

    def _wrap(self, thing: Any) -> Any:
        if isinstance(thing, torch.optim.Optimizer):
            self.optimizers.append(thing)
            return _Optimizer(thing, self)
        return _Loader(thing, self) if isinstance(thing, list) else thing

    @contextlib.contextmanager
    def accumulate(self, *models: torch.nn.Module) -> Iterator[None]:
        self.count = 0 if self.at_the_end else self.count + 1
        self.sync_gradients = self.count % self.steps == 0
        yield

    def backward(self, loss: torch.Tensor) -> None:
        torch.autograd.backward(self.scaler.scale(loss / self.steps))

    def clip_grad_norm_(self, parameters: Any, max_norm: float) -> torch.Tensor:
        for optimizer in self.optimizers:
            self.scaler.unscale_(optimizer)
        return torch.nn.utils.clip_grad_norm_(parameters, max_norm)
