import torch
from torch import nn

torch.manual_seed(80)
trunk = nn.Linear(4, 4)
heads = nn.ModuleList([nn.Linear(4, 1), nn.Linear(4, 3)])
optimizer = torch.optim.Adam([*trunk.parameters(), *heads.parameters()], lr=0.01)
for _ in range(5):
    x, y, c = torch.randn(5, 4), torch.randn(5, 1), torch.randint(3, (5,))
    optimizer.zero_grad()
    shared = trunk(x).relu()
    regression = nn.functional.mse_loss(heads[0](shared), y)
    regression.backward(retain_graph=True)
    classification = nn.functional.cross_entropy(heads[1](shared), c)
    classification.backward()
    optimizer.step()
result = [*trunk.parameters(), *heads.parameters()]
