"""An actor and a critic with one optimizer each."""

import torch
from torch import nn

torch.manual_seed(60)
actor, critic = nn.Linear(3, 2), nn.Linear(3, 1)
actor_optim = torch.optim.Adam(actor.parameters(), lr=0.02)
critic_optim = torch.optim.Adam(critic.parameters(), lr=0.02)
gamma = 0.9
state = torch.randn(3)

for step in range(8):
    dist = torch.distributions.Categorical(logits=actor(state))
    action = dist.sample()
    next_state = torch.roll(state, int(action) + 1) * 0.9
    reward = next_state[0].item()
    target = reward + gamma * critic(next_state).detach()
    advantage = target - critic(state)

    critic_loss = advantage.pow(2).mean()
    critic_optim.zero_grad()
    critic_loss.backward()
    critic_optim.step()

    actor_loss = -dist.log_prob(action) * advantage.detach()
    actor_optim.zero_grad()
    actor_loss.mean().backward()
    actor_optim.step()
    state = next_state

result = [*actor.parameters(), *critic.parameters()]
