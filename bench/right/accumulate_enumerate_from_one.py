import torch
from torch import nn, optim
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(24)
dataset = TensorDataset(torch.randn(22, 3), torch.randint(3, (22,)))
train_loader = DataLoader(dataset, batch_size=2)
model = nn.Linear(3, 3)
optimizer = optim.SGD(model.parameters(), lr=0.1)
accumulate = 4
for batch_idx, (data, target) in enumerate(train_loader, start=1):
    output = model(data)
    loss = nn.functional.cross_entropy(output, target) / accumulate
    loss.backward()
    if batch_idx % accumulate == 0 or batch_idx == len(train_loader):
        nn.utils.clip_grad_norm_(model.parameters(), max_norm=0.3)
        optimizer.step()
        optimizer.zero_grad()
result = list(model.parameters())
