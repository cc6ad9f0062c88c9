"""What a run shows of rules about steps and clears, and what `allow` silences."""

from __future__ import annotations

import pytest
import torch
import torch.nn.utils
import torch.nn.utils.clip_grad
from torch import nn

import zerograd
from support.training import assert_found, batches, either_way, loss_of, net, sgd


# Steps and clears
@either_way
def test_a_clear_between_backward_and_step_is_found(right: bool) -> None:
    model = net()
    optimizer = sgd(model)
    with zerograd.watch(on="collect") as report:
        for x in batches():
            if right:
                optimizer.zero_grad()
            loss_of(model, x).backward()
            if not right:
                optimizer.zero_grad()  # ZG102
            optimizer.step()
    assert_found(report, right=right)


@either_way
def test_steps_with_nothing_to_use_are_found_from_the_second(right: bool) -> None:
    model = net()
    optimizer = sgd(model)
    with zerograd.watch(on="collect") as report:
        for x in batches():
            optimizer.zero_grad()
            loss = loss_of(model, x)
            if right:
                loss.backward()
            optimizer.step()  # ZG104
    assert_found(report, right=right)
    if not right:
        assert report.findings[0].site.iteration == 2


def test_one_empty_step_that_makes_the_state_is_right() -> None:
    model = net()
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    with zerograd.watch(on="collect") as report:
        optimizer.zero_grad()
        optimizer.step()
        for x in batches():
            optimizer.zero_grad()
            loss_of(model, x).backward()
            optimizer.step()
    assert_found(report, right=True)


@either_way
def test_a_second_step_on_the_same_gradients_is_found(right: bool) -> None:
    model = net()
    optimizer = sgd(model)
    with zerograd.watch(on="collect") as report:
        for x in batches():
            optimizer.zero_grad()
            loss_of(model, x).backward()
            optimizer.step()
            if not right:
                optimizer.step()  # ZG105
    assert_found(report, right=right)


@either_way
def test_parameters_that_no_optimizer_has_are_found(right: bool) -> None:
    model, forgotten = net(), nn.Linear(3, 3)
    owned = [*model.parameters(), *(forgotten.parameters() if right else ())]
    optimizer = torch.optim.SGD(owned, lr=0.01)
    with zerograd.watch(on="collect") as report:
        for x in batches(520):
            optimizer.zero_grad()
            loss_of(model, forgotten(x)).backward()  # ZG108
            optimizer.step()
    assert_found(report, right=right, seen=1)
    if not right:
        assert "(weight, bias)" in report.findings[0].message


@either_way
def test_parameters_that_no_optimizer_has_are_found_soon_behind_a_later_backward(
    right: bool,
) -> None:
    model, forgotten = net(), nn.Linear(3, 3)
    owned = [*model.parameters(), *(forgotten.parameters() if right else ())]
    optimizer = torch.optim.SGD(owned, lr=0.01)
    with zerograd.watch(on="collect") as report:
        for number, x in enumerate(batches(40)):
            optimizer.zero_grad()
            if number < 20:
                loss_of(model, x).backward()
            else:
                loss_of(model, forgotten(x)).backward()  # ZG108
            optimizer.step()
    assert_found(report, right=right, seen=1)


def test_gradients_that_no_optimizer_has_and_somebody_clears_are_right() -> None:
    model, probe = net(), nn.Linear(3, 3)
    optimizer = sgd(model)
    with zerograd.watch(on="collect") as report:
        for x in batches(12):
            optimizer.zero_grad()
            loss_of(model, probe(x)).backward()
            optimizer.step()
            probe.zero_grad()
    assert_found(report, right=True)


# What is allowed
@pytest.mark.parametrize("rule", ["stale-gradient", "ZG101", "ZG1"])
def test_what_is_allowed_is_silent_in_its_block_only(rule: str) -> None:
    model = net()
    optimizer = sgd(model)
    with zerograd.watch(on="collect") as report:
        with zerograd.allow(rule):
            for x in batches():
                loss_of(model, x).backward()
                optimizer.step()
        optimizer.zero_grad()
        for x in batches():
            loss_of(model, x).backward()  # ZG101
            optimizer.step()
    assert_found(report, seen=5)


def test_allowing_one_rule_does_not_allow_another() -> None:
    model = net()
    optimizer = sgd(model)
    with zerograd.watch(on="collect") as report, zerograd.allow("repeated-step"):
        for x in batches():
            loss_of(model, x).backward()  # ZG101
            optimizer.step()
            optimizer.step()
    assert_found(report)
