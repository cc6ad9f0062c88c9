"""A counter of all micro-batches over all epochs; the partial window at the end is stepped too."""

import torch
from torch import nn

torch.manual_seed(117)
model = nn.Linear(2, 2)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
accum_steps = 3
micro = 0
for epoch in range(2):
    for x in torch.randn(5, 4, 2):
        (model(x).pow(2).mean() / accum_steps).backward()
        micro += 1
        if micro % accum_steps == 0:
            optimizer.step()
            optimizer.zero_grad()
if micro % accum_steps:
    optimizer.step()
    optimizer.zero_grad()
result = list(model.parameters())
