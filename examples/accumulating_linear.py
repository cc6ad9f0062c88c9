"""A linear layer that sees the same example three times and is never cleared: gradients add up.

It prints:

    iteration 1: own |grad| 1.535, used 1.535
    iteration 2: own |grad| 1.457, used 2.991
    iteration 3: own |grad| 1.305, used 4.296
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
    loss = criterion(model(example), wanted)
    (own,) = torch.autograd.grad(loss, model.weight, retain_graph=True)
    loss.backward()
    used = model.weight.grad
    print(f"iteration {iteration}: own |grad| {own.norm():.3f}, used {used.norm():.3f}")
    optimizer.step()
