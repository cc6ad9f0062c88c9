import torch
from torch import nn

torch.manual_seed(11)
n_critic, clamp = 3, 0.05
generator = nn.Sequential(nn.Linear(2, 4), nn.Tanh(), nn.Linear(4, 2))
critic = nn.Sequential(nn.Linear(2, 4), nn.Tanh(), nn.Linear(4, 1))
optimizer_g = torch.optim.RMSprop(generator.parameters(), lr=5e-3)
optimizer_c = torch.optim.RMSprop(critic.parameters(), lr=5e-3)


def sample(n=5):
    return torch.randn(n, 2) * 0.5 + 1


for iteration in range(3):
    for _ in range(n_critic):
        optimizer_c.zero_grad()
        with torch.no_grad():
            fake = generator(torch.randn(5, 2))
        loss_c = critic(fake).mean() - critic(sample()).mean()
        loss_c.backward()
        optimizer_c.step()
        for p in critic.parameters():
            p.data.clamp_(-clamp, clamp)
    optimizer_g.zero_grad()
    loss_g = -critic(generator(torch.randn(5, 2))).mean()
    loss_g.backward()
    optimizer_g.step()

result = [p for m in (generator, critic) for p in m.parameters()]
