import torch
from torch import nn

torch.manual_seed(126)
model = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 1))
unused = nn.Linear(2, 2)
params = [*model.parameters(), *unused.parameters()]
optimizer = torch.optim.SGD(params, lr=0.1)
for x in torch.randn(6, 5, 3):
    for p in params:
        if p.grad is not None:
            p.grad.data.zero_()
    loss = (model(x) * 20 - x.sum(1, keepdim=True)).pow(2).mean()
    loss.backward()
    for p in params:
        if p.grad is not None:
            p.grad.data.clamp_(-0.1, 0.1)
    optimizer.step()
result = params
