import itertools

import torch
from torch import nn

torch.manual_seed(90)
data = [(torch.randn(3, 2), torch.randn(3, 1)) for _ in range(4)]
iterator = itertools.cycle(data)
net = nn.Linear(2, 1)
optimizer = torch.optim.AdamW(net.parameters(), lr=0.05)
max_iters, iters = 9, 0
while iters < max_iters:
    inputs, target = next(iterator)
    prediction = net(inputs)
    loss = nn.functional.mse_loss(prediction, target)
    optimizer.zero_grad(set_to_none=True)
    loss.backward()
    optimizer.step()
    iters += 1
result = list(net.parameters())
