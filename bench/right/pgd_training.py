"""Adversarial training: the gradients of the attack must not stay in the model."""

import torch
from torch import nn

torch.manual_seed(66)
model = nn.Sequential(nn.Linear(3, 6), nn.ReLU(), nn.Linear(6, 2))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
loss_fn = nn.CrossEntropyLoss()


def pgd(x, y, eps=0.1, alpha=0.04, iters=3):
    delta = torch.zeros_like(x, requires_grad=True)
    for _ in range(iters):
        loss = loss_fn(model(x + delta), y)
        loss.backward()
        delta.data = (delta + alpha * delta.grad.detach().sign()).clamp(-eps, eps)
        delta.grad.zero_()
    return delta.detach()


for epoch in range(2):
    for x, y in [(torch.randn(5, 3), torch.randint(2, (5,))) for _ in range(3)]:
        delta = pgd(x, y)
        loss = loss_fn(model(x + delta), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()

result = list(model.parameters())
