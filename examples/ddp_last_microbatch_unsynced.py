"""The last micro-batch of a window, before the step, is not synchronised.

torchrun --nproc-per-node 2 -m zerograd run examples/ddp_last_microbatch_unsynced.py
"""

from contextlib import nullcontext

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

ACCUMULATE = 4

dist.init_process_group("gloo")
torch.manual_seed(0)
model = DistributedDataParallel(nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 1)))
optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
loss_fn = nn.MSELoss()

torch.manual_seed(dist.get_rank())
loader = [(torch.randn(16, 8), torch.randn(16, 1)) for _ in range(32)]

for i, (x, y) in enumerate(loader):
    last = (i + 1) % ACCUMULATE == 0 or i + 1 == len(loader)
    with model.no_sync() if last else nullcontext():
        loss = loss_fn(model(x), y) / ACCUMULATE
        loss.backward()
    if last:
        optimizer.step()
        optimizer.zero_grad()

dist.destroy_process_group()
