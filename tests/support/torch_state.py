"""What watching changes in torch."""

from __future__ import annotations

import importlib

from torch import nn


def torch_as_it_is() -> list[object]:
    """Everything that watching touches, by identity."""
    optim = importlib.import_module("torch.optim.optimizer")
    clip = importlib.import_module("torch.nn.utils.clip_grad")
    graph = importlib.import_module("torch.autograd.graph")
    scaler = importlib.import_module("torch.amp.grad_scaler").GradScaler
    autograd = importlib.import_module("torch.autograd")
    things: list[object] = [graph._engine_run_backward, autograd._engine_run_backward]
    for owner in (optim.Optimizer, nn.Module, scaler):
        things += [value for _, value in sorted(vars(owner).items()) if callable(value)]
    for function in (optim.Optimizer.zero_grad, *vars(clip).values()):
        cells = getattr(function, "__closure__", None) or ()
        things += [cell.cell_contents for cell in cells]
    things += [*optim._global_optimizer_pre_hooks.values()]
    things += [*optim._global_optimizer_post_hooks.values()]
    return things
