"""A file with CRLF line ends."""
import torch
from torch import nn

torch.manual_seed(122)
model = nn.Linear(3, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
accumulate = 2
xs = torch.randn(5, 4, 3)

for i, x in enumerate(xs):
    loss = (model(x) - x.sum(1, keepdim=True)).pow(2).mean() / accumulate
    loss.backward()
    if (i + 1) % accumulate == 0 or i + 1 == len(xs):
        nn.utils.clip_grad_norm_(model.parameters(), 0.5)
        optimizer.step()
        optimizer.zero_grad()

result = list(model.parameters())
