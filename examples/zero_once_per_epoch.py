"""zero_grad() once per epoch instead of once per batch: only the first step of an epoch is right.

It prints:

    epoch 1 batch 1: own |grad| 2.08, used 2.08
    epoch 1 batch 2: own |grad| 2.46, used 4.52
    epoch 1 batch 3: own |grad| 0.46, used 4.87
    epoch 2 batch 1: own |grad| 1.71, used 1.71
    epoch 2 batch 2: own |grad| 1.97, used 3.67
    epoch 2 batch 3: own |grad| 0.40, used 3.94
"""

import torch
from torch import nn

torch.manual_seed(0)
model = nn.Linear(3, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
batches = [(torch.randn(16, 3), torch.ones(16, 1)) for _ in range(3)]

for epoch in range(1, 3):
    optimizer.zero_grad()
    for number, (x, y) in enumerate(batches, start=1):
        loss = (model(x) - y).pow(2).mean()
        (own,) = torch.autograd.grad(loss, model.weight, retain_graph=True)
        loss.backward()
        used = model.weight.grad
        print(f"epoch {epoch} batch {number}: own |grad| {own.norm():.2f}, used {used.norm():.2f}")
        optimizer.step()
