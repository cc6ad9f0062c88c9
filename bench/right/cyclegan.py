import itertools

import torch
from torch import nn

torch.manual_seed(13)
netG_A2B, netG_B2A = nn.Linear(2, 2), nn.Linear(2, 2)
netD_A, netD_B = nn.Linear(2, 1), nn.Linear(2, 1)
criterion_GAN = nn.MSELoss()
criterion_cycle = nn.L1Loss()
optimizer_G = torch.optim.Adam(
    itertools.chain(netG_A2B.parameters(), netG_B2A.parameters()), lr=1e-2
)
optimizer_D_A = torch.optim.Adam(netD_A.parameters(), lr=1e-2)
optimizer_D_B = torch.optim.Adam(netD_B.parameters(), lr=1e-2)
target_real, target_fake = torch.ones(3, 1), torch.zeros(3, 1)

for _ in range(4):
    real_A, real_B = torch.randn(3, 2), torch.rand(3, 2)

    ###### Generators A2B and B2A ######
    optimizer_G.zero_grad()
    fake_B = netG_A2B(real_A)
    fake_A = netG_B2A(real_B)
    loss_G = criterion_GAN(netD_B(fake_B), target_real) + criterion_GAN(netD_A(fake_A), target_real)
    loss_G = loss_G + 10 * criterion_cycle(netG_B2A(fake_B), real_A)
    loss_G = loss_G + 10 * criterion_cycle(netG_A2B(fake_A), real_B)
    loss_G.backward()
    optimizer_G.step()

    ###### Discriminator A ######
    optimizer_D_A.zero_grad()
    loss_D_A = criterion_GAN(netD_A(real_A), target_real)
    loss_D_A = loss_D_A + criterion_GAN(netD_A(fake_A.detach()), target_fake)
    loss_D_A.backward()
    optimizer_D_A.step()

    ###### Discriminator B ######
    optimizer_D_B.zero_grad()
    loss_D_B = criterion_GAN(netD_B(real_B), target_real)
    loss_D_B = loss_D_B + criterion_GAN(netD_B(fake_B.detach()), target_fake)
    loss_D_B.backward()
    optimizer_D_B.step()

result = [p for m in (netG_A2B, netG_B2A, netD_A, netD_B) for p in m.parameters()]
