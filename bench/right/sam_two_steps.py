"""Sharpness-aware minimisation: up, gradients there, back, step."""

import torch
from torch import nn

torch.manual_seed(68)
model = nn.Linear(3, 2)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
rho = 0.05

for x, y in [(torch.randn(4, 3), torch.randint(2, (4,))) for _ in range(5)]:
    optimizer.zero_grad()
    nn.functional.cross_entropy(model(x), y).backward()
    norm = torch.stack([p.grad.norm() for p in model.parameters()]).norm()
    moved = []
    with torch.no_grad():
        for p in model.parameters():
            e = p.grad * rho / (norm + 1e-12)
            p.add_(e)
            moved.append(e)
    optimizer.zero_grad()
    nn.functional.cross_entropy(model(x), y).backward()
    with torch.no_grad():
        for p, e in zip(model.parameters(), moved):
            p.sub_(e)
    optimizer.step()

result = list(model.parameters())
