import torch
from torch import nn

torch.manual_seed(94)
backbone, head = nn.Linear(3, 4), nn.Linear(4, 2)
for p in backbone.parameters():
    p.requires_grad = False
optimizer = torch.optim.SGD(head.parameters(), lr=0.1)

for epoch in range(4):
    if epoch == 2:
        for p in backbone.parameters():
            p.requires_grad = True
        optimizer.add_param_group({"params": backbone.parameters(), "lr": 0.01})
    for x, y in [(torch.randn(4, 3), torch.randint(2, (4,))) for _ in range(2)]:
        optimizer.zero_grad()
        nn.functional.cross_entropy(head(backbone(x)), y).backward()
        optimizer.step()

result = [*backbone.parameters(), *head.parameters()]
