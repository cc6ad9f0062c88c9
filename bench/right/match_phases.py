import torch
from torch import nn

torch.manual_seed(95)
coarse, fine = nn.Linear(2, 2), nn.Linear(2, 2)
opt_coarse = torch.optim.SGD(coarse.parameters(), lr=0.1)
opt_fine = torch.optim.SGD(fine.parameters(), lr=0.1)
for phase in ["coarse", "fine", "both"]:
    for _ in range(3):
        x = torch.randn(4, 2)
        match phase:
            case "coarse":
                opt_coarse.zero_grad()
                (coarse(x) - x).pow(2).mean().backward()
                opt_coarse.step()
            case "fine":
                opt_fine.zero_grad()
                (fine(coarse(x).detach()) - x).pow(2).mean().backward()
                opt_fine.step()
            case _:
                opt_coarse.zero_grad()
                opt_fine.zero_grad()
                (fine(coarse(x)) - x).pow(2).mean().backward()
                opt_coarse.step()
                opt_fine.step()
result = [*coarse.parameters(), *fine.parameters()]
