import torch
from torch import nn
from torch.nn.utils import clip_grad_value_

torch.manual_seed(41)
q_net = nn.Linear(4, 2)
optimizer = torch.optim.Adam(q_net.parameters(), lr=0.02)

def optimize_model(batch):
    state, action, reward = batch
    q = q_net(state).gather(1, action)
    loss = nn.SmoothL1Loss()(q, reward)
    optimizer.zero_grad()
    loss.backward()
    # In-place gradient clipping
    clip_grad_value_(q_net.parameters(), 0.05)
    optimizer.step()

for t in range(6):
    optimize_model((torch.randn(5, 4), torch.randint(2, (5, 1)), torch.randn(5, 1) * 5))

result = [q_net.weight, q_net.bias]
