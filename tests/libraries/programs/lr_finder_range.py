"""torch-lr-finder: windows of three while it looks for a rate, then windows of one, one optimizer."""

import torch
from torch.utils.data import DataLoader, TensorDataset
from torch_lr_finder import LRFinder

torch.manual_seed(0)
inputs = torch.randn(90, 5)
batches = DataLoader(TensorDataset(inputs, inputs.abs().sum(dim=1, keepdim=True)), batch_size=10)
model = torch.nn.Sequential(torch.nn.Linear(5, 20), torch.nn.ReLU(), torch.nn.Linear(20, 1))
optimizer = torch.optim.Adam(model.parameters(), lr=1e-4)
error = torch.nn.L1Loss()
finder = LRFinder(model, optimizer, error, device="cpu")
finder.range_test(batches, end_lr=0.5, num_iter=15, accumulation_steps=3)
finder.reset()
total = float(finder.best_loss)
for _ in range(2):
    for features, target in batches:
        optimizer.zero_grad()
        loss = error(model(features), target)
        loss.backward()
        optimizer.step()
        total += loss.item()
print("final", repr(total))
