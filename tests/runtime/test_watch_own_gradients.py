"""Gradients and scales that a program handles itself: assigned gradients, scalers of its own."""

from __future__ import annotations

from collections import defaultdict
from typing import Any

import pytest
import torch
from torch import nn
from torch.amp.grad_scaler import OptState, _refresh_per_optimizer_state

import zerograd
from support.training import assert_found, batches, either_way, loss_of, net, sgd

clip = nn.utils.clip_grad_norm_


@either_way
@pytest.mark.parametrize("how", ["assign", "copy_", "data"])
def test_gradients_of_master_weights_are_clipped(how: str, right: bool) -> None:
    model = net()
    masters = [param.detach().clone().requires_grad_() for param in model.parameters()]
    with zerograd.watch(on="collect") as report:
        optimizer = torch.optim.SGD(masters, lr=0.01)
        for x in batches(10):
            model.zero_grad()
            loss_of(model, x).backward()
            for master, param in zip(masters, model.parameters(), strict=True):
                assert param.grad is not None
                if how == "assign" or master.grad is None:
                    master.grad = param.grad.clone()
                elif how == "copy_":
                    master.grad.copy_(param.grad)
                else:
                    master.grad.data.copy_(param.grad.data)
            if right:
                clip(masters, 0.1)
            optimizer.step()
            if not right:
                clip(masters, 0.1)  # ZG203
            with torch.no_grad():
                for master, param in zip(masters, model.parameters(), strict=True):
                    param.copy_(master)
    assert_found(report, right=right, seen=10)


class OwnScale(torch.amp.GradScaler):
    def scale(self, outputs: Any) -> Any:
        if self._scale is None:
            self._lazy_init_scale_growth_tracker(outputs.device)
        return outputs * self._scale


class OwnUnscale(torch.amp.GradScaler):
    def unscale_(self, optimizer: Any) -> None:
        state: Any = self._per_optimizer_states[id(optimizer)]
        inverse = self._scale.double().reciprocal().float()  # type: ignore[union-attr]
        found = self._unscale_grads_(optimizer, inverse, torch.zeros(1), True)
        state["found_inf_per_device"], state["stage"] = found, OptState.UNSCALED


class OwnUpdate(torch.amp.GradScaler):
    def update(self, new_scale: Any = None) -> None:
        self._per_optimizer_states = defaultdict(_refresh_per_optimizer_state)


class OwnEverything(OwnScale, OwnUnscale, OwnUpdate):
    pass


OWN = [OwnScale, OwnUnscale, OwnUpdate, OwnEverything]


@pytest.mark.parametrize("unscales", [False, True])
@pytest.mark.parametrize("kind", OWN)
def test_a_scaler_may_override_what_it_does(kind: Any, unscales: bool) -> None:
    model = net()
    optimizer, scaler = sgd(model), kind("cpu", init_scale=64.0)
    with zerograd.watch(on="collect") as report:
        for x in batches(10):
            optimizer.zero_grad()
            scaler.scale(loss_of(model, x)).backward()
            if unscales:
                scaler.unscale_(optimizer)
                clip(model.parameters(), 1.0)
            scaler.step(optimizer)
            scaler.update()
    assert_found(report, right=True)


@either_way
@pytest.mark.parametrize("how", ["number", "tensor", "gradient"])
def test_a_loss_may_be_scaled_by_hand(how: str, right: bool) -> None:
    model = net()
    optimizer, scaler = sgd(model), torch.amp.GradScaler("cpu", init_scale=64.0)
    scaler.scale(torch.zeros(1))
    with zerograd.watch(rules=["ZG201", "ZG205", "ZG208"], on="collect") as report:
        for x in batches(10):
            optimizer.zero_grad()
            loss = loss_of(model, x)
            if not right:
                _ = scaler.scale(loss)
                loss.backward()  # ZG208
            elif how == "number":
                (loss * scaler.get_scale()).backward()
            elif how == "tensor":
                scaled: Any = scaler.scale(torch.ones(())) * loss
                scaled.backward()
            else:
                loss.backward(gradient=scaler.scale(torch.ones(())))
            scaler.step(optimizer)
            scaler.update()
    assert_found(report, right=right, seen=10)


