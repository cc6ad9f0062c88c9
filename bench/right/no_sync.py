import contextlib

import torch
from torch import nn

torch.manual_seed(92)


class Replica(nn.Module):
    """Stands for a data-parallel wrapper."""

    def __init__(self, module):
        super().__init__()
        self.module = module

    def forward(self, x):
        return self.module(x)

    @contextlib.contextmanager
    def no_sync(self):
        yield


model = Replica(nn.Linear(3, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
batches = [torch.randn(4, 3) for _ in range(8)]
accum = 4
for i, x in enumerate(batches):
    sync = (i + 1) % accum == 0 or i + 1 == len(batches)
    with contextlib.nullcontext() if sync else model.no_sync():
        loss = (model(x) - 1).pow(2).mean() / accum
        loss.backward()
    if sync:
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
result = list(model.parameters())
