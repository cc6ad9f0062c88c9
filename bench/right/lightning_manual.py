"""Manual optimization, called batch by batch as Lightning's loop calls it."""

import lightning as L
import torch
from torch import nn


class GAN(L.LightningModule):
    def __init__(self):
        super().__init__()
        self.automatic_optimization = False
        self.generator = nn.Linear(2, 2)
        self.discriminator = nn.Linear(2, 1)

    def training_step(self, batch, batch_idx):
        g_opt, d_opt = self.optimizers()
        fake = self.generator(torch.randn_like(batch))

        d_loss = self.discriminator(fake.detach()).mean() - self.discriminator(batch).mean()
        d_opt.zero_grad()
        self.manual_backward(d_loss)
        d_opt.step()

        g_loss = -self.discriminator(fake).mean() + fake.pow(2).mean()
        g_opt.zero_grad()
        self.manual_backward(g_loss)
        g_opt.step()

    def configure_optimizers(self):
        g_opt = torch.optim.Adam(self.generator.parameters(), lr=0.01)
        d_opt = torch.optim.Adam(self.discriminator.parameters(), lr=0.01)
        return g_opt, d_opt


torch.manual_seed(114)
gan = GAN()
L.Trainer(max_epochs=2).fit(gan, [torch.randn(4, 2) for _ in range(4)])
result = list(gan.parameters())
