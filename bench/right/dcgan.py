"""D on real and fake, then G through D, as in the DCGAN tutorial."""

import torch
import torch.nn as nn
import torch.optim as optim

torch.manual_seed(9)
nz, ngf, nx = 3, 6, 2
netG = nn.Sequential(nn.Linear(nz, ngf), nn.ReLU(True), nn.Linear(ngf, nx))
netD = nn.Sequential(nn.Linear(nx, ngf), nn.LeakyReLU(0.2), nn.Linear(ngf, 1), nn.Sigmoid())
criterion = nn.BCELoss()
optimizerD = optim.Adam(netD.parameters(), lr=2e-3, betas=(0.5, 0.999))
optimizerG = optim.Adam(netG.parameters(), lr=2e-3, betas=(0.5, 0.999))
dataloader = [torch.randn(4, nx) + 2 for _ in range(4)]

for epoch in range(2):
    for i, data in enumerate(dataloader, 0):
        ############################
        # (1) Update D network
        ###########################
        netD.zero_grad()
        real = data
        label = torch.full((4,), 1.0)
        output = netD(real).view(-1)
        errD_real = criterion(output, label)
        errD_real.backward()
        noise = torch.randn(4, nz)
        fake = netG(noise)
        label.fill_(0.0)
        output = netD(fake.detach()).view(-1)
        errD_fake = criterion(output, label)
        errD_fake.backward()
        errD = errD_real + errD_fake
        optimizerD.step()

        ############################
        # (2) Update G network
        ###########################
        netG.zero_grad()
        label.fill_(1.0)
        output = netD(fake).view(-1)
        errG = criterion(output, label)
        errG.backward()
        optimizerG.step()

result = [*netG.parameters(), *netD.parameters()]
