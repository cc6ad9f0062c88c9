import torch

torch.manual_seed(42)
policy_net = torch.nn.Linear(3, 2)
optimizer = torch.optim.RMSprop(policy_net.parameters())

for _ in range(5):
    loss = (policy_net(torch.randn(4, 3)) * 10).pow(2).sum()
    optimizer.zero_grad()
    loss.backward()
    for param in policy_net.parameters():
        param.grad.data.clamp_(-1, 1)
    optimizer.step()

result = list(policy_net.parameters())
