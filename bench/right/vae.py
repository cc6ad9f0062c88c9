import torch
from torch import nn
from torch.nn import functional as F


class VAE(nn.Module):
    def __init__(self):
        super(VAE, self).__init__()
        self.enc = nn.Linear(4, 4)
        self.dec = nn.Linear(2, 4)

    def forward(self, x):
        mu, logvar = self.enc(x).chunk(2, dim=1)
        z = mu + torch.randn_like(mu) * torch.exp(0.5 * logvar)
        return torch.sigmoid(self.dec(z)), mu, logvar


def loss_function(recon_x, x, mu, logvar):
    BCE = F.binary_cross_entropy(recon_x, x, reduction="sum")
    KLD = -0.5 * torch.sum(1 + logvar - mu.pow(2) - logvar.exp())
    return BCE + KLD


torch.manual_seed(86)
model = VAE()
optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)


def train(epoch, loader, log_interval=2):
    model.train()
    train_loss = 0
    for batch_idx, data in enumerate(loader):
        optimizer.zero_grad()
        recon_batch, mu, logvar = model(data)
        loss = loss_function(recon_batch, data, mu, logvar)
        loss.backward()
        train_loss += loss.item()
        optimizer.step()
        if batch_idx % log_interval == 0:
            print("Train Epoch: {} [{}]".format(epoch, batch_idx))


for epoch in range(1, 3):
    train(epoch, torch.rand(3, 5, 4))
result = list(model.parameters())
