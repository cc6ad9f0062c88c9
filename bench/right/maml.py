"""Inner steps by autograd.grad, one outer step per batch of tasks."""

import torch

torch.manual_seed(71)
w = torch.nn.Parameter(torch.randn(3, 1))
meta_opt = torch.optim.Adam([w], lr=0.01)
inner_lr, n_tasks = 0.05, 4

for meta_step in range(4):
    meta_opt.zero_grad()
    for task in range(n_tasks):
        slope = torch.randn(3, 1)
        xs, xq = torch.randn(5, 3), torch.randn(5, 3)
        fast = w
        for _ in range(2):
            inner = (xs @ fast - xs @ slope).pow(2).mean()
            (g,) = torch.autograd.grad(inner, fast, create_graph=True)
            fast = fast - inner_lr * g
        outer = (xq @ fast - xq @ slope).pow(2).mean() / n_tasks
        outer.backward()
    meta_opt.step()

result = [w]
