"""Advice about optimizers: made anew for every step, or with parameters that no loss uses."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from torch import nn

import zerograd
from support.training import assert_found, batches, either_way, loss_of, net, sgd
from zerograd.core.finding import Report


def codes(report: Report) -> list[str]:
    assert report.errors == []
    return [finding.code for finding in report.findings]


def train(optimizer: Any, model: Any, x: Any) -> None:
    optimizer.zero_grad()
    loss_of(model, x).backward()
    optimizer.step()


# Made anew


@pytest.mark.parametrize("steps", [5, 6, 12])
def test_an_optimizer_made_for_every_step_is_found_after_five(steps: int) -> None:
    model = net()
    with zerograd.watch(on="collect") as report:
        for x in batches(steps):
            optimizer = torch.optim.Adam(model.parameters(), lr=0.01)  # ZG112
            train(optimizer, model, x)
    assert_found(report, right=steps <= 5, seen=steps - 5)
    assert all(finding.level == "advice" for finding in report.findings)


def test_an_optimizer_made_in_a_function_for_every_step_is_found() -> None:
    model = net()

    def step(x: Any) -> None:
        optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)  # ZG112
        train(optimizer, model, x)

    with zerograd.watch(on="collect") as report:
        for x in batches(12):
            step(x)
    assert codes(report) == ["ZG112"]


def plain_sgd() -> None:
    model = net()
    for x in batches(12):
        train(sgd(model), model, x)


def lbfgs() -> None:
    model = net()
    for x in batches(12):
        optimizer: Any = torch.optim.LBFGS(model.parameters(), lr=0.01, max_iter=3)

        def closure(x: Any = x, optimizer: Any = optimizer) -> Any:
            optimizer.zero_grad()
            loss = loss_of(model, x)
            loss.backward()
            return loss

        optimizer.step(closure)


def adaptation(write: str) -> None:
    model = net()
    source = copy.deepcopy(model.state_dict())
    for x in batches(12):
        if write == "load_state_dict":
            model.load_state_dict(source)
        else:
            for name, param in model.named_parameters():
                param.data.copy_(source[name])
        train(torch.optim.Adam(model.parameters(), lr=0.01), model, x)


def attacks() -> None:
    model = net()
    model.requires_grad_(False)
    for x in batches(12):
        delta = torch.zeros_like(x, requires_grad=True)
        optimizer = torch.optim.Adam([delta], lr=0.01)
        optimizer.zero_grad()
        (-loss_of(model, x + delta)).backward()
        optimizer.step()


def federated() -> None:
    server, client = net(), net(seed=1)
    for x in batches(12):
        client.load_state_dict(server.state_dict())
        train(torch.optim.Adam(client.parameters(), lr=0.01), client, x)
        server.load_state_dict(client.state_dict())


def inner_loops() -> None:
    model = net()
    for x in batches(12):
        optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
        for _ in range(3):
            train(optimizer, model, x)


@pytest.mark.parametrize(
    "program",
    [
        plain_sgd,
        lbfgs,
        lambda: adaptation("load_state_dict"),
        lambda: adaptation("data"),
        attacks,
        federated,
        inner_loops,
    ],
    ids=["sgd", "lbfgs", "adaptation", "adaptation by data", "attacks", "federated", "inner loops"],
)
def test_optimizers_that_are_meant_to_be_short_are_right(program: Any) -> None:
    with zerograd.watch(on="collect") as report:
        program()
    assert codes(report) == []


# Parameters that no loss uses


@either_way
def test_a_layer_replaced_after_the_optimizer_was_made_is_found(right: bool) -> None:
    model = net()
    new = nn.Linear(4, 2)
    if right:
        model[2] = new
    optimizer = sgd(model)
    model[2] = new
    with zerograd.watch(on="collect") as report:
        for x in batches(150):
            optimizer.zero_grad()
            loss_of(model, x).backward()  # ZG111
            optimizer.step()
            new.zero_grad()
    assert_found(report, right=right, seen=1)
    if not right:
        assert "a parameter of shape (2, 4)" in report.findings[0].message


def test_an_optimizer_of_another_copy_of_the_model_is_found() -> None:
    model = net()
    optimizer = sgd(copy.deepcopy(model))
    with zerograd.watch(on="collect") as report:
        for x in batches(150):
            model.zero_grad()
            loss_of(model, x).backward()
            optimizer.step()
    assert codes(report) == ["ZG111"]


def test_a_short_run_says_nothing_of_untrained_parameters() -> None:
    model = net()
    optimizer = sgd(copy.deepcopy(model))
    with zerograd.watch(on="collect") as report:
        for x in batches(60):
            model.zero_grad()
            loss_of(model, x).backward()
            optimizer.step()
    assert codes(report) == []


def experts(x: Any, parts: Any, number: int) -> Any:
    return parts[0](x) if number < 140 else parts[1](x)


def layer_drop(x: Any, parts: Any, number: int) -> Any:
    return parts[0](x) if number % 7 else parts[1](parts[0](x))


def unused_head(x: Any, parts: Any, _: int) -> Any:
    return parts[0](x)


def frozen_backbone(x: Any, parts: Any, _: int) -> Any:
    with torch.no_grad():
        x = parts[1](x)
    return parts[0](x)


@pytest.mark.parametrize("forward", [experts, layer_drop, unused_head, frozen_backbone])
def test_parameters_that_nothing_replaces_are_right(forward: Any) -> None:
    torch.manual_seed(0)
    parts = nn.ModuleList([nn.Linear(3, 3), nn.Linear(3, 3)])
    optimizer = sgd(parts)
    with zerograd.watch(on="collect") as report:
        for number, x in enumerate(batches(150)):
            optimizer.zero_grad()
            loss_of(lambda x, n=number: forward(x, parts, n), x).backward()
            optimizer.step()
    assert codes(report) == []
