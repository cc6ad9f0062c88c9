import torch
from torch import nn

torch.manual_seed(4)
model = nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 2))
optimizer = torch.optim.RMSprop(model.parameters(), lr=0.01)
loss_fn = nn.CrossEntropyLoss()

for i in range(5):
    images, labels = torch.randn(5, 3), torch.randint(2, (5,))
    # more efficient than optimizer.zero_grad()
    for param in model.parameters():
        param.grad = None
    loss = loss_fn(model(images), labels)
    loss.backward()
    optimizer.step()

result = list(model.parameters())
