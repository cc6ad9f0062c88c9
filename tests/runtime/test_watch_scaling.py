"""Loops with a `GradScaler`: right ones are silent, wrong ones are found."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.utils
import torch.nn.utils.clip_grad
from torch import nn
from torch.nn.utils import clip_grad_norm_

import zerograd
from support.training import assert_found, batches, either_way, loss_of, net, sgd


@either_way
def test_a_scaled_loop_is_watched(right: bool) -> None:
    model = net()
    optimizer = sgd(model)
    scaler = torch.amp.GradScaler("cpu")
    with zerograd.watch(on="collect") as report:
        for x in batches():
            if right:
                optimizer.zero_grad()
            scaler.scale(loss_of(model, x)).backward()  # ZG101
            scaler.unscale_(optimizer)
            clip_grad_norm_(model.parameters(), 1.0)
            scaler.step(optimizer)
            scaler.update()
    assert_found(report, right=right, seen=5)


@pytest.mark.parametrize("fused", [False, True], ids=["plain", "fused"])
@pytest.mark.parametrize("kind", [torch.optim.SGD, torch.optim.AdamW])
@either_way
def test_a_step_skipped_for_inf_has_used_its_gradients(
    right: bool, kind: Callable[..., torch.optim.Optimizer], fused: bool
) -> None:
    model = net()
    optimizer = kind(model.parameters(), lr=0.01, fused=fused)
    scaler = torch.amp.GradScaler("cpu")
    with zerograd.watch(on="collect") as report:
        for number, x in enumerate(batches(8)):
            if right or number != 4:
                optimizer.zero_grad()
            loss = loss_of(model, x) * (float("inf") if number == 3 else 1.0)
            scaler.scale(loss).backward()  # ZG101
            scaler.step(optimizer)
            scaler.update()
    assert_found(report, right=right, seen=1)
    assert report.watched is not None
    assert report.watched.steps == 8


@either_way
def test_a_scaled_window_is_watched(right: bool) -> None:
    model = net()
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01, fused=True)
    scaler = torch.amp.GradScaler("cpu")
    with zerograd.watch(on="collect") as report:
        for number, x in enumerate(batches(12), 1):
            scaler.scale(loss_of(model, x) / 4).backward()  # ZG101
            if number % 4 == 0:
                scaler.step(optimizer)
                scaler.update()
                if right:
                    optimizer.zero_grad()
    assert_found(report, right=right, seen=2)


@either_way
def test_a_clip_of_scaled_gradients_is_found(right: bool) -> None:
    model = net()
    optimizer = sgd(model)
    scaler = torch.amp.GradScaler("cpu")
    with zerograd.watch(on="collect") as report:
        for x in batches():
            optimizer.zero_grad()
            scaler.scale(loss_of(model, x)).backward()
            if right:
                scaler.unscale_(optimizer)
            clip_grad_norm_(model.parameters(), 1.0)  # ZG201
            scaler.step(optimizer)
            scaler.update()
    assert_found(report, right=right)


@either_way
def test_a_step_past_the_scaler_is_found(right: bool) -> None:
    model = net()
    optimizer = sgd(model, lr=1e-9)
    scaler = torch.amp.GradScaler("cpu")
    with zerograd.watch(on="collect") as report:
        for x in batches():
            optimizer.zero_grad()
            scaler.scale(loss_of(model, x)).backward()
            if right:
                scaler.step(optimizer)
                scaler.update()
            else:
                optimizer.step()  # ZG205
    assert_found(report, right=right)


def test_a_step_past_the_scaler_after_unscaling_is_right() -> None:
    model = net()
    optimizer = sgd(model)
    scaler = torch.amp.GradScaler("cpu")
    with zerograd.watch(on="collect") as report:
        for x in batches():
            optimizer.zero_grad()
            scaler.scale(loss_of(model, x)).backward()
            scaler.unscale_(optimizer)
            optimizer.step()
            scaler.update()
    assert_found(report, right=True)


@either_way
def test_a_scaled_backward_onto_unscaled_gradients_is_found(right: bool) -> None:
    model = net()
    optimizer = sgd(model)
    scaler = torch.amp.GradScaler("cpu", init_scale=4.0)
    with zerograd.watch(on="collect") as report:
        for x in batches():
            optimizer.zero_grad()
            scaler.scale(loss_of(model, x)).backward()
            if not right:
                scaler.unscale_(optimizer)
            scaler.scale(loss_of(model, -x)).backward()  # ZG206
            scaler.step(optimizer)
            scaler.update()
    assert_found(report, right=right)


@either_way
def test_a_second_unscale_without_update_is_found(right: bool) -> None:
    model = net()
    optimizer = sgd(model)
    scaler = torch.amp.GradScaler("cpu")
    with zerograd.watch(on="collect") as report:
        optimizer.zero_grad()
        scaler.scale(loss_of(model, torch.ones(2, 3))).backward()
        scaler.unscale_(optimizer)
        if not right:
            with pytest.raises(RuntimeError, match="already been called"):
                scaler.unscale_(optimizer)  # ZG207
        scaler.step(optimizer)
        scaler.update()
    assert_found(report, right=right)


@either_way
def test_a_loss_that_is_not_scaled_is_found(right: bool) -> None:
    model = net()
    optimizer = sgd(model)
    scaler = torch.amp.GradScaler("cpu")
    with zerograd.watch(on="collect") as report:
        for number, x in enumerate(batches()):
            optimizer.zero_grad()
            loss = loss_of(model, x)
            if right or number < 2:
                loss = scaler.scale(loss)
            loss.backward()  # ZG208
            scaler.step(optimizer)
            scaler.update()
    assert_found(report, right=right)


def test_a_scaler_that_is_switched_off_does_nothing() -> None:
    model = net()
    optimizer = sgd(model)
    scaler = torch.amp.GradScaler("cpu", enabled=False)
    with zerograd.watch(on="collect") as report:
        for x in batches():
            optimizer.zero_grad()
            scaler.scale(loss_of(model, x)).backward()
            scaler.unscale_(optimizer)
            clip_grad_norm_(model.parameters(), 1.0)
            scaler.step(optimizer)
            scaler.update()
    assert_found(report, right=True)


def test_two_optimizers_of_one_scaler_are_right() -> None:
    encoder, head = net(), nn.Linear(2, 2)
    first, second = sgd(encoder), torch.optim.Adam(head.parameters(), lr=0.01, fused=True)
    scaler = torch.amp.GradScaler("cpu")
    with zerograd.watch(on="collect") as report:
        for number, x in enumerate(batches(8)):
            first.zero_grad()
            second.zero_grad()
            loss = loss_of(head, encoder(x)) * (float("inf") if number == 3 else 1.0)
            scaler.scale(loss).backward()
            scaler.unscale_(first)
            clip_grad_norm_(encoder.parameters(), 1.0)
            scaler.step(first)
            scaler.step(second)
            scaler.update()
    assert_found(report, right=True)


DIVISIONS: dict[str, Callable[[Any, float], object]] = {
    "in place": lambda model, scale: [p.grad.mul_(1 / scale) for p in model.parameters()],
    "in data": lambda model, scale: [p.grad.data.div_(scale) for p in model.parameters()],
    "by foreach": lambda model, scale: torch._foreach_div_(
        [p.grad for p in model.parameters()], scale
    ),
    "by assignment": lambda model, scale: [
        p.__setattr__("grad", p.grad / scale) for p in model.parameters()
    ],
}


@pytest.mark.parametrize("clip", [False, True])
@pytest.mark.parametrize("how", DIVISIONS)
def test_gradients_that_are_divided_by_hand_are_right(how: str, clip: bool) -> None:
    model = net()
    optimizer = sgd(model)
    scaler = torch.amp.GradScaler("cpu", init_scale=1024.0)
    with zerograd.watch(on="collect") as report:
        for x in batches():
            optimizer.zero_grad()
            scaler.scale(loss_of(model, x)).backward()
            DIVISIONS[how](model, scaler.get_scale())
            if clip:
                clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
    assert_found(report, right=True)


def test_gradients_that_are_only_averaged_by_hand_are_still_scaled() -> None:
    model = net()
    optimizer = sgd(model, lr=1e-6)
    scaler = torch.amp.GradScaler("cpu", init_scale=1024.0)
    with zerograd.watch(on="collect") as report:
        for x in batches():
            optimizer.zero_grad()
            for part in (x[:2], x[2:4], x[4:]):
                scaler.scale(loss_of(model, part)).backward()
            DIVISIONS["in place"](model, 3.0)
            clip_grad_norm_(model.parameters(), 1.0)  # ZG201
            optimizer.step()  # ZG205
    assert_found(report, seen=6)


@pytest.mark.parametrize("window", [1, 4])
@pytest.mark.parametrize("one_call", [True, False], ids=["one call", "two calls"])
@pytest.mark.parametrize("every", [2, 3])
@either_way
def test_a_loss_that_is_not_scaled_now_and_then_is_found_in_every_window(
    right: bool, every: int, one_call: bool, window: int
) -> None:
    model = net()
    optimizer = sgd(model)
    scaler = torch.amp.GradScaler("cpu", init_scale=64.0)
    with zerograd.watch(on="collect") as report:
        for number, x in enumerate(batches(12)):
            if number % window == 0:
                optimizer.zero_grad()
            loss = loss_of(model, x)
            if right or (number + 1) % every:
                loss = scaler.scale(loss)
            if one_call or right or (number + 1) % every:
                loss.backward()
            else:
                loss.backward()
            if (number + 1) % window == 0:
                scaler.step(optimizer)
                scaler.update()
    windows = {number // window for number in range(12) if (number + 1) % every == 0}
    found = [(one.code, one.seen) for one in report.findings]
    assert report.errors == []
    assert found == ([] if right else [("ZG208", len(windows))])


@pytest.mark.parametrize("unscales", [True, False])
@pytest.mark.parametrize("early", [True, False], ids=["cleared before", "cleared after"])
@either_way
def test_a_scaler_is_of_one_of_two_models(right: bool, early: bool, unscales: bool) -> None:
    """The loss of the other model is not scaled, and it does not reach this one."""
    plain, scaled = net(), net(seed=1)
    first, second = sgd(plain), torch.optim.Adam(scaled.parameters(), lr=0.01)
    scaler = torch.amp.GradScaler("cpu", init_scale=8.0)
    with zerograd.watch(on="collect") as report:
        for number, x in enumerate(batches(10)):
            if early:
                second.zero_grad()
            first.zero_grad()
            loss_of(plain, x).backward()
            first.step()
            if not right and number == 7:
                loss_of(scaled, x).backward()  # ZG208
            scaler.scale(loss_of(scaled, x)).backward()
            if unscales:
                scaler.unscale_(second)
                clip_grad_norm_(scaled.parameters(), 1.0)
            scaler.step(second)
            scaler.update()
            if not early:
                scaled.zero_grad()
    assert_found(report, right=right, seen=1)
