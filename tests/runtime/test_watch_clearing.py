"""Every way to clear gradients counts as one, and what a clear leaves out is found."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.utils
import torch.nn.utils.clip_grad
from torch import nn

import zerograd
from support.clears import none_by_hand, zeros_by_hand
from support.training import assert_found, batches, either_way, loss_of, net, sgd


def zeros_through_data(model: Any) -> None:
    for param in model.parameters():
        if param.grad is not None:
            param.grad.data.zero_()


def zeros_through_numpy(model: Any) -> None:
    for param in model.parameters():
        if param.grad is not None:
            param.grad.numpy()[...] = 0


def zeros_by_multiplying(model: Any) -> None:
    for param in model.parameters():
        if param.grad is not None:
            param.grad.mul_(0)


def zeros_by_detaching(model: Any) -> None:
    for param in model.parameters():
        if param.grad is not None:
            param.grad.detach_().zero_()


def zeros_all_at_once(model: Any) -> None:
    grads = [param.grad for param in model.parameters() if param.grad is not None]
    if grads:
        torch._foreach_zero_(grads)


def new_zeros(model: Any) -> None:
    for param in model.parameters():
        param.grad = torch.zeros_like(param)


CLEARS: dict[str, Callable[[Any, Any], object]] = {
    "zero_grad()": lambda _, optimizer: optimizer.zero_grad(),
    "zero_grad(set_to_none=False)": lambda _, optimizer: optimizer.zero_grad(set_to_none=False),
    "zero_grad(False)": lambda _, optimizer: optimizer.zero_grad(False),
    "model.zero_grad()": lambda model, _: model.zero_grad(),
    "model.zero_grad(set_to_none=False)": lambda model, _: model.zero_grad(False),
    "each layer's zero_grad()": lambda model, _: [part.zero_grad() for part in model],
    "p.grad = None": lambda model, _: none_by_hand(model),
    "p.grad.zero_()": lambda model, _: zeros_by_hand(model),
    "p.grad.data.zero_()": lambda model, _: zeros_through_data(model),
    "p.grad.numpy()[...] = 0": lambda model, _: zeros_through_numpy(model),
    "p.grad.mul_(0)": lambda model, _: zeros_by_multiplying(model),
    "p.grad.detach_().zero_()": lambda model, _: zeros_by_detaching(model),
    "_foreach_zero_": lambda model, _: zeros_all_at_once(model),
    "p.grad = zeros": lambda model, _: new_zeros(model),
    "zero_grad of another optimizer": lambda model, _: sgd(model).zero_grad(),
}


@either_way
@pytest.mark.parametrize("after", [False, True], ids=["before backward", "after step"])
@pytest.mark.parametrize("how", CLEARS)
def test_every_way_to_clear_counts_as_one(how: str, after: bool, right: bool) -> None:
    model = net()
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    with zerograd.watch(on="collect") as report:
        for number, x in enumerate(batches(8)):
            clears = right or number != 5
            if clears and not after:
                CLEARS[how](model, optimizer)
            loss_of(model, x).backward()  # ZG101
            optimizer.step()
            if (right or number != 4) and after:
                CLEARS[how](model, optimizer)
    assert_found(report, right=right, seen=1)
    if not right:
        assert report.findings[0].site.iteration == 6


@pytest.mark.parametrize("to_none", [True, False])
def test_clearing_some_layers_is_found_in_just_the_others(to_none: bool) -> None:
    model = net()
    optimizer = sgd(model)
    with zerograd.watch(on="collect") as report:
        for x in batches():
            model[0].zero_grad(set_to_none=to_none)
            loss_of(model, x).backward()  # ZG101
            optimizer.step()
    assert_found(report, seen=5)
    assert "(2.weight, 2.bias)" in report.findings[0].message


def test_clearing_one_parameter_by_hand_is_found_in_the_others() -> None:
    model = net()
    optimizer = sgd(model)
    with zerograd.watch(on="collect") as report:
        for x in batches():
            model[0].weight.grad = None
            loss_of(model, x).backward()  # ZG101
            optimizer.step()
    assert_found(report, seen=5)
    assert "(0.bias, 2.weight, 2.bias)" in report.findings[0].message


@either_way
def test_layers_may_be_cleared_one_after_the_other(right: bool) -> None:
    model = net()
    optimizer = sgd(model)
    with zerograd.watch(on="collect") as report:
        for x in batches():
            model[0].zero_grad()
            if right:
                none_by_hand(model[2])
            loss_of(model, x).backward()  # ZG101
            optimizer.step()
    assert_found(report, right=right, seen=5)


def test_the_finding_gives_the_norms_the_names_and_the_iteration() -> None:
    torch.manual_seed(0)
    model = nn.Linear(1, 1, bias=False)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.0)
    with zerograd.watch(on="collect") as report:
        for factor in (3.0, 5.0):
            model(torch.tensor([[factor]])).sum().backward()  # ZG101
            optimizer.step()
    assert_found(report, seen=1)
    (finding,) = report.findings
    assert "expected |grad| 5, got 8 (weight)" in finding.message
    assert finding.site.iteration == 2
    (note,) = finding.notes
    assert (note.message, note.site.line) == ("used here", finding.site.line + 1)


def test_many_parameters_are_named_by_the_first_few_and_a_count() -> None:
    model = nn.Sequential(*(nn.Linear(3, 3) for _ in range(4)))
    optimizer = sgd(model)
    with zerograd.watch(on="collect") as report:
        for x in batches(3):
            loss_of(model, x).backward()  # ZG101
            optimizer.step()
    assert_found(report)
    assert "(0.weight, 0.bias, 1.weight and 5 more)" in report.findings[0].message
