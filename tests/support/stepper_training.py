"""A small training with a `Stepper`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from support.big_batch import Batch, Seen, loss_of, net
from zerograd.stepper import Stepper


class Training:
    """A model, an optimizer, a stepper, and the gradients that it used."""

    def __init__(self, optimizer: str = "SGD", *, lr: float = 0.1, **options: Any) -> None:
        self.model = net()
        kind = getattr(torch.optim, optimizer)
        self.optimizer: torch.optim.Optimizer = kind(self.model.parameters(), lr=lr)
        self.seen = Seen(self.optimizer)
        self.stepper = Stepper(self.model, self.optimizer, **options)

    def run(
        self, batches: Any, weigh: Callable[[Batch], object] = lambda batch: len(batch[0])
    ) -> None:
        for batch in self.stepper(batches):
            self.stepper.backward(loss_of(self.model, batch), weight=weigh(batch))

    def weights(self) -> list[Tensor]:
        return [param.detach().clone() for param in self.model.parameters()]

    def gradients(self) -> list[Tensor | None]:
        return [param.grad for param in self.model.parameters()]


def constant(weight: object) -> Callable[[Batch], object]:
    return lambda _: weight


def same(one: list[Tensor], other: list[Tensor]) -> bool:
    return all(torch.equal(a, b) for a, b in zip(one, other, strict=True))


def split(batches: list[Batch], n: int) -> list[list[Batch]]:
    return [batches[start : start + n] for start in range(0, len(batches), n)]
