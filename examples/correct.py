"""One weight, two batches, zero_grad() before each: the second step uses 5, which is right.

It prints:

    batch 1: this batch's gradient 3.0, used by step() 3.0
    batch 2: this batch's gradient 5.0, used by step() 5.0
    weight at the end: 1.2
"""

import torch

weight = torch.nn.Parameter(torch.tensor(2.0))
optimizer = torch.optim.SGD([weight], lr=0.1)

optimizer.zero_grad()
loss1 = 3 * weight
loss1.backward()
print(f"batch 1: this batch's gradient 3.0, used by step() {weight.grad.item():.1f}")
optimizer.step()

optimizer.zero_grad()
loss2 = 5 * weight
loss2.backward()
print(f"batch 2: this batch's gradient 5.0, used by step() {weight.grad.item():.1f}")
optimizer.step()

print(f"weight at the end: {weight.item():.1f}")
