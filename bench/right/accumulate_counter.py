import torch

torch.manual_seed(21)
net = torch.nn.Linear(2, 2)
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
grad_accum = 2
pending = 0

for epoch in range(2):
    for x in torch.randn(5, 3, 2):
        loss = (net(x) - x).pow(2).mean() / grad_accum
        loss.backward()
        pending += 1
        if pending == grad_accum:
            optimizer.step()
            optimizer.zero_grad()
            pending = 0
    if pending > 0:
        optimizer.step()
        optimizer.zero_grad()
        pending = 0

result = list(net.parameters())
