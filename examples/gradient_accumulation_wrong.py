"""The same windows with zero_grad() for every micro-batch: each step uses only the last.

It prints:

    window of 4: |grad - exact grad| 0.834
    window of 4: |grad - exact grad| 1.090
    window of 2: |grad - exact grad| 0.677
"""

import torch
from torch import nn

torch.manual_seed(0)
model = nn.Linear(3, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
criterion = nn.MSELoss()
batches = [(torch.randn(8, 3), torch.randn(8, 1)) for _ in range(10)]
accum = 4


def distance_to_one_big_batch(window: list[tuple[torch.Tensor, torch.Tensor]]) -> float:
    x = torch.cat([x for x, _ in window])
    y = torch.cat([y for _, y in window])
    (exact,) = torch.autograd.grad(criterion(model(x), y), model.weight)
    return (model.weight.grad - exact).norm().item()


for i, (x, y) in enumerate(batches):
    start = i - i % accum
    size = min(accum, len(batches) - start)
    optimizer.zero_grad()
    loss = criterion(model(x), y) / size
    loss.backward()
    if (i + 1) % accum == 0 or (i + 1) == len(batches):
        distance = distance_to_one_big_batch(batches[start : i + 1])
        print(f"window of {size}: |grad - exact grad| {distance:.3f}")
        optimizer.step()
