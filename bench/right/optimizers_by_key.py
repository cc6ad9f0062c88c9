import torch
from torch import nn

torch.manual_seed(17)
model = {"pose": nn.Linear(3, 3), "depth": nn.Linear(3, 1)}
optim = {}
optim["pose"] = torch.optim.Adam(model["pose"].parameters(), lr=0.02)
optim["depth"] = torch.optim.Adam(model["depth"].parameters(), lr=0.01)

for epoch in range(2):
    for frame in torch.randn(3, 4, 3):
        optim["pose"].zero_grad()
        optim["depth"].zero_grad()
        moved = frame + model["pose"](frame)
        photometric = (model["depth"](moved) - frame.norm(dim=1, keepdim=True)).abs().mean()
        photometric.backward()
        optim["pose"].step()
        optim["depth"].step()

result = [p for m in model.values() for p in m.parameters()]
