import torch
from torch import nn

torch.manual_seed(100)
model = nn.Linear(2, 1)
opt = torch.optim.SGD(model.parameters(), lr=0.1)
stream = iter(torch.randn(6, 3, 2))
while (x := next(stream, None)) is not None:
    opt.zero_grad()
    with torch.autograd.set_detect_anomaly(False), torch.enable_grad():
        (loss := (model(x) - 1).pow(2).mean()).backward()
        opt.step()
result = list(model.parameters())
