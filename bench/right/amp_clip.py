import torch
from torch.nn.utils import clip_grad_norm_

torch.manual_seed(31)
net = torch.nn.Linear(3, 2)
opt = torch.optim.AdamW(net.parameters(), lr=0.01)
grad_scaler = torch.amp.GradScaler("cpu", init_scale=256.0)

for step in range(6):
    x = torch.randn(4, 3)
    loss = (net(x) - 3).pow(2).mean()
    opt.zero_grad(set_to_none=True)
    grad_scaler.scale(loss).backward()
    grad_scaler.unscale_(opt)
    clip_grad_norm_(net.parameters(), 0.7)
    grad_scaler.step(opt)
    grad_scaler.update()

result = list(net.parameters())
