import torch
from torch import nn
from torch.nn.functional import binary_cross_entropy_with_logits as bce

torch.manual_seed(10)
G = nn.Linear(2, 2)
D = nn.Linear(2, 1)
g_opt = torch.optim.Adam(G.parameters(), lr=0.01)
d_opt = torch.optim.Adam(D.parameters(), lr=0.01)
ones, zeros = torch.ones(6, 1), torch.zeros(6, 1)

for real in torch.randn(5, 6, 2):
    # generator first
    g_opt.zero_grad()
    fake = G(torch.randn(6, 2))
    g_loss = bce(D(fake), ones)
    g_loss.backward()
    g_opt.step()

    # then the discriminator; what G's backward left in it is cleared here
    d_opt.zero_grad()
    d_loss = (bce(D(real), ones) + bce(D(fake.detach()), zeros)) / 2
    d_loss.backward()
    d_opt.step()

result = list(G.parameters()) + list(D.parameters())
