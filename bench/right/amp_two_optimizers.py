"""One scaler for both; it is updated once per iteration."""

import torch
from torch import nn

torch.manual_seed(33)
model0, model1 = nn.Linear(2, 2), nn.Linear(2, 2)
optimizer0 = torch.optim.SGD(model0.parameters(), lr=0.1)
optimizer1 = torch.optim.SGD(model1.parameters(), lr=0.2)
scaler = torch.amp.GradScaler("cpu", init_scale=128.0)

for x in torch.randn(5, 4, 2):
    optimizer0.zero_grad()
    optimizer1.zero_grad()
    out0 = model0(x)
    out1 = model1(out0)
    loss0 = (out0 - 1).abs().mean()
    loss1 = (out1 + 1).pow(2).mean()
    scaler.scale(loss0).backward(retain_graph=True)
    scaler.scale(loss1).backward()
    scaler.unscale_(optimizer0)
    torch.nn.utils.clip_grad_norm_(model0.parameters(), 1.0)
    scaler.step(optimizer0)
    scaler.step(optimizer1)
    scaler.update()

result = [*model0.parameters(), *model1.parameters()]
