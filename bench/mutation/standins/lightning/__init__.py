"""Stands in for Lightning on one process, manual optimization only."""

from __future__ import annotations

from typing import Any

import torch


class LightningModule(torch.nn.Module):
    trainer: Trainer

    def __init__(self) -> None:
        super().__init__()
        self.automatic_optimization = True

    def optimizers(self) -> Any:
        return self.trainer.optimizers

    def manual_backward(self, loss: torch.Tensor) -> None:
        torch.autograd.backward(loss)

    def clip_gradients(
        self,
        optimizer: torch.optim.Optimizer,
        gradient_clip_val: float,
        gradient_clip_algorithm: str = "norm",
    ) -> None:
        params = [param for group in optimizer.param_groups for param in group["params"]]
        torch.nn.utils.clip_grad_norm_(params, gradient_clip_val)


class Trainer:
    def __init__(self, max_epochs: int) -> None:
        self.max_epochs = max_epochs
        self.optimizers: Any = None
        self.is_last_batch = False

    def fit(self, module: Any, batches: list[Any]) -> None:
        object.__setattr__(module, "trainer", self)
        self.optimizers = module.configure_optimizers()
        for _ in range(self.max_epochs):
            for number, batch in enumerate(batches):
                self.is_last_batch = number + 1 == len(batches)
                module.training_step(batch, number)
