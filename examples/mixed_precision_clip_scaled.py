"""The same without unscale_(): the clip sees gradients that are 1024 times too large.

The step then uses gradients that are 1024 times too small, and the model hardly learns.

It prints:

    |grad| seen by the first clip: 2724
    loss after 30 steps: 1.3
"""

import torch
from torch import nn

torch.manual_seed(0)
model = nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
scaler = torch.amp.GradScaler("cpu", init_scale=1024.0)
batches = [(torch.randn(8, 4), torch.ones(8, 1)) for _ in range(30)]

norms = []
for x, y in batches:
    optimizer.zero_grad()
    with torch.autocast("cpu", dtype=torch.float16):
        loss = (model(x).float() - y).pow(2).mean()
    scaler.scale(loss).backward()
    norms.append(nn.utils.clip_grad_norm_(model.parameters(), 1.0).item())
    scaler.step(optimizer)
    scaler.update()

print(f"|grad| seen by the first clip: {norms[0]:.0f}")
print(f"loss after {len(batches)} steps: {loss.item():.1f}")
