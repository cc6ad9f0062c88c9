"""Batches that a program keeps from the step on purpose: they are no mistake, at whatever rate."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from torch import nn

import zerograd
from support.training import assert_found, batches, either_way, loss_of, net, sgd

clip = nn.utils.clip_grad_norm_


def skips(rate: str, count: int) -> set[int]:
    """Which of so many batches are bad."""
    return {
        "every second": set(range(1, count, 2)),
        "every third": set(range(2, count, 3)),
        "every fifth": set(range(0, count, 5)),
        "first eight": set(range(0, 8, 2)),
        "in a row": set(range(3, 9)),
        "three": {2, 9, 10},
        "all but a few": set(range(count)) - {4, 9, 17, 18, 30},
    }[rate]


RATES = ["every second", "every third", "every fifth", "first eight", "in a row", "three"]
RATES.append("all but a few")


@pytest.mark.parametrize("rate", RATES)
@pytest.mark.parametrize("clear", ["before", "after", "none"])
def test_batches_whose_loss_is_not_finite_are_skipped(rate: str, clear: str) -> None:
    model, bad = net(), skips(rate, 40)
    optimizer = sgd(model)
    with zerograd.watch(on="collect") as report:
        for number, x in enumerate(batches(40)):
            if clear == "before":
                optimizer.zero_grad()
            loss = loss_of(model, x) * (math.nan if number in bad else 1.0)
            loss.backward()
            if not torch.isfinite(loss):
                if clear == "none":
                    for param in model.parameters():
                        param.grad = None
                elif clear == "after":
                    optimizer.zero_grad()
                continue
            optimizer.step()
            if clear != "before":
                optimizer.zero_grad()
    assert_found(report, right=True)


@pytest.mark.parametrize("rate", RATES)
@pytest.mark.parametrize("where", ["test", "function", "both", "variable", "short circuit"])
def test_batches_whose_norm_is_too_large_are_skipped(rate: str, where: str) -> None:
    model, bad = net(), skips(rate, 40)
    optimizer = sgd(model)

    def step_if(small: Any) -> None:
        if small:
            optimizer.step()

    def step() -> None:
        optimizer.step()

    with zerograd.watch(on="collect") as report:
        for number, x in enumerate(batches(40)):
            optimizer.zero_grad()
            (loss_of(model, x) * (1e6 if number in bad else 1.0)).backward()
            norm = clip(model.parameters(), 1.0)
            if where == "test":
                if norm > 1e5:
                    continue
                optimizer.step()
            elif where == "function":
                step_if(norm < 1e5)
            elif where == "variable":
                spike = norm > 1e5
                if not spike:
                    optimizer.step()
            elif where == "short circuit":
                _ = norm < 1e5 and optimizer.step()
            elif norm < 1e5:
                step()
    assert_found(report, right=True)


@pytest.mark.parametrize("rate", RATES)
@pytest.mark.parametrize("window", [1, 4])
def test_batches_that_run_out_of_memory_are_skipped(rate: str, window: int) -> None:
    model, bad = net(), skips(rate, 40)
    optimizer = sgd(model)

    def train(number: int, x: torch.Tensor) -> None:
        (loss_of(model, x) / window).backward()
        if number in bad:
            raise torch.OutOfMemoryError
        if (number + 1) % window == 0:
            optimizer.step()
            optimizer.zero_grad()

    with zerograd.watch(rules=["ZG101", "ZG102", "ZG103", "ZG303"], on="collect") as report:
        for number, x in enumerate(batches(40)):
            try:
                train(number, x)
            except torch.OutOfMemoryError:
                optimizer.zero_grad()
    assert_found(report, right=True)


@pytest.mark.parametrize("raised", ["by a test", "by a call"])
def test_an_exception_before_the_step_skips_a_batch(raised: str) -> None:
    model = net()
    optimizer = sgd(model)

    def check(number: int) -> None:
        if number % 2:
            raise ValueError

    with zerograd.watch(on="collect") as report:
        for number, x in enumerate(batches(40)):
            try:
                optimizer.zero_grad()
                loss_of(model, x).backward()
                if raised == "by a call":
                    check(number)
                elif number % 2:
                    raise ValueError
                optimizer.step()
            except ValueError:
                continue
    assert_found(report, right=True)


@pytest.mark.parametrize("stop", [1, 2, 3])
def test_a_policy_update_that_stops_early_is_right(stop: int) -> None:
    model = net()
    optimizer = sgd(model)
    with zerograd.watch(on="collect") as report:
        for _ in range(20):
            for epoch, x in enumerate(batches(4)):
                loss = loss_of(model, x)
                divergence = float(loss.detach()) * 0 + epoch
                optimizer.zero_grad()
                loss.backward()
                if divergence >= stop:
                    break
                optimizer.step()
    assert_found(report, right=True)


@pytest.mark.parametrize("bad", [{9}, {9, 22}, {1, 6, 11, 16, 21, 26, 31}], ids=str)
@pytest.mark.parametrize("reason", ["nan", "norm"])
def test_a_bad_batch_may_drop_its_window(bad: set[int], reason: str) -> None:
    model = net()
    optimizer = sgd(model)
    factor = math.nan if reason == "nan" else 1e6
    with zerograd.watch(on="collect") as report:
        for number, x in enumerate(batches(40)):
            loss = loss_of(model, x) / 4 * (factor if number in bad else 1.0)
            loss.backward()
            if not float(loss.detach()) < 1e5:
                optimizer.zero_grad()
                continue
            if (number + 1) % 4 == 0:
                optimizer.step()
                optimizer.zero_grad()
    assert_found(report, right=True)


@either_way
@pytest.mark.parametrize("windows", [8, 9, 20])
@pytest.mark.parametrize("length", [2, 4])
def test_a_clear_in_every_micro_batch_is_counted_in_every_window(
    length: int, windows: int, right: bool
) -> None:
    model = net()
    optimizer = sgd(model)
    with zerograd.watch(on="collect") as report:
        for number, x in enumerate(batches(length * (windows - right))):
            optimizer.zero_grad()  # ZG103
            (loss_of(model, x) / length).backward()
            if right:
                if not float(loss_of(model, x).detach()) > number:
                    continue
                optimizer.step()
            elif (number + 1) % length == 0:
                optimizer.step()
    assert_found(report, right=right, seen=windows)


@pytest.mark.parametrize("windows", [1, 3, 7])
def test_fewer_than_eight_cut_windows_are_not_enough(windows: int) -> None:
    model = net()
    optimizer = sgd(model)
    with zerograd.watch(rules=["ZG103"], on="collect") as report:
        for number, x in enumerate(batches(4 * windows)):
            optimizer.zero_grad()
            (loss_of(model, x) / 4).backward()
            if (number + 1) % 4 == 0:
                optimizer.step()
    assert_found(report, right=True)


@pytest.mark.parametrize("guard", ["count set back", "variable", "attribute", "with a data test"])
def test_a_cut_window_is_found_whatever_counts(guard: str) -> None:
    model = net()
    optimizer = sgd(model)

    class Trainer:
        length = 3

        def __init__(self) -> None:
            self.length = 3
            self.batches = 0

    trainer, count = Trainer(), 0

    def step() -> None:
        optimizer.step()

    with zerograd.watch(on="collect") as report:
        for number, x in enumerate(batches(30)):
            optimizer.zero_grad()  # ZG103
            loss = loss_of(model, x) / 3
            loss.backward()
            if guard == "count set back":
                count += 1
                if count == trainer.length:
                    optimizer.step()
                    count = 0
            elif guard == "variable":
                last = (number + 1) % 3 == 0
                if last:
                    step()
            elif guard == "attribute":
                trainer.batches += 1
                if trainer.batches % trainer.length == 0:
                    optimizer.step()
            else:
                if not torch.isfinite(loss):
                    continue
                if number % 3 == 2:
                    optimizer.step()
    assert_found(report, seen=10)


def test_a_plain_step_starts_the_count_of_cut_windows_anew() -> None:
    model = net()
    optimizer = sgd(model)
    with zerograd.watch(on="collect") as report:
        for number, x in enumerate(batches(100)):
            optimizer.zero_grad()
            loss_of(model, x).backward()
            if number % 15 in (1, 3, 5, 7, 9, 11, 13):
                continue
            optimizer.step()
    assert_found(report, right=True)
