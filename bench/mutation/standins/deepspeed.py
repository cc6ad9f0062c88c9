"""A stand-in for DeepSpeed on one process: an engine that scales the loss, steps and clears."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch


class Engine(torch.nn.Module):
    def __init__(self, module: torch.nn.Module, optimizer: torch.optim.Optimizer) -> None:
        super().__init__()
        self.module, self.optimizer = module, optimizer
        self.scaler = torch.amp.GradScaler("cpu", init_scale=64.0)

    def forward(self, *inputs: Any) -> Any:
        return self.module(*inputs)

    def backward(self, loss: torch.Tensor) -> None:
        torch.autograd.backward(self.scaler.scale(loss))

    def step(self) -> None:
        self.scaler.step(self.optimizer)
        self.scaler.update()
        self.optimizer.zero_grad()


def initialize(
    model: torch.nn.Module,
    model_parameters: Iterable[torch.nn.Parameter],
    config: dict[str, Any],
) -> tuple[Engine, torch.optim.Optimizer, None, None]:
    wanted = config["optimizer"]
    optimizer = getattr(torch.optim, wanted["type"])(model_parameters, **wanted["params"])
    return Engine(model, optimizer), optimizer, None, None
