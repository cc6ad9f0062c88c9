import torch
from torch import nn

torch.manual_seed(19)
ACCUMULATION_STEPS = 4
model = nn.Sequential(nn.Linear(3, 6), nn.GELU(), nn.Linear(6, 2))
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
criterion = nn.CrossEntropyLoss()
loader = [(torch.randn(2, 3), torch.randint(2, (2,))) for _ in range(10)]

for epoch in range(2):
    optimizer.zero_grad()
    for i, (x, y) in enumerate(loader):
        loss = criterion(model(x), y)
        loss = loss / ACCUMULATION_STEPS  # the window's mean
        loss.backward()
        if (i + 1) % ACCUMULATION_STEPS == 0 or (i + 1) == len(loader):
            optimizer.step()
            optimizer.zero_grad()

result = list(model.parameters())
