import torch
from torch import nn

torch.manual_seed(16)
nets = nn.ModuleDict({"left": nn.Linear(2, 2), "right": nn.Linear(2, 2)})
opts = {
    "left": torch.optim.SGD(nets["left"].parameters(), lr=0.1),
    "right": torch.optim.SGD(nets["right"].parameters(), lr=0.2),
}
for t in range(5):
    x = torch.randn(4, 2)
    loss = (nets["left"](x) - nets["right"](x) - 1).square().mean()
    for opt in opts.values():
        opt.zero_grad()
    loss.backward()
    for opt in opts.values():
        opt.step()
result = list(nets.parameters())
