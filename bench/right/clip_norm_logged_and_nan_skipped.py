"""A step is skipped if the norm is not finite; the gradients are cleared anyway."""

import math

import torch
from torch import nn

torch.manual_seed(44)
model = nn.Sequential(nn.Linear(2, 3), nn.Tanh(), nn.Linear(3, 1))
optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
norms = []
for i in range(8):
    x = torch.randn(4, 2)
    if i == 3:
        x[0, 0] = math.inf
    loss = (model(x) * x[:, :1] - 1).pow(2).mean()
    loss.backward()
    grad_norm = torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    if not torch.isfinite(grad_norm):
        print(f"step {i}: gradient norm is {grad_norm}, skipped")
        optimizer.zero_grad()
        continue
    norms.append(float(grad_norm))
    optimizer.step()
    optimizer.zero_grad()

result = list(model.parameters())
