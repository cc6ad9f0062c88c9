"""Whatever autograd does to gradients: retained graphs, penalties, hooks, custom functions, checkpointing."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.nn.utils
import torch.nn.utils.clip_grad
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

import zerograd
from support.training import assert_found, batches, either_way, loss_of, net, sgd


@either_way
def test_tied_weights_are_one_parameter(right: bool) -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(3, 3, bias=False), nn.Tanh(), nn.Linear(3, 3, bias=False))
    model[2].weight = model[0].weight
    optimizer = sgd(model)
    with zerograd.watch(on="collect") as report:
        for x in batches():
            if right:
                optimizer.zero_grad()
            loss_of(model, x).backward()  # ZG101
            optimizer.step()
    assert_found(report, right=right, seen=5)


@either_way
def test_a_second_backward_through_a_retained_graph_is_the_same_window(right: bool) -> None:
    model = net()
    optimizer = sgd(model)
    with zerograd.watch(on="collect") as report:
        for x in batches():
            loss = loss_of(model, x)
            if right:
                optimizer.zero_grad()
            loss.backward(retain_graph=True)  # ZG101
            loss.backward()
            optimizer.step()
    assert_found(report, right=right)


@either_way
@pytest.mark.filterwarnings("ignore:Using backward\\(\\) with create_graph=True")
def test_a_backward_that_creates_a_graph_is_watched(right: bool) -> None:
    model = net()
    optimizer = sgd(model)
    with zerograd.watch(on="collect") as report:
        for x in batches():
            if right:
                optimizer.zero_grad()
            loss_of(model, x).backward(create_graph=True)  # ZG101
            optimizer.step()
        optimizer.zero_grad()
    assert_found(report, right=right, seen=5)


@either_way
def test_a_gradient_penalty_is_part_of_its_window(right: bool) -> None:
    model = net()
    optimizer = sgd(model)
    with zerograd.watch(on="collect") as report:
        for x in batches():
            x.requires_grad_()
            if right:
                optimizer.zero_grad()
            loss = loss_of(model, x)
            (slope,) = torch.autograd.grad(loss, x, create_graph=True)
            (loss + slope.norm()).backward()  # ZG101
            optimizer.step()
    assert_found(report, right=right, seen=5)


@pytest.mark.filterwarnings("ignore:Using backward\\(\\) with create_graph=True")
def test_a_penalty_on_the_gradients_themselves_is_right() -> None:
    model = net()
    optimizer = sgd(model)
    with zerograd.watch(on="collect") as report:
        for x in batches():
            optimizer.zero_grad()
            loss_of(model, x).backward(create_graph=True)
            penalty = sum(param.grad.pow(2).sum() for param in model.parameters())
            (0.01 * penalty).backward()
            optimizer.step()
        optimizer.zero_grad()
    assert_found(report, right=True)


def test_autograd_grad_leaves_gradients_alone() -> None:
    model = net()
    optimizer = sgd(model)
    params = list(model.parameters())
    with zerograd.watch(on="collect") as report:
        for x in batches():
            optimizer.zero_grad()
            loss_of(model, x).backward()
            optimizer.step()
            torch.autograd.grad(loss_of(model, x), params)
    assert_found(report, right=True)


def test_a_step_by_hand_with_autograd_grad_is_no_business_of_ours() -> None:
    model = net()
    params = list(model.parameters())
    with zerograd.watch(on="collect") as report:
        for x in batches():
            grads = torch.autograd.grad(loss_of(model, x), params)
            with torch.no_grad():
                for param, grad in zip(params, grads, strict=True):
                    param -= 0.01 * grad
    assert_found(report, right=True)


@either_way
def test_a_backward_into_other_inputs_touches_nothing_here(right: bool) -> None:
    model = net()
    optimizer = sgd(model)
    with zerograd.watch(on="collect") as report:
        for x in batches():
            optimizer.zero_grad()
            loss_of(model, x).backward()
            optimizer.step()
            x.requires_grad_()
            inputs = [x] if right else list(model.parameters())
            loss_of(model, x).backward(inputs=inputs)  # ZG101
            if not right:
                optimizer.step()
    assert_found(report, right=right, seen=6)


@either_way
def test_hooks_on_tensors_and_parameters_change_nothing(right: bool) -> None:
    model = net()
    optimizer = sgd(model)
    model[0].weight.register_hook(lambda grad: grad * 2)

    def tame(param: Any) -> None:
        param.grad.clamp_(-1, 1)

    model[2].weight.register_post_accumulate_grad_hook(tame)
    with zerograd.watch(on="collect") as report:
        for x in batches():
            out = model(x)
            out.register_hook(lambda grad: grad / 2)
            if right:
                optimizer.zero_grad()
            (out - 10).pow(2).mean().backward()  # ZG101
            optimizer.step()
    assert_found(report, right=right, seen=5)


class Doubled(torch.autograd.Function):
    @staticmethod
    def forward(_: Any, x: Tensor) -> Tensor:
        return 2 * x

    @staticmethod
    def backward(_: Any, *grads: Tensor) -> Tensor:
        return 2 * grads[0]


class BackwardWithinBackward(torch.autograd.Function):
    """As in gradient caching: its backward runs another backward, into the same parameters."""

    @staticmethod
    def forward(context: Any, x: Tensor, weight: Tensor) -> Tensor:
        context.save_for_backward(x, weight)
        return x @ weight

    @staticmethod
    def backward(context: Any, *grads: Tensor) -> tuple[Tensor, None]:
        x, weight = context.saved_tensors
        with torch.enable_grad():
            (x.detach() @ weight).backward(grads[0])
        return grads[0] @ weight.T, None


@either_way
def test_a_custom_function_is_watched(right: bool) -> None:
    model = net()
    optimizer = sgd(model)
    with zerograd.watch(on="collect") as report:
        for x in batches():
            if right:
                optimizer.zero_grad()
            apply: Any = Doubled.apply
            apply(loss_of(model, x)).backward()  # ZG101
            optimizer.step()
    assert_found(report, right=right, seen=5)


@either_way
def test_a_backward_within_a_backward_is_one_with_it(right: bool) -> None:
    torch.manual_seed(0)
    first = nn.Linear(3, 3)
    weight = nn.Parameter(torch.randn(3, 2))
    optimizer = torch.optim.SGD([*first.parameters(), weight], lr=0.01)
    with zerograd.watch(on="collect") as report:
        for x in batches():
            if right:
                optimizer.zero_grad()
            apply: Any = BackwardWithinBackward.apply
            apply(first(x), weight).sum().backward()  # ZG101
            optimizer.step()
    assert_found(report, right=right, seen=5)


@either_way
@pytest.mark.parametrize("reentrant", [True, False])
def test_activation_checkpointing_is_watched(reentrant: bool, right: bool) -> None:
    model = net()
    optimizer = sgd(model)
    with zerograd.watch(on="collect") as report:
        for x in batches():
            x.requires_grad_()
            if right:
                optimizer.zero_grad()
            out = checkpoint(model, x, use_reentrant=reentrant)
            (out - 10).pow(2).mean().backward()  # ZG101
            optimizer.step()
    assert_found(report, right=right, seen=5)


def test_a_backward_that_fails_accuses_nobody() -> None:
    model = net()
    optimizer = sgd(model)

    def refuse(grad: Tensor) -> None:
        raise ArithmeticError("not this one")

    with zerograd.watch(on="collect") as report:
        for number, x in enumerate(batches()):
            optimizer.zero_grad()
            out = model(x)
            if number == 2:
                out.register_hook(refuse)
                with pytest.raises(ArithmeticError):
                    out.sum().backward()
                continue
            (out - 10).pow(2).mean().backward()
            optimizer.step()
    assert_found(report, right=True)
