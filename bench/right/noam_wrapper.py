"""An optimizer wrapped by a schedule of our own."""

import torch
from torch import nn


class NoamOpt:
    def __init__(self, size, factor, warmup, optimizer):
        self.optimizer = optimizer
        self._step = 0
        self.warmup, self.factor, self.size = warmup, factor, size

    def rate(self):
        return self.factor * self.size**-0.5 * min(self._step**-0.5, self._step * self.warmup**-1.5)

    def step(self):
        self._step += 1
        for p in self.optimizer.param_groups:
            p["lr"] = self.rate()
        self.optimizer.step()

    def zero_grad(self):
        self.optimizer.zero_grad()


torch.manual_seed(93)
model = nn.TransformerEncoderLayer(4, 2, 8, dropout=0.0, batch_first=True)
opt = NoamOpt(4, 1, 4, torch.optim.Adam(model.parameters(), lr=0, betas=(0.9, 0.98)))
for src in torch.randn(5, 2, 3, 4):
    opt.zero_grad()
    loss = (model(src) - src.flip(1)).pow(2).mean()
    loss.backward()
    opt.step()
result = list(model.parameters())
