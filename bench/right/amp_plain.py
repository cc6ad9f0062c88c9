"""Mixed precision: scale, step through the scaler, update."""

import torch
from torch import nn

torch.manual_seed(30)
device = "cpu"
model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2)).to(device)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
scaler = torch.amp.GradScaler(device, init_scale=1024.0)
loss_fn = nn.CrossEntropyLoss()
data = [(torch.randn(4, 4), torch.randint(2, (4,))) for _ in range(5)]

for epoch in range(2):
    for input, target in data:
        optimizer.zero_grad()
        with torch.autocast(device_type=device, dtype=torch.bfloat16):
            output = model(input)
            loss = loss_fn(output, target)
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()

result = list(model.parameters())
