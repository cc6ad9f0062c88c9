"""The expected gradient of a window: that of one big batch, in float64, by torch.autograd.grad."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch import Tensor, nn

Batch = tuple[Tensor, Tensor]
TOLERANCE = 1e-12

torch.set_num_threads(1)


def net(seed: int = 0) -> nn.Sequential:
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(3, 5), nn.Tanh(), nn.Linear(5, 2)).double()


def data(*sizes: int, seed: int = 1) -> list[Batch]:
    """Batches of these sizes. A size of 0 is a batch with one sample that is masked."""
    made = torch.Generator().manual_seed(seed)
    return [
        (
            torch.randn(max(size, 1), 3, generator=made, dtype=torch.float64),
            torch.randn(max(size, 1), 2, generator=made, dtype=torch.float64),
        )
        for size in sizes
    ]


def loss_of(model: nn.Module, batch: Batch) -> Tensor:
    x, y = batch
    return torch.nn.functional.mse_loss(model(x), y)


def big_batch(model: nn.Module, batches: Sequence[Batch]) -> list[Tensor]:
    """The gradient of the mean over all samples of these batches."""
    whole = torch.cat([x for x, _ in batches]), torch.cat([y for _, y in batches])
    return list(torch.autograd.grad(loss_of(model, whole), list(model.parameters())))


def error(found: Sequence[Tensor], expected: Sequence[Tensor]) -> float:
    """The relative error of a gradient."""
    pairs = list(zip(found, expected, strict=True))
    off = sum(float((one.double() - other.double()).square().sum()) for one, other in pairs)
    size = sum(float(other.double().square().sum()) for _, other in pairs)
    return float((off / size) ** 0.5) if size else off**0.5


class Seen:
    """The gradients that each step used, and the parameters before the step."""

    def __init__(self, optimizer: torch.optim.Optimizer) -> None:
        self.gradients: list[list[Tensor]] = []
        self.weights: list[list[Tensor]] = []
        optimizer.register_step_pre_hook(self._look)

    def _look(self, optimizer: torch.optim.Optimizer, args: Any, kwargs: Any) -> None:
        params = [param for group in optimizer.param_groups for param in group["params"]]
        self.gradients.append([_copy(param.grad, param) for param in params])
        self.weights.append([param.detach().clone() for param in params])

    def __iter__(self) -> Iterator[tuple[list[Tensor], list[Tensor]]]:
        return zip(self.weights, self.gradients, strict=True)


def _copy(grad: Tensor | None, param: Tensor) -> Tensor:
    return torch.zeros_like(param) if grad is None else grad.detach().clone()


def expect(seen: Seen, windows: Sequence[Sequence[Batch]], *, tolerance: float = TOLERANCE) -> None:
    """Check that every step used the gradient of one big batch, at the weights of that step."""
    assert len(seen.gradients) == len(windows)
    for (weights, gradient), window in zip(seen, windows, strict=True):
        model = net()
        with torch.no_grad():
            for param, value in zip(model.parameters(), weights, strict=True):
                param.copy_(value)
        assert error(gradient, big_batch(model, window)) <= tolerance
