"""A step that uses the used gradients of some parameters again, beside new ones of the others."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn
from torch.nn.utils import clip_grad_norm_

import zerograd
from support.training import assert_found, batches, either_way, net, sgd


def both(*modules: nn.Module) -> Any:
    return [param for module in modules for param in module.parameters()]


@pytest.mark.parametrize("clip", [False, True])
@pytest.mark.parametrize("kind", [torch.optim.SGD, torch.optim.AdamW])
@either_way
def test_an_encoder_that_is_frozen_by_detach_and_not_cleared_is_found(
    right: bool, kind: Any, clip: bool
) -> None:
    encoder, head = net(), nn.Linear(2, 1)
    optimizer = kind(both(encoder, head), lr=0.01)
    with zerograd.watch(on="collect") as report:
        for number, x in enumerate(batches(12)):
            if right:
                optimizer.zero_grad()
            else:
                head.zero_grad()
            code = encoder(x) if number == 0 else encoder(x).detach()
            (head(code) - 3).pow(2).mean().backward()
            if clip:
                clip_grad_norm_(both(encoder, head), 0.1)
            optimizer.step()  # ZG105
    assert_found(report, right=right, seen=None if clip else 10)
    if not right:
        message = report.findings[0].message
        assert message.startswith("step() uses the same gradients of some parameters a second time")
        assert message.endswith("(0.weight, 0.bias, 2.weight and 1 more)")


@either_way
def test_frozen_parameters_that_keep_their_gradients_are_found(right: bool) -> None:
    model = net()
    optimizer = sgd(model)
    with zerograd.watch(on="collect") as report:
        for number, x in enumerate(batches(12)):
            if number < 4 or right:
                optimizer.zero_grad(set_to_none=number % 2 == 0)
            else:
                model[2].zero_grad()
            if number == 4:
                model[0].requires_grad_(False)
            (model(x) - 3).pow(2).mean().backward()
            optimizer.step()  # ZG105
    assert_found(report, right=right, seen=7)


def test_gradients_that_are_assigned_beside_those_of_a_backward_are_right() -> None:
    encoder, head = net(), nn.Linear(2, 1)
    optimizer = torch.optim.SGD(both(encoder, head), lr=0.01)
    with zerograd.watch(on="collect") as report:
        for x in batches(12):
            head.zero_grad()
            code = encoder(x)
            (head(code.detach()) - 3).pow(2).mean().backward()
            params = list(encoder.parameters())
            found = torch.autograd.grad((code - 1).pow(2).mean(), params)
            for param, grad in zip(params, found, strict=True):
                param.grad = grad
            optimizer.step()
    assert_found(report, right=True)


def test_experts_that_a_batch_does_not_reach_are_right() -> None:
    experts = nn.ModuleList(nn.Linear(3, 1) for _ in range(3))
    optimizer = sgd(experts)
    with zerograd.watch(on="collect") as report:
        for number, x in enumerate(batches(12)):
            for param in experts.parameters():
                param.grad = None
            (experts[number % 2](x) - 3).pow(2).mean().backward()
            optimizer.step()
    assert_found(report, right=True)
