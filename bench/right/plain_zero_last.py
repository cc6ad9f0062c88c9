"""The clear is at the end of the iteration."""

import torch
import torch.nn as nn
import torch.nn.functional as F
import torch.optim as optim

torch.manual_seed(1)
net = nn.Linear(4, 3)
opt = optim.Adam(net.parameters(), lr=1e-2)
batches = [(torch.randn(6, 4), torch.randint(3, (6,))) for _ in range(4)]


def train(epochs=2):
    net.train()
    for _ in range(epochs):
        for x, y in batches:
            loss = F.cross_entropy(net(x), y)
            loss.backward()
            opt.step()
            opt.zero_grad()


train()
result = [net.weight, net.bias]
