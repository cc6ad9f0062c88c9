import torch
from torch import nn

torch.manual_seed(64)
policy = nn.Sequential(nn.Linear(4, 8), nn.Tanh())
pi, v = nn.Linear(8, 2), nn.Linear(8, 1)
optimizer = torch.optim.Adam([*policy.parameters(), *pi.parameters(), *v.parameters()], lr=3e-3)
clip_coef, ent_coef, vf_coef, max_grad_norm = 0.2, 0.01, 0.5, 0.5

for update in range(2):
    obs, actions = torch.randn(16, 4), torch.randint(2, (16,))
    advantages, returns = torch.randn(16), torch.randn(16)
    with torch.no_grad():
        old = torch.distributions.Categorical(logits=pi(policy(obs))).log_prob(actions)
    for epoch in range(2):
        b_inds = torch.randperm(16)
        for start in range(0, 16, 4):
            mb = b_inds[start : start + 4]
            hidden = policy(obs[mb])
            dist = torch.distributions.Categorical(logits=pi(hidden))
            ratio = (dist.log_prob(actions[mb]) - old[mb]).exp()
            pg_loss1 = -advantages[mb] * ratio
            pg_loss2 = -advantages[mb] * torch.clamp(ratio, 1 - clip_coef, 1 + clip_coef)
            pg_loss = torch.max(pg_loss1, pg_loss2).mean()
            v_loss = 0.5 * ((v(hidden).squeeze(1) - returns[mb]) ** 2).mean()
            loss = pg_loss - ent_coef * dist.entropy().mean() + vf_coef * v_loss

            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(
                [*policy.parameters(), *pi.parameters(), *v.parameters()], max_grad_norm
            )
            optimizer.step()

result = [*policy.parameters(), *pi.parameters(), *v.parameters()]
