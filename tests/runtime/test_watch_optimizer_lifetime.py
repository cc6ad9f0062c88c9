"""Optimizers that are copied, dropped, loaded or given parameters later, and parameters that are frozen."""

from __future__ import annotations

import copy
import gc
import pickle
import weakref
from collections.abc import Iterable
from typing import Any

import pytest
import torch
import torch.nn.utils
import torch.nn.utils.clip_grad
from torch import Tensor, nn

import zerograd
from support.training import assert_found, batches, either_way, loss_of, net, sgd


@either_way
def test_optimizers_that_step_inside_backward_are_watched(right: bool) -> None:
    model = net()
    optimizers = {param: torch.optim.SGD([param], lr=0.01) for param in model.parameters()}

    def step(param: Any) -> None:
        optimizers[param].step()
        if right:
            optimizers[param].zero_grad()

    for param in model.parameters():
        param.register_post_accumulate_grad_hook(step)
    with zerograd.watch(on="collect") as report:
        for x in batches():
            loss_of(model, x).backward()  # ZG101
    codes = {finding.code for finding in report.findings}
    assert codes == (set() if right else {"ZG101"})


def test_dropped_optimizers_and_models_are_not_kept() -> None:
    def train() -> list[weakref.ref[Any]]:
        model = net()
        optimizer = sgd(model)
        for x in batches(2):
            optimizer.zero_grad()
            loss_of(model, x).backward()
            optimizer.step()
        return [weakref.ref(thing) for thing in (model, optimizer, *model.parameters())]

    with zerograd.watch(on="collect") as report:
        left = [ref for _ in range(3) for ref in train()]
        gc.collect()
        assert [ref() for ref in left] == [None] * len(left)
    assert_found(report, right=True)
    assert report.watched is not None
    assert report.watched.steps == 6


def test_recycled_identities_are_not_taken_for_what_was_there_before() -> None:
    def train(number: int) -> None:
        model = nn.Linear(3, 2)
        optimizer = sgd(model)
        loss_of(model, torch.ones(2, 3) * number).backward()
        optimizer.step()
        if number % 2:
            model.weight.grad = None

    with zerograd.watch(on="collect") as report:
        for number in range(200):
            train(number)
    assert_found(report, right=True)
    assert report.watched is not None
    assert report.watched.steps == 200


@either_way
@pytest.mark.parametrize("how", ["deepcopy", "pickle"])
def test_a_copied_optimizer_is_its_own(how: str, right: bool) -> None:
    model = net()
    pair = (model, sgd(model))
    with zerograd.watch(on="collect") as report:
        for x in batches(3):
            pair[1].zero_grad()
            loss_of(pair[0], x).backward()
            pair[1].step()
        copied, optimizer = (
            copy.deepcopy(pair) if how == "deepcopy" else pickle.loads(pickle.dumps(pair))
        )
        for x in batches(4):
            if right:
                optimizer.zero_grad()
            loss_of(copied, x).backward()  # ZG101
            optimizer.step()
    assert_found(report, right=right)


@either_way
def test_parameters_added_later_are_watched(right: bool) -> None:
    model, late = net(), nn.Linear(2, 2)
    with zerograd.watch(on="collect") as report:
        optimizer = sgd(model)
        for number, x in enumerate(batches(8)):
            if number == 3:
                optimizer.add_param_group({"params": late.parameters()})
            if right or number != 6:
                optimizer.zero_grad()
            out = model(x) if number < 3 else late(model(x))
            (out - 10).pow(2).mean().backward()  # ZG101
            optimizer.step()
    assert_found(report, right=right, seen=1)
    if not right:
        assert report.findings[0].message.endswith("and 3 more)")


