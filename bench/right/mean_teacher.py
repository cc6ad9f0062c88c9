import torch
from torch import nn

torch.manual_seed(84)
student, ema = nn.Linear(2, 2), nn.Linear(2, 2)
ema.load_state_dict(student.state_dict())
for p in ema.parameters():
    p.detach_()
optimizer = torch.optim.Adam(student.parameters(), lr=0.02)
step, max_steps = 0, 7
while True:
    x = torch.randn(4, 2)
    consistency = (student(x) - ema(x)).pow(2).mean() + (student(x) - x).abs().mean()
    optimizer.zero_grad()
    consistency.backward()
    optimizer.step()
    for e, s in zip(ema.parameters(), student.parameters()):
        e.data.mul_(0.9).add_(s.data, alpha=0.1)
    step += 1
    if step >= max_steps:
        break
result = list(ema.parameters())
