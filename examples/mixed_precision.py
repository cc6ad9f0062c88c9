"""float16 autocast with a GradScaler: unscale_() before the clip, so the clip sees real gradients.

It prints:

    |grad| seen by the first clip: 2.7
    loss after 30 steps: 0.0
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
    scaler.unscale_(optimizer)
    norms.append(nn.utils.clip_grad_norm_(model.parameters(), 1.0).item())
    scaler.step(optimizer)
    scaler.update()

print(f"|grad| seen by the first clip: {norms[0]:.1f}")
print(f"loss after {len(batches)} steps: {loss.item():.1f}")