@pytest.mark.parametrize("engine", ["backward", "grad"])
def test_a_scaled_gradient_may_be_handed_on(engine: str) -> None:
    model = net()
    optimizer, scaler = sgd(model), torch.amp.GradScaler("cpu", init_scale=64.0)
    with zerograd.watch(on="collect") as report:
        for x in batches(10):
            optimizer.zero_grad()
            outputs = model(x).detach().requires_grad_()
            loss: Any = scaler.scale((outputs**2).mean())
            if engine == "backward":
                loss.backward()
                cached = outputs.grad
            else:
                (cached,) = torch.autograd.grad(loss, outputs)
            (model(x) * cached).sum().backward()
            scaler.unscale_(optimizer)
            clip(model.parameters(), 1.0)
            scaler.step(optimizer)
            scaler.update()
    assert_found(report, right=True)


@either_way
def test_a_schedule_is_plotted_with_steps_that_use_nothing(right: bool) -> None:
    model = net()
    optimizer = sgd(model)
    schedule = torch.optim.lr_scheduler.StepLR(optimizer, 3)
    with zerograd.watch(on="collect") as report:
        for x in batches(20):
            if not right:
                optimizer.zero_grad()
                loss_of(model, x)
            optimizer.step()  # ZG104
            schedule.step()
    assert_found(report, right=right, seen=19)


@either_way
@pytest.mark.parametrize("change", ["replaced", "unfrozen"])
@pytest.mark.parametrize("window", [1, 4])
def test_a_parameter_of_no_optimizer_is_found_late(change: str, window: int, right: bool) -> None:
    model: Any = net()
    optimizer = torch.optim.SGD(model[2].parameters(), lr=0.01)
    model[0].requires_grad_(False)
    with zerograd.watch(rules=["ZG108"], on="collect") as report:
        for number, x in enumerate(batches(290)):
            if number == 20 and change == "replaced":
                model[2] = nn.Linear(4, 2)
                if right:
                    optimizer.add_param_group({"params": model[2].parameters()})
            elif number == 20 and not right:
                model[0].requires_grad_(True)
            loss_of(model, x).backward()  # ZG108
            if (number + 1) % window == 0:
                optimizer.step()
                optimizer.zero_grad()
    assert_found(report, right=right, seen=1)


@pytest.mark.parametrize("how", ["assign", "copy_"])
def test_gradients_of_several_tasks_that_are_merged_and_clipped_drop_nothing(how: str) -> None:
    model = net()
    optimizer = sgd(model)
    params = list(model.parameters())
    with zerograd.watch(on="collect") as report:
        for x in batches(20):
            tasks = []
            for sign in (1, -1):
                optimizer.zero_grad()
                loss_of(model, sign * x).backward()
                tasks.append([param.grad.clone() for param in params if param.grad is not None])
            for param, first, second in zip(params, *tasks, strict=True):
                if how == "assign":
                    param.grad = first + second
                else:
                    assert param.grad is not None
                    param.grad.copy_(first + second)
            clip(params, 1.0)
            optimizer.step()
    assert_found(report, right=True)


@pytest.mark.parametrize("cleared", [None, 0, 1, 3])
def test_a_clip_of_what_a_step_has_used_is_found_though_one_gradient_is_cleared(
    cleared: int | None,
) -> None:
    model = net()
    optimizer = sgd(model)
    params = list(model.parameters())
    with zerograd.watch(on="collect") as report:
        for number, x in enumerate(batches(12)):
            optimizer.zero_grad()
            if number == 0:
                for param in params:
                    param.grad = torch.ones_like(param)  # from now on norms are compared
            else:
                loss_of(model, x).backward()
            optimizer.step()
            if cleared is not None:
                params[cleared].grad = None
            if number:
                clip(params, 0.1)  # ZG203
    assert_found(report, seen=11)


@pytest.mark.parametrize("copied", [False, True])
def test_gradients_put_in_the_place_of_a_stale_sum_are_right_unless_they_are_a_copy_of_it(
    copied: bool,
) -> None:
    model = net()
    optimizer = sgd(model)
    with zerograd.watch(on="collect") as report:
        for number, x in enumerate(batches(10)):
            loss_of(model, x).backward()  # ZG101
            for param in model.parameters():
                assert param.grad is not None
                param.grad = param.grad.clone() if copied else torch.full_like(param, 0.1 + number)
            optimizer.step()
    assert_found(report, right=not copied)
