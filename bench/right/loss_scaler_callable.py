"""A callable that does backward, unscale, clip, step and update, as in timm and MAE."""

import torch
from torch import nn


class NativeScaler:
    def __init__(self):
        self._scaler = torch.amp.GradScaler("cpu", init_scale=16.0)

    def __call__(self, loss, optimizer, clip_grad=None, parameters=None, update_grad=True):
        self._scaler.scale(loss).backward()
        norm = None
        if update_grad:
            self._scaler.unscale_(optimizer)
            if clip_grad is not None:
                norm = torch.nn.utils.clip_grad_norm_(parameters, clip_grad)
            self._scaler.step(optimizer)
            self._scaler.update()
        return norm


def train_one_epoch(model, optimizer, loader, loss_scaler, accum_iter=2):
    optimizer.zero_grad()
    for it, samples in enumerate(loader):
        loss = (model(samples) - samples).pow(2).mean()
        loss /= accum_iter
        loss_scaler(
            loss,
            optimizer,
            clip_grad=0.5,
            parameters=model.parameters(),
            update_grad=(it + 1) % accum_iter == 0 or it + 1 == len(loader),
        )
        if (it + 1) % accum_iter == 0 or it + 1 == len(loader):
            optimizer.zero_grad()


torch.manual_seed(36)
mae = nn.Linear(3, 3)
adamw = torch.optim.AdamW(mae.parameters(), lr=0.01)
train_one_epoch(mae, adamw, torch.randn(7, 4, 3), NativeScaler())
result = list(mae.parameters())
