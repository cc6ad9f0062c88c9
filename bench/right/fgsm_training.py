import torch
import torch.nn.functional as F

torch.manual_seed(67)
net = torch.nn.Linear(4, 3)
opt = torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9)

for i in range(5):
    X, y = torch.randn(6, 4), torch.randint(3, (6,))
    X.requires_grad = True
    grad = torch.autograd.grad(F.cross_entropy(net(X), y), X)[0]
    X_adv = (X + 0.05 * grad.sign()).detach()
    opt.zero_grad()
    loss = 0.5 * F.cross_entropy(net(X.detach()), y) + 0.5 * F.cross_entropy(net(X_adv), y)
    loss.backward()
    opt.step()

result = list(net.parameters())
