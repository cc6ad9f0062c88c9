import torch
from lightning.fabric import Fabric
from torch import nn

torch.manual_seed(112)
fabric = Fabric(accelerator="cpu", devices=1)
model = nn.Sequential(nn.Linear(2, 3), nn.Tanh(), nn.Linear(3, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
model, optimizer = fabric.setup(model, optimizer)
dataloader = fabric.setup_dataloaders([(torch.randn(4, 2), torch.randn(4, 1)) for _ in range(4)])

model.train()
for epoch in range(2):
    for batch in dataloader:
        input, target = batch
        optimizer.zero_grad()
        loss = nn.functional.mse_loss(model(input), target)
        fabric.backward(loss)
        fabric.clip_gradients(model, optimizer, max_norm=0.5)
        optimizer.step()

result = list(model.parameters())
