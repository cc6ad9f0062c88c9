"""Every `torch.optim` optimizer, optimizers of other makes, and closures: right loops are silent, wrong ones are found."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable
from typing import Any

import pytest
import torch
import torch.nn.utils
import torch.nn.utils.clip_grad
from torch import Tensor, nn

import zerograd
from support import tiers
from support.training import assert_found, batches, either_way, loss_of, net, sgd


# Optimizers
def variants() -> dict[str, Callable[[Any], Any]]:
    """Every public optimizer of torch, and each way that it can run."""
    odd = {"Optimizer", "LBFGS", "SparseAdam", "Muon"}
    made: dict[str, Callable[[Any], Any]] = {}

    def add(title: str, kind: Any, **options: Any) -> None:
        made[title] = lambda model: kind(model.parameters(), lr=1e-3, **options)

    for name, kind in vars(torch.optim).items():
        if inspect.isclass(kind) and issubclass(kind, torch.optim.Optimizer) and name not in odd:
            add(name, kind)
            for way in ("foreach", "fused", "maximize"):
                can = way != "fused" or name in ("SGD", "Adam", "AdamW", "Adagrad")
                if can and way in inspect.signature(kind).parameters:
                    add(f"{name}-{way}", kind, **{way: True})
    add("SGD-momentum", torch.optim.SGD, momentum=0.9, nesterov=True, weight_decay=0.1)
    if hasattr(torch.optim, "Muon"):  # not before torch 2.9
        made["Muon"] = lambda model: torch.optim.Muon(
            [param for param in model.parameters() if param.ndim == 2], lr=1e-3
        )
    return made


VARIANTS = variants()


@either_way
@pytest.mark.parametrize(
    "variant", tiers.sample(VARIANTS, [one for one in VARIANTS if "-" not in one])
)
def test_every_optimizer_of_torch_is_watched(variant: str, right: bool) -> None:
    model = net()
    optimizer = VARIANTS[variant](model)
    if variant == "Muon":
        for param in model.parameters():
            param.requires_grad_(param.ndim == 2)
    with zerograd.watch(on="collect") as report:
        for x in batches():
            if right:
                optimizer.zero_grad()
            loss_of(model, x).backward()  # ZG101
            optimizer.step()
    assert_found(report, right=right, seen=5)
    assert report.watched is not None
    assert report.watched.steps == 6


@either_way
def test_sparse_gradients_are_watched(right: bool) -> None:
    torch.manual_seed(0)
    table = nn.Embedding(10, 3, sparse=True)
    optimizer: Any = torch.optim.SparseAdam(table.parameters(), lr=0.01)
    with zerograd.watch(on="collect") as report:
        for start in range(6):
            if right:
                optimizer.zero_grad()
            table(torch.arange(start, start + 3)).pow(2).sum().backward()  # ZG101
            optimizer.step()
    assert_found(report, right=right)


def test_a_sparse_gradient_zeroed_in_place_is_clear() -> None:
    torch.manual_seed(0)
    table = nn.Embedding(10, 3, sparse=True)
    optimizer: Any = torch.optim.SparseAdam(table.parameters(), lr=0.01)
    with zerograd.watch(on="collect") as report:
        for start in range(6):
            optimizer.zero_grad(set_to_none=False)
            table(torch.arange(start, start + 3)).pow(2).sum().backward()
            optimizer.step()
    assert_found(report, right=True)


def test_a_sparse_and_a_dense_use_of_one_table_are_one_window() -> None:
    torch.manual_seed(0)
    table = nn.Embedding(10, 3, sparse=True)
    optimizer = torch.optim.SGD(table.parameters(), lr=0.01)
    with zerograd.watch(on="collect") as report:
        for start in range(6):
            optimizer.zero_grad()
            table(torch.arange(start, start + 3)).pow(2).sum().backward()
            loss: Any = table.weight.pow(2).sum()
            loss.backward()
            optimizer.step()
    assert_found(report, right=True)


class StepsAlone(torch.optim.Optimizer):
    """Its step is the only one, and clears at its end."""

    def __init__(self, params: Iterable[Tensor]) -> None:
        super().__init__(params, {})

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:  # type: ignore[override]
        for param in self.param_groups[0]["params"]:
            param.sub_(param.grad, alpha=0.01)
        self.zero_grad()


class PlainDescent(torch.optim.Optimizer):
    """A custom optimizer, with its own step."""

    def __init__(self, params: Iterable[Tensor], lr: float = 0.01) -> None:
        super().__init__(params, {"lr": lr})

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:  # type: ignore[override]
        for group in self.param_groups:
            for param in group["params"]:
                if param.grad is not None:
                    param.sub_(param.grad, alpha=group["lr"])


class ClearsAfterStep(PlainDescent):
    """Leaves nothing behind."""

    def step(self, closure: Any = None) -> None:  # type: ignore[override]
        super().step()
        self.zero_grad()


class ClearsByHandAfterStep(PlainDescent):
    """Leaves zeros behind."""

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:  # type: ignore[override]
        super().step()
        for group in self.param_groups:
            for param in group["params"]:
                param.grad.zero_()


class ClearsThroughTorch(PlainDescent):
    def zero_grad(self, set_to_none: bool = True) -> None:
        super().zero_grad(set_to_none)


class ClearsByHand(PlainDescent):
    def zero_grad(self, set_to_none: bool = True) -> None:
        for group in self.param_groups:
            for param in group["params"]:
                param.grad = None


class ClearsInPlace(PlainDescent):
    def zero_grad(self, set_to_none: bool = True) -> None:
        for group in self.param_groups:
            for param in group["params"]:
                if param.grad is not None:
                    param.grad.data.zero_()


class ClearsNothing(PlainDescent):
    def zero_grad(self, set_to_none: bool = True) -> None:
        pass


@either_way
def test_a_custom_optimizer_is_watched(right: bool) -> None:
    model = net()
    optimizer = PlainDescent(model.parameters())
    with zerograd.watch(on="collect") as report:
        for x in batches():
            if right:
                optimizer.zero_grad()
            loss_of(model, x).backward()  # ZG101
            optimizer.step()
    assert_found(report, right=right, seen=5)


@pytest.mark.parametrize("kind", [StepsAlone, ClearsAfterStep, ClearsByHandAfterStep])
def test_a_step_may_clear_at_its_end(kind: type[PlainDescent]) -> None:
    model = net()
    PlainDescent(net().parameters())  # from now on its step has hooks, also as a part of another
    with zerograd.watch(on="collect") as report:
        optimizer = kind(model.parameters())
        for x in batches():
            loss_of(model, x).backward()
            optimizer.step()
    assert_found(report, right=True)
    assert report.watched is not None
    assert report.watched.windows == {1: 6}


@pytest.mark.parametrize("kind", [ClearsThroughTorch, ClearsByHand, ClearsInPlace])
def test_an_overridden_zero_grad_that_clears_is_believed(kind: type[PlainDescent]) -> None:
    model = net()
    optimizer = kind(model.parameters())
    with zerograd.watch(on="collect") as report:
        for x in batches():
            optimizer.zero_grad()
            loss_of(model, x).backward()
            optimizer.step()
    assert_found(report, right=True)


def test_an_overridden_zero_grad_that_clears_nothing_is_not_believed() -> None:
    model = net()
    optimizer = ClearsNothing(model.parameters())
    with zerograd.watch(on="collect") as report:
        for x in batches():
            optimizer.zero_grad()
            loss_of(model, x).backward()  # ZG101
            optimizer.step()
    assert_found(report, seen=5)


# Closures
@either_way
def test_lbfgs_runs_its_closure_many_times_in_one_step(right: bool) -> None:
    model = net()
    optimizer: Any = torch.optim.LBFGS(model.parameters(), lr=0.1, max_iter=4)
    with zerograd.watch(on="collect") as report:
        for x in batches(3):

            def closure(x: Tensor = x) -> Any:
                if right:
                    optimizer.zero_grad()
                loss = loss_of(model, x)
                loss.backward()  # ZG101
                return loss

            optimizer.step(closure)
    assert_found(report, right=right)


@either_way
def test_a_closure_of_a_first_order_optimizer_is_a_window(right: bool) -> None:
    model = net()
    optimizer = sgd(model)
    with zerograd.watch(on="collect") as report:
        for x in batches():

            def closure(x: Tensor = x) -> Any:
                if right:
                    optimizer.zero_grad()
                loss = loss_of(model, x)
                loss.backward()  # ZG101
                return loss

            optimizer.step(closure)
    assert_found(report, right=right, seen=5)


def test_a_closure_that_only_computes_the_loss_is_right() -> None:
    model = net()
    optimizer = sgd(model)
    with zerograd.watch(on="collect") as report:
        for x in batches():
            optimizer.zero_grad()
            loss = loss_of(model, x)
            loss.backward()
            optimizer.step(lambda loss=loss: loss.item())
    assert_found(report, right=True)


def test_a_step_that_fails_does_not_confuse_what_follows() -> None:
    model = net()
    optimizer = sgd(model)

    def refuse() -> float:
        raise ArithmeticError("not this one")

    with zerograd.watch(on="collect") as report:
        for number, x in enumerate(batches(8)):
            if number != 6:
                optimizer.zero_grad()
            loss_of(model, x).backward()  # ZG101
            if number == 2:
                with pytest.raises(ArithmeticError):
                    optimizer.step(refuse)
                continue
            optimizer.step()
    assert_found(report, seen=1)
