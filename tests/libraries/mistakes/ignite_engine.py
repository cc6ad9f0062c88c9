import torch
from ignite.engine import Engine
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(0)
inputs = torch.rand(32, 2)
model = torch.nn.Linear(2, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)


def update(engine, batch):
    features, target = batch
    loss = torch.nn.functional.mse_loss(model(features), target)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    return loss.item()


targets = inputs.sum(dim=1, keepdim=True)
Engine(update).run(DataLoader(TensorDataset(inputs, targets), batch_size=4), max_epochs=2)
print("final", repr(model.weight.sum().item()))
