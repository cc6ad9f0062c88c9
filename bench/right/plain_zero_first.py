"""The loop of every tutorial: clear, forward, backward, step."""

import torch
from torch import nn

torch.manual_seed(0)
model = nn.Sequential(nn.Linear(3, 5), nn.Tanh(), nn.Linear(5, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
criterion = nn.MSELoss()
loader = [(torch.randn(4, 3), torch.randn(4, 1)) for _ in range(5)]

for epoch in range(2):
    for inputs, targets in loader:
        # zero the parameter gradients
        optimizer.zero_grad()

        # forward + backward + optimize
        outputs = model(inputs)
        loss = criterion(outputs, targets)
        loss.backward()
        optimizer.step()

result = list(model.parameters())
