"""higher: each task's backward adds to the meta gradients; the inner optimizer is never stepped."""

import higher
import torch

torch.manual_seed(0)
model = torch.nn.Sequential(torch.nn.Linear(2, 8), torch.nn.ReLU(), torch.nn.Linear(8, 1))
outer = torch.optim.Adam(model.parameters(), lr=0.02)
inner = torch.optim.SGD(model.parameters(), lr=0.1)
error = torch.nn.functional.mse_loss
total = 0.0
for _ in range(12):
    outer.zero_grad()
    for _ in range(3):
        slope = torch.randn(2, 1)
        seen, unseen = torch.randn(2, 6, 2)
        with higher.innerloop_ctx(model, inner, copy_initial_weights=False) as (copy, stepper):
            for _ in range(2):
                stepper.step(error(copy(seen), seen @ slope))
            loss = error(copy(unseen), unseen @ slope) / 3
            loss.backward()
        total += loss.item()
    outer.step()
print("final", repr(total))