@either_way
def test_a_loaded_checkpoint_changes_nothing(right: bool) -> None:
    model = net()
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    kept: tuple[Any, Any] = (None, None)
    with zerograd.watch(on="collect") as report:
        for number, x in enumerate(batches(8)):
            if number == 2:
                kept = copy.deepcopy((model.state_dict(), optimizer.state_dict()))
            if number == 4:
                model.load_state_dict(kept[0])
                optimizer.load_state_dict(kept[1])
            if right or number != 4:
                optimizer.zero_grad()
            loss_of(model, x).backward()  # ZG101
            optimizer.step()
    assert_found(report, right=right, seen=1)


def test_moving_averages_of_the_weights_are_right() -> None:
    model = net()
    average = copy.deepcopy(model).requires_grad_(False)
    swa = torch.optim.swa_utils.AveragedModel(model)
    optimizer = sgd(model)
    with zerograd.watch(on="collect") as report:
        for x in batches():
            optimizer.zero_grad()
            loss_of(model, x).backward()
            optimizer.step()
            swa.update_parameters(model)
            with torch.no_grad():
                for mean, param in zip(average.parameters(), model.parameters(), strict=True):
                    mean.lerp_(param, 0.1)
            average(x)
    assert_found(report, right=True)


@either_way
def test_layers_may_be_frozen_and_thawed(right: bool) -> None:
    model = net()
    optimizer = sgd(model)
    with zerograd.watch(on="collect") as report:
        for number, x in enumerate(batches(12)):
            model[0].requires_grad_(number < 3 or number >= 8)
            if right or number != 10:
                optimizer.zero_grad()
            loss_of(model, x).backward()  # ZG101
            optimizer.step()
    assert_found(report, right=right, seen=1)


@either_way
def test_thawed_layers_that_kept_old_gradients_are_found(right: bool) -> None:
    model = net()
    optimizer = sgd(model)
    with zerograd.watch(on="collect") as report:
        for number, x in enumerate(batches(9)):
            model[0].requires_grad_(not 3 <= number < 6)
            model[2].zero_grad()
            if right or number < 3:
                model[0].zero_grad()
            loss_of(model, x).backward()  # ZG101
            optimizer.step()  # ZG105
    assert_found(report, right=right)


@either_way
def test_gradients_that_are_exactly_zero_are_gradients(right: bool) -> None:
    """As in LoRA, where one factor begins at zero and the other's gradient with it."""
    down, up = nn.Linear(3, 2, bias=False), nn.Linear(2, 3, bias=False)
    nn.init.zeros_(up.weight)
    optimizer = torch.optim.Adam([*down.parameters(), *up.parameters()], lr=0.01)
    with zerograd.watch(on="collect") as report:
        for x in batches():
            if right:
                optimizer.zero_grad()
            (up(down(x)) - 10).pow(2).mean().backward()  # ZG101
            optimizer.step()
    assert_found(report, right=right)


def test_gradients_that_stay_zero_are_no_empty_steps() -> None:
    model = net()
    optimizer = sgd(model)
    with zerograd.watch(on="collect") as report:
        for x in batches():
            optimizer.zero_grad()
            (0 * loss_of(model, x)).backward()
            optimizer.step()
    assert_found(report, right=True)


class Duck:
    """Walks like an optimizer and is none of torch's."""

    def __init__(self, params: Iterable[Tensor]) -> None:
        self.params = list(params)

    def step(self) -> None:
        with torch.no_grad():
            for param in self.params:
                assert param.grad is not None
                param -= 0.01 * param.grad

    def zero_grad(self) -> None:
        for param in self.params:
            param.grad = None


@either_way
def test_an_optimizer_that_is_none_of_torchs_is_named_and_not_guessed_at(right: bool) -> None:
    model = net()
    optimizer = Duck(model.parameters())
    with zerograd.watch(on="collect") as report:
        for x in batches(12):
            if right:
                optimizer.zero_grad()
            loss_of(model, x).backward()
            optimizer.step()
    assert_found(report, right=True)
    assert report.watched is not None
    assert "Duck" in report.watched.unwatched
