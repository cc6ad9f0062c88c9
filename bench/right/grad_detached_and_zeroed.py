import torch
from torch import nn

torch.manual_seed(6)
rnn = nn.GRU(2, 3, batch_first=True)
head = nn.Linear(3, 1)
params = list(rnn.parameters()) + list(head.parameters())
optimizer = torch.optim.Adagrad(params, lr=0.1)

for _ in range(4):
    seq = torch.randn(3, 6, 2)
    for p in params:
        if p.grad is not None:
            p.grad.detach_()
            p.grad.zero_()
    hidden, _last = rnn(seq)
    loss = (head(hidden[:, -1]) - seq.mean((1, 2)).unsqueeze(1)).abs().mean()
    loss.backward()
    optimizer.step()

result = params
