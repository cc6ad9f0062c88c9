import torch
from accelerate import Accelerator
from torch import nn

torch.manual_seed(110)
accelerator = Accelerator()
model = nn.Linear(3, 2)
optimizer = torch.optim.AdamW(model.parameters(), lr=0.02)
loader = [(torch.randn(4, 3), torch.randint(2, (4,))) for _ in range(5)]
model, optimizer, loader = accelerator.prepare(model, optimizer, loader)

for epoch in range(2):
    for source, targets in loader:
        optimizer.zero_grad()
        output = model(source)
        loss = nn.functional.cross_entropy(output, targets)
        accelerator.backward(loss)
        optimizer.step()

result = list(model.parameters())
