import torch
from torch import nn


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(3, 2)

    def forward(self, x):
        return self.fc(x)

    def clear_gradients(self):
        for name, p in self.named_parameters():
            if p.grad is not None:
                p.grad.zero_()


torch.manual_seed(124)
net = Net()
solver = torch.optim.SGD(net.parameters(), lr=0.1)
for _ in range(5):
    x = torch.randn(4, 3)
    net.clear_gradients()
    cost = (net(x) - x[:, :2]).pow(2).mean()
    cost.backward()
    solver.step()
result = list(net.parameters())
