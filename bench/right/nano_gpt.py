"""Micro steps with the next batch fetched ahead, clip, scaler: the shape of a small GPT's script."""

import torch
import torch.nn as nn
from torch.nn import functional as F

torch.manual_seed(91)
gradient_accumulation_steps, grad_clip, max_iters, eval_interval = 3, 1.0, 4, 2
model = nn.Sequential(nn.Embedding(7, 6), nn.Linear(6, 7))
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2, betas=(0.9, 0.95))
scaler = torch.amp.GradScaler("cpu", enabled=True, init_scale=8.0)


def get_batch():
    ix = torch.randint(7, (2, 5))
    return ix[:, :-1], ix[:, 1:]


@torch.no_grad()
def estimate_loss():
    model.eval()
    x, y = get_batch()
    out = F.cross_entropy(model(x).flatten(0, 1), y.flatten()).item()
    model.train()
    return out


X, Y = get_batch()
iter_num = 0
while True:
    if iter_num % eval_interval == 0:
        estimate_loss()
    for micro_step in range(gradient_accumulation_steps):
        logits = model(X)
        loss = F.cross_entropy(logits.flatten(0, 1), Y.flatten())
        loss = loss / gradient_accumulation_steps
        X, Y = get_batch()
        scaler.scale(loss).backward()
    # clip the gradient
    if grad_clip != 0.0:
        scaler.unscale_(optimizer)
        torch.nn.utils.clip_grad_norm_(model.parameters(), grad_clip)
    scaler.step(optimizer)
    scaler.update()
    # flush the gradients as soon as we can
    optimizer.zero_grad(set_to_none=True)
    iter_num += 1
    if iter_num > max_iters:
        break

result = list(model.parameters())
