"""What the tests have in common: a training loop that can forget to clear, and the data."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch


@pytest.fixture
def fit() -> Callable[..., float]:
    """Fits a line, and returns the last loss."""

    def train(clear: str = "zero_grad", epochs: int = 60) -> float:
        torch.manual_seed(0)
        x = torch.linspace(-1, 1, 32).unsqueeze(1)
        y = 2 * x + 1
        model = torch.nn.Linear(1, 1)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.02)
        loss = torch.tensor(0.0)
        for _ in range(epochs):
            getattr(optimizer, clear)()
            loss = torch.nn.functional.mse_loss(model(x), y)
            loss.backward()
            optimizer.step()
        return loss.item()

    return train
