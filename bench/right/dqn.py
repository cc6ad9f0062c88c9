import copy
import random
from collections import deque

import torch
from torch import nn

torch.manual_seed(62)
random.seed(62)


class Agent:
    def __init__(self):
        self.q = nn.Linear(3, 2)
        self.target = copy.deepcopy(self.q)
        self.optimizer = torch.optim.Adam(self.q.parameters(), lr=0.01)
        self.memory = deque(maxlen=50)

    def learn(self):
        if len(self.memory) < 4:
            return
        batch = random.sample(list(self.memory), 4)
        s, a, r, n = (torch.stack(t) for t in zip(*batch))
        current = self.q(s).gather(1, a.unsqueeze(1)).squeeze(1)
        with torch.no_grad():
            expected = r + 0.9 * self.target(n).max(1).values
        loss = nn.functional.smooth_l1_loss(current, expected)
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()


agent = Agent()
state = torch.randn(3)
for frame in range(20):
    following = torch.randn(3)
    agent.memory.append((state, torch.randint(2, ()), following.sum(), following))
    agent.learn()
    if frame % 6 == 0:
        agent.target.load_state_dict(agent.q.state_dict())
    state = following

result = list(agent.q.parameters())
