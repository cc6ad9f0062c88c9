"""Pitfall 3: param.grad.zero_() before any backward(). No parameter has a gradient yet.

It raises AttributeError: 'NoneType' object has no attribute 'zero_'
"""

import torch
from torch import nn

model = nn.Linear(1, 1, bias=False)
nn.init.zeros_(model.weight)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
loss_fn = nn.MSELoss()
data = torch.tensor([[-1.0], [0.5], [1.0], [-0.5]] * 20).split(2)

for x in data:
    for param in model.parameters():
        param.grad.zero_()
    loss = loss_fn(model(x), 3 * x)
    loss.backward()
    optimizer.step()

print(f"slope after {len(data)} batches: {model.weight.item():.2f}, wanted 3.00")
