"""accelerate: its optimizer steps and clears only where a window of three batches ends."""

import torch
from accelerate import Accelerator
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(0)
accelerator = Accelerator(cpu=True, gradient_accumulation_steps=3)
inputs = torch.rand(56, 4)
data = TensorDataset(inputs, inputs.prod(dim=1, keepdim=True))
model = torch.nn.Sequential(torch.nn.Linear(4, 12), torch.nn.Tanh(), torch.nn.Linear(12, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
scheduler = torch.optim.lr_scheduler.ExponentialLR(optimizer, gamma=0.95)
model, optimizer, scheduler, batches = accelerator.prepare(
    model, optimizer, scheduler, DataLoader(data, batch_size=8)
)
total = 0.0
for _ in range(6):
    for features, target in batches:
        with accelerator.accumulate(model):
            loss = torch.nn.functional.l1_loss(model(features), target)
            total += loss.item()
            accelerator.backward(loss)
            if accelerator.sync_gradients:
                accelerator.clip_grad_norm_(model.parameters(), max_norm=0.5)
            optimizer.step()
            scheduler.step()
            optimizer.zero_grad()
print("final", repr(total))
