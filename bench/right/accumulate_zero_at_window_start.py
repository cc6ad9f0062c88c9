import torch
from torch import nn

torch.manual_seed(22)
model = nn.Linear(3, 1)
optim = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
k = 3
steps = 11
for step in range(steps):
    x = torch.randn(4, 3)
    if step % k == 0:
        optim.zero_grad()
    out = model(x)
    loss = (out - x.sum(1, keepdim=True)).pow(2).mean() / k
    loss.backward()
    if step % k == k - 1 or step == steps - 1:
        optim.step()
result = list(model.parameters())
