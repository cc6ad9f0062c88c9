"""The same linear layer, cleared before each backward: every step uses its own gradient only.

It prints:

    iteration 1: own |grad| 1.535, used 1.535
    iteration 2: own |grad| 1.457, used 1.457
    iteration 3: own |grad| 1.383, used 1.383
"""

import torch
from torch import nn

torch.manual_seed(0)
model = nn.Linear(10, 2)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
criterion = nn.MSELoss()
example = torch.linspace(-1, 1, 10).unsqueeze(0)
wanted = torch.tensor([[1.0, 0.0]])

for iteration in range(1, 4):
    optimizer.zero_grad()
    loss = criterion(model(example), wanted)
    (own,) = torch.autograd.grad(loss, model.weight, retain_graph=True)
    loss.backward()
    used = model.weight.grad
    print(f"iteration {iteration}: own |grad| {own.norm():.3f}, used {used.norm():.3f}")
    optimizer.step()
