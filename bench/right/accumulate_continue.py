import torch

torch.manual_seed(25)
net = torch.nn.Linear(2, 1)
opt = torch.optim.SGD(net.parameters(), lr=0.1)
N = 3
inputs = [torch.randn(4, 2) for _ in range(9)]

for i, x in enumerate(inputs):
    loss = net(x).square().mean() / N
    loss.backward()
    if (i + 1) % N != 0 and i + 1 < len(inputs):
        continue
    opt.step()
    opt.zero_grad()

result = list(net.parameters())
