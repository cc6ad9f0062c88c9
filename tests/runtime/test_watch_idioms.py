"""What people do between backward and step: skipped batches, adversarial training, sharpness-aware steps."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest
import torch
import torch.nn.utils
import torch.nn.utils.clip_grad
from torch import Tensor

import zerograd
from support.training import assert_found, batches, either_way, loss_of, net, sgd, weights


def test_a_step_left_out_because_of_nan_is_right() -> None:
    model = net()
    optimizer = sgd(model)
    with zerograd.watch(on="collect") as report:
        for number, x in enumerate(batches(12)):
            loss = loss_of(model, x) * (float("nan") if number % 4 == 1 else 1.0)
            optimizer.zero_grad()
            loss.backward()
            if not all(torch.isfinite(param.grad).all() for param in model.parameters()):
                optimizer.zero_grad()
                continue
            optimizer.step()
    assert_found(report, right=True)


def test_a_loss_left_out_because_of_nan_is_right() -> None:
    model = net()
    optimizer = sgd(model)
    with zerograd.watch(on="collect") as report:
        for number, x in enumerate(batches(12)):
            loss = loss_of(model, x) * (float("nan") if number % 4 == 1 else 1.0)
            optimizer.zero_grad()
            if torch.isnan(loss):
                continue
            loss.backward()
            optimizer.step()
    assert_found(report, right=True)


@either_way
@pytest.mark.parametrize("mode", [torch.no_grad, torch.inference_mode])
def test_an_evaluation_between_steps_changes_nothing(mode: Any, right: bool) -> None:
    model = net()
    optimizer = sgd(model)
    with zerograd.watch(on="collect") as report:
        for number, x in enumerate(batches(8)):
            if right or number != 5:
                optimizer.zero_grad()
            loss_of(model, x).backward()  # ZG101
            optimizer.step()
            model.eval()
            with mode():
                loss_of(model, x)
            model.train()
    assert_found(report, right=right, seen=1)


@either_way
@pytest.mark.parametrize("clears", ["model", "optimizer"])
def test_adversarial_training_is_watched(clears: str, right: bool) -> None:
    model = net()
    optimizer = sgd(model)
    with zerograd.watch(on="collect") as report:
        for x in batches(8):
            noise = torch.zeros_like(x, requires_grad=True)
            for _ in range(3):
                loss_of(model, x + noise).backward()  # ZG101
                assert noise.grad is not None
                noise.data.add_(noise.grad.sign(), alpha=0.1)
                noise.grad.zero_()
            if right:
                (model if clears == "model" else optimizer).zero_grad()
            loss_of(model, x + noise.detach()).backward()
            optimizer.step()
    assert_found(report, right=right)


def test_an_attack_on_a_trained_model_is_right() -> None:
    model = net()
    with zerograd.watch(on="collect") as report:
        for x in batches(8):
            x.requires_grad_()
            for _ in range(3):
                model.zero_grad()
                loss_of(model, x).backward()
                assert x.grad is not None
                x.data.add_(x.grad.sign(), alpha=0.1)
                x.grad = None
    assert_found(report, right=True)


def climb(model: Any, size: float) -> None:
    for param in model.parameters():
        param.data.add_(param.grad, alpha=size)


@either_way
@pytest.mark.parametrize("helper", [False, True], ids=["in line", "helper"])
def test_sharpness_aware_steps_by_hand_are_watched(helper: bool, right: bool) -> None:
    model = net()
    optimizer = sgd(model)

    def passes(x: Tensor) -> None:
        loss_of(model, x).backward()

    with zerograd.watch(on="collect") as report:
        for number, x in enumerate(batches(8)):
            if right or number != 5:
                optimizer.zero_grad()
            passes(x) if helper else loss_of(model, x).backward()
            saved = weights(model)
            climb(model, 0.05)
            optimizer.zero_grad()
            passes(x) if helper else loss_of(model, x).backward()
            for param, old in zip(model.parameters(), saved, strict=True):
                param.data.copy_(old)
            optimizer.step()
    # What the first pass adds to is thrown away by the second zero, whether it was clear or not.
    assert_found(report, right=True)


class Sharp(torch.optim.Optimizer):
    """Sharpness-aware minimization as a wrapper that shares the groups of another optimizer."""

    def __init__(self, params: Iterable[Tensor], base: Any) -> None:
        super().__init__(params, {})
        self.base = base(self.param_groups, lr=0.01)
        self.param_groups = self.base.param_groups
        self.moved: list[tuple[Tensor, Tensor]] = []

    @torch.no_grad()
    def first_step(self) -> None:
        for group in self.param_groups:
            for param in group["params"]:
                self.moved.append((param, param.clone()))
                param.add_(param.grad, alpha=0.05)
        self.zero_grad()

    @torch.no_grad()
    def second_step(self, *, clear: bool) -> None:
        for param, old in self.moved:
            param.copy_(old)
        self.moved.clear()
        self.base.step()
        if clear:
            self.zero_grad()

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:  # type: ignore[override]
        self.first_step()
        with torch.enable_grad():
            closure()
        self.second_step(clear=False)


@either_way
def test_sharpness_aware_steps_in_two_halves_are_watched(right: bool) -> None:
    model = net()
    optimizer = Sharp(model.parameters(), torch.optim.SGD)
    with zerograd.watch(on="collect") as report:
        for x in batches(8):
            loss_of(model, x).backward()
            optimizer.first_step()
            loss_of(model, x).backward()
            optimizer.second_step(clear=right)
    # What is left over is read by the climb alone, which is no step of torch's.
    assert_found(report, right=True)


@either_way
def test_a_sharpness_aware_step_with_a_closure_is_watched(right: bool) -> None:
    model = net()
    optimizer = Sharp(model.parameters(), torch.optim.SGD)
    with zerograd.watch(on="collect") as report:
        for x in batches(8):

            def closure(x: Tensor = x) -> None:
                loss_of(model, x).backward()

            loss_of(model, x).backward()
            optimizer.step(closure)
            if right:
                optimizer.zero_grad()
    assert_found(report, right=True)


def test_an_evolution_strategy_that_assigns_gradients_is_right() -> None:
    model = net()
    optimizer = sgd(model)
    torch.manual_seed(0)
    with zerograd.watch(on="collect") as report:
        for _ in range(10):
            for param in model.parameters():
                param.grad = torch.randn_like(param)
            optimizer.step()
    assert_found(report, right=True)


def test_an_evolution_strategy_that_writes_into_gradients_is_right() -> None:
    model = net()
    optimizer = sgd(model)
    torch.manual_seed(0)
    for param in model.parameters():
        param.grad = torch.zeros_like(param)
    with zerograd.watch(on="collect") as report:
        for _ in range(10):
            for param in model.parameters():
                param.grad.copy_(torch.randn_like(param))
            optimizer.step()
    assert_found(report, right=True)


def test_gradients_of_tasks_that_are_combined_and_assigned_are_right() -> None:
    """As in PCGrad: one backward per task, cleared in between, the projected sum assigned."""
    model = net()
    optimizer = sgd(model)
    with zerograd.watch(on="collect") as report:
        for x in batches(10):
            out = model(x)
            tasks = []
            for loss in ((out - 1).pow(2).mean(), (out + 2).pow(2).mean()):
                optimizer.zero_grad()
                loss.backward(retain_graph=True)
                tasks.append([param.grad.clone() for param in model.parameters()])
            for param, first, second in zip(model.parameters(), *tasks, strict=True):
                param.grad = first + second
            optimizer.step()
    assert_found(report, right=True)


def test_a_worker_that_lends_its_gradient_buffers_is_right() -> None:
    """As in A3C: the shared model's gradients are those of the worker, which are cleared."""
    shared, worker = net(), net(seed=1)
    optimizer = sgd(shared)
    with zerograd.watch(on="collect") as report:
        for x in batches(10):
            worker.load_state_dict(shared.state_dict())
            worker.zero_grad()
            loss_of(worker, x).backward()
            for ours, theirs in zip(shared.parameters(), worker.parameters(), strict=True):
                ours._grad = theirs.grad
            optimizer.step()
    assert_found(report, right=True)


def test_a_trust_region_that_reads_gradients_and_sets_weights_is_right() -> None:
    model = net()
    optimizer = sgd(model)
    with zerograd.watch(on="collect") as report:
        for x in batches(10):
            optimizer.zero_grad()
            loss_of(model, x).backward()
            with torch.no_grad():
                for param in model.parameters():
                    param -= 0.01 * param.grad.sign()
    assert_found(report, right=True)
