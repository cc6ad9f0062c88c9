import torch
import torch.nn.functional as F
from torch import nn

torch.manual_seed(15)
body = nn.Linear(3, 4)
head = nn.Linear(4, 2)
optimizers = [
    torch.optim.SGD(body.parameters(), lr=0.05, momentum=0.9),
    torch.optim.Adam(head.parameters(), lr=0.01),
]

for _ in range(7):
    x, y = torch.randn(5, 3), torch.randint(2, (5,))
    for optimizer in optimizers:
        optimizer.zero_grad()
    loss = F.cross_entropy(head(body(x).relu()), y)
    loss.backward()
    for optimizer in optimizers:
        optimizer.step()

result = [*body.parameters(), *head.parameters()]
