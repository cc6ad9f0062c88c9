"""An inner loop over the micro-batches of one batch."""

import torch
from torch import nn

torch.manual_seed(23)
model = nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 1))
optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
loss_fn = nn.MSELoss()
micro_batches = 4

for x, y in [(torch.randn(8, 4), torch.randn(8, 1)) for _ in range(4)]:
    optimizer.zero_grad(set_to_none=True)
    for micro_x, micro_y in zip(x.chunk(micro_batches), y.chunk(micro_batches)):
        loss = loss_fn(model(micro_x), micro_y) / micro_batches
        loss.backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 0.5)
    optimizer.step()

result = list(model.parameters())
