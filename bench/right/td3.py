"""Delayed policy updates: the critic every time, the actor every other time."""

import copy

import torch
import torch.nn.functional as F
from torch import nn

torch.manual_seed(63)


class TD3(object):
    def __init__(self, policy_freq=2):
        self.actor = nn.Linear(3, 1)
        self.actor_target = copy.deepcopy(self.actor)
        self.actor_optimizer = torch.optim.Adam(self.actor.parameters(), lr=3e-2)
        self.critic = nn.Linear(4, 1)
        self.critic_target = copy.deepcopy(self.critic)
        self.critic_optimizer = torch.optim.Adam(self.critic.parameters(), lr=3e-2)
        self.policy_freq = policy_freq
        self.total_it = 0

    def train(self, batch):
        self.total_it += 1
        state, action, next_state, reward = batch
        with torch.no_grad():
            next_action = self.actor_target(next_state)
            target_Q = reward + 0.9 * self.critic_target(torch.cat([next_state, next_action], 1))

        current_Q = self.critic(torch.cat([state, action], 1))
        critic_loss = F.mse_loss(current_Q, target_Q)
        self.critic_optimizer.zero_grad()
        critic_loss.backward()
        self.critic_optimizer.step()

        # Delayed policy updates
        if self.total_it % self.policy_freq == 0:
            actor_loss = -self.critic(torch.cat([state, self.actor(state)], 1)).mean()
            self.actor_optimizer.zero_grad()
            actor_loss.backward()
            self.actor_optimizer.step()
            for param, target in zip(self.critic.parameters(), self.critic_target.parameters()):
                target.data.copy_(0.1 * param.data + 0.9 * target.data)


agent = TD3()
for t in range(7):
    agent.train((torch.randn(5, 3), torch.randn(5, 1), torch.randn(5, 3), torch.randn(5, 1)))
result = [*agent.actor.parameters(), *agent.critic.parameters()]
