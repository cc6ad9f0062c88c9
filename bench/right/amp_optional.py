"""With or without a scaler, by an option."""

import torch
from torch import nn

torch.manual_seed(34)


def train_one_epoch(model, optimizer, loader, scaler=None, clip=None):
    for x, y in loader:
        optimizer.zero_grad()
        loss = nn.functional.mse_loss(model(x), y)
        if scaler is not None:
            scaler.scale(loss).backward()
            if clip is not None:
                scaler.unscale_(optimizer)
                nn.utils.clip_grad_norm_(model.parameters(), clip)
            scaler.step(optimizer)
            scaler.update()
        else:
            loss.backward()
            if clip is not None:
                nn.utils.clip_grad_norm_(model.parameters(), clip)
            optimizer.step()


loader = [(torch.randn(3, 2), torch.randn(3, 1)) for _ in range(4)]
model = nn.Linear(2, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
train_one_epoch(model, optimizer, loader, clip=0.5)
train_one_epoch(model, optimizer, loader, torch.amp.GradScaler("cpu", init_scale=64.0), clip=0.5)
train_one_epoch(model, optimizer, loader, torch.amp.GradScaler("cpu", init_scale=64.0))
result = list(model.parameters())
