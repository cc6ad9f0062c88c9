"""Main losses in every iteration, regularisers in some, each with its own clear, backward and step."""

import torch
from torch import nn

torch.manual_seed(81)
g, d = nn.Linear(2, 2), nn.Sequential(nn.Linear(2, 4), nn.Softplus(), nn.Linear(4, 1))
g_optim = torch.optim.Adam(g.parameters(), lr=0.01)
d_optim = torch.optim.Adam(d.parameters(), lr=0.01)


def requires_grad(model, flag=True):
    for p in model.parameters():
        p.requires_grad = flag


for i in range(6):
    real = torch.randn(4, 2)
    requires_grad(g, False)
    requires_grad(d, True)
    fake = g(torch.randn(4, 2))
    d_loss = nn.functional.softplus(d(fake)).mean() + nn.functional.softplus(-d(real)).mean()
    d.zero_grad()
    d_loss.backward()
    d_optim.step()

    if i % 4 == 0:
        real.requires_grad = True
        (grad,) = torch.autograd.grad(d(real).sum(), real, create_graph=True)
        r1_loss = grad.pow(2).sum(1).mean()
        d.zero_grad()
        (5 * r1_loss + 0 * d(real)[0, 0]).backward()
        d_optim.step()

    requires_grad(g, True)
    requires_grad(d, False)
    g_loss = nn.functional.softplus(-d(g(torch.randn(4, 2)))).mean()
    g.zero_grad()
    g_loss.backward()
    g_optim.step()

result = [*g.parameters(), *d.parameters()]
