import torch
from torch import nn


class SAM(torch.optim.Optimizer):
    def __init__(self, params, base, rho=0.05, **kwargs):
        super().__init__(params, dict(rho=rho, **kwargs))
        self.base = base(self.param_groups, **kwargs)

    @torch.no_grad()
    def first_step(self, zero_grad=False):
        norm = torch.stack([p.grad.norm() for g in self.param_groups for p in g["params"]]).norm()
        for group in self.param_groups:
            for p in group["params"]:
                e = p.grad * group["rho"] / (norm + 1e-12)
                p.add_(e)
                self.state[p]["e"] = e
        if zero_grad:
            self.zero_grad()

    @torch.no_grad()
    def second_step(self, zero_grad=False):
        for group in self.param_groups:
            for p in group["params"]:
                p.sub_(self.state[p]["e"])
        self.base.step()
        if zero_grad:
            self.zero_grad()

    def step(self, closure=None):
        raise NotImplementedError


torch.manual_seed(69)
model = nn.Linear(3, 1)
optimizer = SAM(model.parameters(), torch.optim.SGD, lr=0.05, momentum=0.9)
for _ in range(5):
    x, y = torch.randn(4, 3), torch.randn(4, 1)
    loss = (model(x) - y).pow(2).mean()
    loss.backward()
    optimizer.first_step(zero_grad=True)
    (model(x) - y).pow(2).mean().backward()
    optimizer.second_step(zero_grad=True)
result = list(model.parameters())
