"""Two independent networks, trained in one loop."""

import torch
from torch import nn

torch.manual_seed(18)
mse = nn.MSELoss()
first, second = nn.Linear(2, 1), nn.Linear(2, 1)
opt1 = torch.optim.SGD(first.parameters(), lr=0.1)
opt2 = torch.optim.SGD(second.parameters(), lr=0.1)
for i in range(5):
    x, y = torch.randn(4, 2), torch.randn(4, 1)
    loss1 = mse(first(x), y)
    opt1.zero_grad()
    loss1.backward()
    opt1.step()

    loss2 = mse(second(x), -y)
    opt2.zero_grad()
    loss2.backward()
    opt2.step()
result = [first.weight, first.bias, second.weight, second.bias]
