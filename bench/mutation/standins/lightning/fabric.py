"""Stands in for Lightning's Fabric on one process, in a mixed precision that scales the loss."""

from __future__ import annotations

from typing import Any

import torch


class _Optimizer:
    """Steps through the scaler."""

    def __init__(self, optimizer: torch.optim.Optimizer, scaler: torch.amp.GradScaler) -> None:
        self.optimizer, self.scaler = optimizer, scaler

    def step(self) -> None:
        self.scaler.step(self.optimizer)
        self.scaler.update()

    def zero_grad(self) -> None:
        self.optimizer.zero_grad()


class Fabric:
    def __init__(self, accelerator: str = "cpu", devices: int = 1) -> None:
        self.accelerator, self.devices = accelerator, devices
        self.scaler = torch.amp.GradScaler("cpu", init_scale=64.0)

    def setup(self, model: torch.nn.Module, *optimizers: torch.optim.Optimizer) -> Any:
        return (model, *(_Optimizer(optimizer, self.scaler) for optimizer in optimizers))

    def setup_dataloaders(self, loader: Any) -> Any:
        return loader

    def backward(self, loss: torch.Tensor) -> None:
        torch.autograd.backward(self.scaler.scale(loss))

    def clip_gradients(
        self, module: torch.nn.Module, optimizer: _Optimizer, max_norm: float
    ) -> None:
        self.scaler.unscale_(optimizer.optimizer)
        torch.nn.utils.clip_grad_norm_(module.parameters(), max_norm)
