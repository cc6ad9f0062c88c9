"""A closure with an optimizer that does not need one."""

import torch

torch.manual_seed(51)


class Fit:
    def __init__(self):
        self.w = torch.nn.Parameter(torch.randn(3))
        self.opt = torch.optim.SGD([self.w], lr=0.1)

    def closure(self):
        self.opt.zero_grad()
        loss = (self.x @ self.w - self.y).pow(2).mean()
        loss.backward()
        return loss

    def run(self, n):
        for _ in range(n):
            self.x, self.y = torch.randn(5, 3), torch.randn(5)
            self.opt.step(self.closure)


fit = Fit()
fit.run(5)
result = [fit.w]
