"""A batch that runs out of memory is skipped, and its gradients are cleared."""

import torch
from torch import nn

torch.manual_seed(89)
model = nn.Linear(3, 2)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)


def forward(x):
    if len(x) > 5:
        raise RuntimeError("out of memory")
    return model(x)


for n in (4, 5, 6, 3, 7, 4):
    x = torch.randn(n, 3)
    optimizer.zero_grad()
    try:
        loss = forward(x).pow(2).mean()
        loss.backward()
    except RuntimeError as e:
        if "out of memory" not in str(e):
            raise
        print("skipping a batch of", n)
        continue
    optimizer.step()
result = list(model.parameters())
