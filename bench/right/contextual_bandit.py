import torch
from torch import nn

torch.manual_seed(118)


class Bandit(nn.Module):
    def __init__(self, arms=3):
        super().__init__()
        self.nets = nn.ModuleList(nn.Linear(2, 1) for _ in range(arms))
        self.optimizers = [torch.optim.SGD(n.parameters(), lr=0.1) for n in self.nets]

    def learn(self, context, arm, reward):
        optimizer = self.optimizers[arm]
        optimizer.zero_grad()
        loss = (self.nets[arm](context) - reward).pow(2).mean()
        loss.backward()
        optimizer.step()

    def play(self, context):
        with torch.no_grad():
            return int(torch.stack([net(context).mean() for net in self.nets]).argmax())


bandit = Bandit()
for t in range(10):
    context = torch.randn(1, 2)
    arm = bandit.play(context)
    bandit.learn(context, arm, context.sum() * (arm - 1))
result = list(bandit.parameters())
