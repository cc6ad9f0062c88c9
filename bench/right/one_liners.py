import torch; from torch import nn
torch.manual_seed(97); net = nn.Linear(2, 1); opt = torch.optim.SGD(net.parameters(), lr=.1)
for x in torch.randn(6, 3, 2): opt.zero_grad(); loss = net(x).pow(2).mean(); loss.backward(); opt.step()
result = list(net.parameters())
