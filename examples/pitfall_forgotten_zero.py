"""Pitfall 1: no zero_grad() in the loop. The fit oscillates instead of settling on y = 3x.

It prints:

    slope after 40 batches: 3.78, wanted 3.00
"""

import torch
from torch import nn

model = nn.Linear(1, 1, bias=False)
nn.init.zeros_(model.weight)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
loss_fn = nn.MSELoss()
data = torch.tensor([[-1.0], [0.5], [1.0], [-0.5]] * 20).split(2)

for x in data:
    loss = loss_fn(model(x), 3 * x)
    loss.backward()
    optimizer.step()

print(f"slope after {len(data)} batches: {model.weight.item():.2f}, wanted 3.00")
