"""pfrl: soft actor-critic's policy loss also leaves gradients in both critics."""

import random

import numpy as np
import pfrl
import torch
from torch import nn
from torch.distributions import Independent, Normal, TransformedDistribution
from torch.distributions.transforms import TanhTransform

random.seed(0)
np.random.seed(0)
torch.manual_seed(0)


def squashed(numbers: torch.Tensor) -> TransformedDistribution:
    middle, spread = numbers.chunk(2, dim=1)
    normal = Independent(Normal(middle, nn.functional.softplus(spread) + 0.01), 1)
    return TransformedDistribution(normal, [TanhTransform(cache_size=1)])


def critic() -> nn.Module:
    return nn.Sequential(
        pfrl.nn.ConcatObsAndAction(), nn.Linear(3, 16), nn.Tanh(), nn.Linear(16, 1)
    )


def adam(model: nn.Module) -> torch.optim.Optimizer:
    return torch.optim.Adam(model.parameters(), lr=0.001)


policy = nn.Sequential(nn.Linear(2, 16), nn.Tanh(), nn.Linear(16, 2), pfrl.nn.Lambda(squashed))
first, second = critic(), critic()
agent = pfrl.agents.SoftActorCritic(
    policy,
    first,
    second,
    adam(policy),
    adam(first),
    adam(second),
    pfrl.replay_buffers.ReplayBuffer(1000),
    gamma=0.9,
    gpu=None,
    replay_start_size=30,
    minibatch_size=8,
    entropy_target=-1,
    temperature_optimizer_lr=0.001,
    burnin_action_func=lambda: np.random.uniform(-1, 1, size=1).astype(np.float32),
)
# A point on a line, pushed left and right, is to rest at zero.
point = np.array([1.0, 0.0], dtype=np.float32)
for moment in range(1, 151):
    push = agent.act(point)
    speed = point[1] + 0.1 * push[0]
    point = np.array([point[0] + 0.1 * speed, speed], dtype=np.float32)
    ended = moment % 25 == 0
    agent.observe(point, -float(point[0] ** 2), False, ended)
    if ended:
        point = np.array([1.0, 0.0], dtype=np.float32)
weights = sum(weight.detach().double().sum().item() for weight in policy.parameters())
print("final", repr(weights + agent.temperature))
