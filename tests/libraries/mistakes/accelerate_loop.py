import torch
from accelerate import Accelerator
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(0)
accelerator = Accelerator(cpu=True)
inputs = torch.rand(32, 2)
model = torch.nn.Linear(2, 1)
model, optimizer, batches = accelerator.prepare(
    model,
    torch.optim.SGD(model.parameters(), lr=0.1),
    DataLoader(TensorDataset(inputs, inputs.sum(dim=1, keepdim=True)), batch_size=4),
)
for features, target in batches:
    loss = torch.nn.functional.mse_loss(model(features), target)
    optimizer.zero_grad()
    accelerator.backward(loss)
    optimizer.step()
print("final", repr(model.weight.sum().item()))
