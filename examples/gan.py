"""A GAN in one dimension: the generator's backward adds to the discriminator, which clears in time.

It prints:

    left in the discriminator by the generator's backward: True
    mean of the fakes: 3, of the real: 3
"""

import torch
from torch import nn

torch.manual_seed(0)
generator = nn.Linear(1, 1)
discriminator = nn.Sequential(nn.Linear(1, 16), nn.LeakyReLU(0.2), nn.Linear(16, 1))
opt_g = torch.optim.Adam(generator.parameters(), lr=0.02, betas=(0.5, 0.9))
opt_d = torch.optim.Adam(discriminator.parameters(), lr=0.02, betas=(0.5, 0.9))
bce = nn.BCEWithLogitsLoss()
ones, zeros = torch.ones(64, 1), torch.zeros(64, 1)

left_behind = 0.0
for _ in range(300):
    real = 3.0 + 0.5 * torch.randn(64, 1)
    fake = generator(torch.randn(64, 1))

    opt_d.zero_grad()
    d_loss = bce(discriminator(real), ones) + bce(discriminator(fake.detach()), zeros)
    d_loss.backward()
    used = discriminator[0].weight.grad.clone()
    opt_d.step()

    opt_g.zero_grad()
    g_loss = bce(discriminator(fake), ones)
    g_loss.backward()
    left_behind = max(left_behind, (discriminator[0].weight.grad - used).norm().item())
    opt_g.step()

print(f"left in the discriminator by the generator's backward: {left_behind > 0}")
print(f"mean of the fakes: {fake.mean():.0f}, of the real: 3")
