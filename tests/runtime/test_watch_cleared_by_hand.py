"""Gradients that are cleared by hand in the wrong place: no call shows it, only that they are gone."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

import zerograd
from support.training import assert_found, batches, either_way, loss_of, net, sgd


def to_none(model: Any) -> None:
    for param in model.parameters():
        param.grad = None


def to_zero(model: Any) -> None:
    for param in model.parameters():
        if param.grad is not None:
            param.grad.zero_()


def through_data(model: Any) -> None:
    for param in model.parameters():
        if param.grad is not None:
            param.grad.data.zero_()


def to_other_zeros(model: Any) -> None:
    for param in model.parameters():
        param.grad = torch.zeros_like(param)


def all_at_once(model: Any) -> None:
    grads = [param.grad for param in model.parameters() if param.grad is not None]
    if grads:
        torch._foreach_zero_(grads)


ways = pytest.mark.parametrize(
    "clear", [to_none, to_zero, through_data, to_other_zeros, all_at_once]
)
Clear = Callable[[Any], None]


@ways
@either_way
@pytest.mark.parametrize("clips", [False, True], ids=["", "clipped"])
def test_a_clear_between_the_backward_and_the_step_is_found(
    right: bool, clear: Clear, clips: bool
) -> None:
    model = net()
    optimizer = torch.optim.Adam(model.parameters())
    with zerograd.watch(on="collect") as report:
        for x in batches(6):
            if right:
                clear(model)
            loss_of(model, x).backward()
            if not right:
                clear(model)
            if clips:
                torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()  # ZG102
    assert_found(report, right=right, seen=4)


@ways
@either_way
def test_a_clear_of_every_micro_batch_is_found(right: bool, clear: Clear) -> None:
    model = net()
    optimizer = sgd(model)
    with zerograd.watch(on="collect") as report:
        for number, x in enumerate(batches(40), 1):
            if not right:
                clear(model)
            (loss_of(model, x) / 2).backward()  # ZG103
            if number % 2 == 0:
                optimizer.step()
                clear(model)
    assert_found(report, right=right)


@pytest.mark.parametrize("clear", [to_none, to_zero])
@either_way
def test_a_backward_that_never_runs_is_found(right: bool, clear: Clear) -> None:
    model = net()
    with zerograd.watch(on="collect") as report:
        optimizer = sgd(model)
        for x in batches(6):
            clear(model)
            loss = loss_of(model, x)
            if right:
                loss.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()  # ZG104
    assert_found(report, right=right)


def test_steps_that_only_drive_a_scheduler_are_right() -> None:
    optimizer = sgd(net())
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 2)
    with zerograd.watch(on="collect") as report:
        for _ in range(10):
            optimizer.step()
            scheduler.step()
    assert_found(report, right=True)


@pytest.mark.parametrize("through_data", [False, True])
def test_gradients_that_the_program_has_used_itself_are_not_missed(through_data: bool) -> None:
    model = net()
    optimizer = sgd(model)
    with zerograd.watch(on="collect") as report:
        for x in batches(8):
            loss_of(model, x).backward()
            with torch.no_grad():
                for param in model.parameters():
                    (param.data if through_data else param).sub_(0.01 * param.grad)
                    param.grad = None
            optimizer.step()
    assert_found(report, right=True)


def test_zeros_that_a_backward_brings_are_no_clear() -> None:
    model = net()
    optimizer = sgd(model)
    with zerograd.watch(on="collect") as report:
        for number, x in enumerate(batches(10)):
            optimizer.zero_grad()
            (loss_of(model, x) * (number > 5)).backward()
            optimizer.step()
    assert_found(report, right=True)


def test_a_batch_whose_gradients_are_dropped_by_hand_is_skipped_on_purpose() -> None:
    model = net()
    optimizer = sgd(model)
    with zerograd.watch(on="collect") as report:
        for number, x in enumerate(batches(40)):
            optimizer.zero_grad()
            loss_of(model, x).backward()
            if number % 2:
                to_none(model)
            optimizer.step()
    assert_found(report, right=True)


@pytest.mark.parametrize("again", [False, True], ids=["another tensor", "the same tensor"])
def test_micro_batches_that_the_program_adds_up_itself_are_not_lost(again: bool) -> None:
    model = net()
    optimizer = sgd(model)
    sums = [torch.zeros_like(param) for param in model.parameters()]
    with zerograd.watch(on="collect") as report:
        for number, x in enumerate(batches(40), 1):
            (loss_of(model, x) / 2).backward()
            for one, param in zip(sums, model.parameters(), strict=True):
                one += param.grad
            if number % 2:
                (to_zero if again else to_none)(model)
            else:
                for one, param in zip(sums, model.parameters(), strict=True):
                    if again:
                        param.grad.copy_(one)
                    else:
                        param.grad = one.clone()
                    one.zero_()
                optimizer.step()
                optimizer.zero_grad()
    assert_found(report, right=True)
