import torch
from torch import nn

torch.manual_seed(65)
actor, qf1, qf2 = nn.Linear(2, 2), nn.Linear(3, 1), nn.Linear(3, 1)
q_optimizer = torch.optim.Adam(list(qf1.parameters()) + list(qf2.parameters()), lr=0.01)
actor_optimizer = torch.optim.Adam(list(actor.parameters()), lr=0.01)
log_alpha = torch.zeros(1, requires_grad=True)
a_optimizer = torch.optim.Adam([log_alpha], lr=0.01)


def get_action(obs):
    mean, log_std = actor(obs).chunk(2, dim=1)
    noise = torch.randn_like(mean)
    return torch.tanh(mean + log_std.exp() * noise), -0.5 * noise.pow(2) - log_std


for global_step in range(6):
    obs, act, rew = torch.randn(6, 2), torch.rand(6, 1), torch.randn(6, 1)
    alpha = log_alpha.exp().item()
    joined = torch.cat([obs, act], 1)
    qf_loss = (qf1(joined) - rew).pow(2).mean() + (qf2(joined) - rew).pow(2).mean()
    # optimize the model
    q_optimizer.zero_grad()
    qf_loss.backward()
    q_optimizer.step()

    pi, log_pi = get_action(obs)
    both = torch.cat([obs, pi], 1)
    min_qf_pi = torch.min(qf1(both), qf2(both))
    actor_loss = ((alpha * log_pi) - min_qf_pi).mean()
    actor_optimizer.zero_grad()
    actor_loss.backward()
    actor_optimizer.step()

    alpha_loss = (-log_alpha.exp() * (log_pi.detach() - 1)).mean()
    a_optimizer.zero_grad()
    alpha_loss.backward()
    a_optimizer.step()

result = [*actor.parameters(), *qf1.parameters(), *qf2.parameters(), log_alpha]
