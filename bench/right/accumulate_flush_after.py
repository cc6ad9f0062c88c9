"""The partial window at the end of the loader is stepped after the loop."""

import torch
from torch import nn

torch.manual_seed(20)


def run(model, batches, accum=3):
    opt = torch.optim.SGD(model.parameters(), lr=0.1)
    for epoch in range(2):
        for i, batch in enumerate(batches):
            loss = model(batch).square().mean() / accum
            loss.backward()
            if i % accum == accum - 1:
                opt.step()
                opt.zero_grad()
        if len(batches) % accum != 0:
            opt.step()
            opt.zero_grad()


model = nn.Linear(3, 2)
run(model, torch.randn(7, 5, 3))
result = [model.weight, model.bias]
