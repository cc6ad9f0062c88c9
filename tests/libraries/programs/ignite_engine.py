"""ignite: its supervised trainer clears, backs and steps in windows of two."""

import torch
from ignite.engine import create_supervised_trainer
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(0)
inputs = torch.rand(60, 2)
batches = DataLoader(TensorDataset(inputs, inputs.prod(dim=1, keepdim=True)), batch_size=10)
model = torch.nn.Sequential(torch.nn.Linear(2, 10), torch.nn.Tanh(), torch.nn.Linear(10, 1))
trainer = create_supervised_trainer(
    model,
    torch.optim.Adam(model.parameters(), lr=0.02),
    torch.nn.functional.mse_loss,
    gradient_accumulation_steps=2,
)
print("final", repr(trainer.run(batches, max_epochs=4).output))
