"""Clears in place: with momentum, a step with zero gradients still moves the weights."""
import torch

torch.manual_seed(3)
weight = torch.nn.Parameter(torch.randn(3))
bias = torch.nn.Parameter(torch.zeros(1))
optimizer = torch.optim.SGD([weight, bias], lr=0.1, momentum=0.9)
data = torch.randn(10, 3)

for row in data:
    optimizer.zero_grad(set_to_none=False)
    error = (row @ weight + bias - 1.0) ** 2
    error.sum().backward()
    optimizer.step()

result = [weight, bias]
