from __future__ import annotations

from dataclasses import dataclass, field

import torch
from torch import Tensor, nn
from torch.optim import Optimizer


@dataclass
class TrainState:
    model: nn.Module
    optimizer: Optimizer
    step: int = 0
    losses: list[float] = field(default_factory=list)


def update(state: TrainState, x: Tensor, y: Tensor) -> None:
    state.optimizer.zero_grad()
    loss = nn.functional.mse_loss(state.model(x), y)
    loss.backward()
    nn.utils.clip_grad_norm_(state.model.parameters(), max_norm=0.8)
    state.optimizer.step()
    state.step += 1
    state.losses.append(loss.item())


torch.manual_seed(96)
model = nn.Linear(2, 1)
state = TrainState(model, torch.optim.Adam(model.parameters(), lr=0.05))
for _ in range(6):
    update(state, torch.randn(4, 2), torch.randn(4, 1))
result = list(state.model.parameters())
