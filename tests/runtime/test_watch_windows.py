"""Accumulation windows as a run shows them: complete, short, dropped and carried over."""

from __future__ import annotations

import pytest
import torch

import zerograd
from support.clears import none_by_hand
from support.training import assert_found, batches, either_way, loss_of, net, sgd


@either_way
def test_accumulation_may_end_on_a_partial_window(right: bool) -> None:
    model = net()
    with zerograd.watch(on="collect") as report:
        optimizer = sgd(model)
        for number, x in enumerate(batches(14), 1):
            (loss_of(model, x) / 4).backward()  # ZG101
            if number % 4 == 0 or number == 14:
                optimizer.step()
                if right or number != 8:
                    optimizer.zero_grad()
    assert_found(report, right=right, seen=1)
    assert report.watched is not None
    assert report.watched.windows == {2: 1, 4: 3}


def test_short_windows_at_the_end_of_every_epoch_are_right() -> None:
    model = net()
    optimizer = sgd(model)
    with zerograd.watch(on="collect") as report:
        for _ in range(4):
            for number, x in enumerate(batches(10), 1):
                (loss_of(model, x) / 4).backward()
                if number % 4 == 0 or number == 10:
                    optimizer.step()
                    optimizer.zero_grad()
    assert_found(report, right=True)


@either_way
def test_a_clear_in_every_micro_batch_drops_part_of_the_window(right: bool) -> None:
    model = net()
    optimizer = sgd(model)
    with zerograd.watch(on="collect") as report:
        for number, x in enumerate(batches(40), 1):
            if not right:
                optimizer.zero_grad()  # ZG103
            (loss_of(model, x) / 4).backward()
            if number % 4 == 0:
                optimizer.step()
                if right:
                    optimizer.zero_grad()
    assert_found(report, right=right)


@either_way
def test_a_clear_in_every_micro_batch_is_found_where_epochs_end_on_short_windows(
    right: bool,
) -> None:
    model = net()
    optimizer = sgd(model)
    with zerograd.watch(on="collect") as report:
        for _ in range(3):
            for number, x in enumerate(batches(10), 1):
                if not right:
                    optimizer.zero_grad()  # ZG103
                (loss_of(model, x) / 4).backward()
                if number % 4 == 0 or number == 10:
                    optimizer.step()
                    if right:
                        optimizer.zero_grad()
    assert_found(report, right=right)


@pytest.mark.parametrize("since", [1, 23], ids=["always", "once, in a loop that repeats itself"])
def test_a_clear_by_hand_begins_another_window(since: int) -> None:
    model = net()
    optimizer = sgd(model)
    with zerograd.watch(on="collect") as report:
        for number, x in enumerate(batches(40), 1):
            if since in (1, number):
                none_by_hand(model)
            (loss_of(model, x) / 4).backward()  # ZG103
            if number % 4 == 0:
                optimizer.step()
                optimizer.zero_grad()
    assert_found(report, right=since > 1)
    assert report.watched is not None
    assert report.watched.windows == ({1: 10} if since == 1 else {2: 1, 4: 9})


def test_gradients_of_samples_may_be_clipped_one_by_one() -> None:
    model = net()
    optimizer = sgd(model)
    with zerograd.watch(on="collect") as report:
        kept = [torch.zeros_like(param) for param in model.parameters()]
        for number, x in enumerate(batches(42), 1):
            none_by_hand(model)
            loss_of(model, x).backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            for one, param in zip(kept, model.parameters(), strict=True):
                assert param.grad is not None
                one += param.grad
            if number % 4 == 0:
                for one, param in zip(kept, model.parameters(), strict=True):
                    param.grad = one / 4
                optimizer.step()
                kept = [torch.zeros_like(param) for param in model.parameters()]
    assert_found(report, right=True)


@either_way
@pytest.mark.parametrize("late", [False, True], ids=["at once", "late"])
def test_the_declared_window_is_held_against_the_run(late: bool, right: bool) -> None:
    model = net()
    optimizer = sgd(model)
    length = 4 if right else 2

    def train() -> None:
        for number, x in enumerate(batches(40), 1):
            (loss_of(model, x) / 4).backward()
            if number % length == 0:
                optimizer.step()  # ZG302
                optimizer.zero_grad()

    with zerograd.watch(on="collect") as report:
        if late:
            train()
        with zerograd.expect_window(4):
            train()
    assert_found(report, right=right)


@either_way
@pytest.mark.parametrize("early", [False, True], ids=["made inside", "made before"])
def test_a_guard_that_closes_the_first_window_too_early_is_found(early: bool, right: bool) -> None:
    model = net()
    made = sgd(model) if early else None
    with zerograd.watch(on="collect") as report:
        optimizer = made or sgd(model)
        for number, x in enumerate(batches(17)):
            (loss_of(model, x) / 4).backward()
            if (number + right) % 4 == 0 or number == 16:
                optimizer.step()  # ZG302
                optimizer.zero_grad()
    assert_found(report, right=right)


@either_way
def test_a_last_window_that_is_never_stepped_is_found(right: bool) -> None:
    model = net()
    optimizer = sgd(model)
    with zerograd.watch(on="collect") as report:
        for number, x in enumerate(batches(18), 1):
            (loss_of(model, x) / 4).backward()
            if number % 4 == 0 or (right and number == 18):
                optimizer.step()  # ZG303
                optimizer.zero_grad()
    assert_found(report, right=right, seen=1)


@either_way
def test_a_partial_window_dropped_at_the_next_epoch_is_found(right: bool) -> None:
    model = net()
    optimizer = sgd(model)
    with zerograd.watch(on="collect") as report:
        for _ in range(3):
            optimizer.zero_grad()
            for number, x in enumerate(batches(10), 1):
                (loss_of(model, x) / 4).backward()
                if number % 4 == 0 or (right and number == 10):
                    optimizer.step()  # ZG303
                    optimizer.zero_grad()
    assert_found(report, right=right)


@either_way
def test_a_partial_window_carried_into_the_next_epoch_is_found(right: bool) -> None:
    model = net()
    optimizer = sgd(model)
    with zerograd.watch(on="collect") as report:
        for _ in range(3):
            for number, x in enumerate(batches(10), 1):
                (loss_of(model, x) / 4).backward()
                if number % 4 == 0 or (right and number == 10):
                    optimizer.step()  # ZG304
                    optimizer.zero_grad()
    assert_found(report, right=right)


@pytest.mark.parametrize("lengths", [(3, 2, 4, 4, 5, 3, 3, 4), (1, 4, 4, 4, 6, 2, 4)], ids=str)
def test_windows_as_long_as_the_data_says_carry_nothing(lengths: tuple[int, ...]) -> None:
    model = net()
    optimizer = sgd(model)
    with zerograd.watch(rules=["ZG304"], on="collect") as report:
        for length in lengths:
            for x in batches(length):
                (loss_of(model, x) / length).backward()
            optimizer.step()
            optimizer.zero_grad()
    assert_found(report, right=True)


def test_only_windows_are_advice_and_advice_is_no_error() -> None:
    model = net()
    optimizer = sgd(model)
    with zerograd.watch(on="raise") as report:
        for number, x in enumerate(batches(18), 1):
            (loss_of(model, x) / 4).backward()
            if number % 4 == 0:
                optimizer.step()  # ZG303
                optimizer.zero_grad()
    assert_found(report)
    assert report.exit_code == 0
