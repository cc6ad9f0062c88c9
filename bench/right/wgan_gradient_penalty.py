import torch
from torch import autograd, nn, optim

torch.manual_seed(12)


class GAN:
    def __init__(self):
        self.G = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 2))
        self.D = nn.Sequential(nn.Linear(2, 4), nn.Tanh(), nn.Linear(4, 1))
        self.opt_G = optim.Adam(self.G.parameters(), lr=1e-2)
        self.opt_D = optim.Adam(self.D.parameters(), lr=1e-2)

    def penalty(self, real, fake):
        eps = torch.rand(real.size(0), 1)
        mixed = (eps * real + (1 - eps) * fake).requires_grad_(True)
        grad = autograd.grad(self.D(mixed).sum(), mixed, create_graph=True)[0]
        return ((grad.norm(2, dim=1) - 1) ** 2).mean()

    def step_D(self, real):
        self.opt_D.zero_grad()
        fake = self.G(torch.randn(real.size(0), 3)).detach()
        loss = self.D(fake).mean() - self.D(real).mean() + 10 * self.penalty(real, fake)
        loss.backward()
        self.opt_D.step()
        return loss.item()

    def step_G(self, n):
        self.opt_G.zero_grad()
        loss = -self.D(self.G(torch.randn(n, 3))).mean()
        loss.backward()
        self.opt_G.step()
        return loss.item()

    def fit(self, batches):
        for i, real in enumerate(batches):
            self.step_D(real)
            if i % 2 == 1:
                self.step_G(len(real))


gan = GAN()
gan.fit([torch.randn(4, 2) + 1 for _ in range(6)])
result = [*gan.G.parameters(), *gan.D.parameters()]
