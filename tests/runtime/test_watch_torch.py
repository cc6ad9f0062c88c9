"""Everything torch does to gradients: right programs are silent, the same made wrong are found."""

from __future__ import annotations

import copy
import gc
import inspect
import pickle
import threading
import weakref
from collections.abc import Callable, Iterable
from typing import Any

import pytest
import torch
import torch.nn.utils
import torch.nn.utils.clip_grad
from torch import Tensor, nn
from torch.nn import utils
from torch.nn.utils import clip_grad_norm_, clip_grad_value_
from torch.nn.utils.clip_grad import clip_grad_norm_ as clip_by_another_name
from torch.utils.checkpoint import checkpoint

import zerograd
from support.training import assert_found, batches, either_way, loss_of, net, sgd, weights

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
    made["Muon"] = lambda model: torch.optim.Muon(
        [param for param in model.parameters() if param.ndim == 2], lr=1e-3
    )
    return made


VARIANTS = variants()


@either_way
@pytest.mark.parametrize("variant", VARIANTS)
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


# Clearing


def none_by_hand(model: Any) -> None:
    for param in model.parameters():
        param.grad = None


def zeros_by_hand(model: Any) -> None:
    for param in model.parameters():
        if param.grad is not None:
            param.grad.zero_()


def zeros_through_data(model: Any) -> None:
    for param in model.parameters():
        if param.grad is not None:
            param.grad.data.zero_()


def zeros_through_numpy(model: Any) -> None:
    for param in model.parameters():
        if param.grad is not None:
            param.grad.numpy()[...] = 0


def zeros_by_multiplying(model: Any) -> None:
    for param in model.parameters():
        if param.grad is not None:
            param.grad.mul_(0)


def zeros_by_detaching(model: Any) -> None:
    for param in model.parameters():
        if param.grad is not None:
            param.grad.detach_().zero_()


def zeros_all_at_once(model: Any) -> None:
    grads = [param.grad for param in model.parameters() if param.grad is not None]
    if grads:
        torch._foreach_zero_(grads)


def new_zeros(model: Any) -> None:
    for param in model.parameters():
        param.grad = torch.zeros_like(param)


CLEARS: dict[str, Callable[[Any, Any], object]] = {
    "zero_grad()": lambda _, optimizer: optimizer.zero_grad(),
    "zero_grad(set_to_none=False)": lambda _, optimizer: optimizer.zero_grad(set_to_none=False),
    "zero_grad(False)": lambda _, optimizer: optimizer.zero_grad(False),
    "model.zero_grad()": lambda model, _: model.zero_grad(),
    "model.zero_grad(set_to_none=False)": lambda model, _: model.zero_grad(False),
    "each layer's zero_grad()": lambda model, _: [part.zero_grad() for part in model],
    "p.grad = None": lambda model, _: none_by_hand(model),
    "p.grad.zero_()": lambda model, _: zeros_by_hand(model),
    "p.grad.data.zero_()": lambda model, _: zeros_through_data(model),
    "p.grad.numpy()[...] = 0": lambda model, _: zeros_through_numpy(model),
    "p.grad.mul_(0)": lambda model, _: zeros_by_multiplying(model),
    "p.grad.detach_().zero_()": lambda model, _: zeros_by_detaching(model),
    "_foreach_zero_": lambda model, _: zeros_all_at_once(model),
    "p.grad = zeros": lambda model, _: new_zeros(model),
    "zero_grad of another optimizer": lambda model, _: sgd(model).zero_grad(),
}


@either_way
@pytest.mark.parametrize("after", [False, True], ids=["before backward", "after step"])
@pytest.mark.parametrize("how", CLEARS)
def test_every_way_to_clear_counts_as_one(how: str, after: bool, right: bool) -> None:
    model = net()
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    with zerograd.watch(on="collect") as report:
        for number, x in enumerate(batches(8)):
            clears = right or number != 5
            if clears and not after:
                CLEARS[how](model, optimizer)
            loss_of(model, x).backward()  # ZG101
            optimizer.step()
            if (right or number != 4) and after:
                CLEARS[how](model, optimizer)
    assert_found(report, right=right, seen=1)
    if not right:
        assert report.findings[0].site.iteration == 6


@pytest.mark.parametrize("to_none", [True, False])
def test_clearing_some_layers_is_found_in_just_the_others(to_none: bool) -> None:
    model = net()
    optimizer = sgd(model)
    with zerograd.watch(on="collect") as report:
        for x in batches():
            model[0].zero_grad(set_to_none=to_none)
            loss_of(model, x).backward()  # ZG101
            optimizer.step()
    assert_found(report, seen=5)
    assert "(2.weight, 2.bias)" in report.findings[0].message


def test_clearing_one_parameter_by_hand_is_found_in_the_others() -> None:
    model = net()
    optimizer = sgd(model)
    with zerograd.watch(on="collect") as report:
        for x in batches():
            model[0].weight.grad = None
            loss_of(model, x).backward()  # ZG101
            optimizer.step()
    assert_found(report, seen=5)
    assert "(0.bias, 2.weight, 2.bias)" in report.findings[0].message


@either_way
def test_layers_may_be_cleared_one_after_the_other(right: bool) -> None:
    model = net()
    optimizer = sgd(model)
    with zerograd.watch(on="collect") as report:
        for x in batches():
            model[0].zero_grad()
            if right:
                none_by_hand(model[2])
            loss_of(model, x).backward()  # ZG101
            optimizer.step()
    assert_found(report, right=right, seen=5)


def test_the_finding_gives_the_norms_the_names_and_the_iteration() -> None:
    torch.manual_seed(0)
    model = nn.Linear(1, 1, bias=False)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.0)
    with zerograd.watch(on="collect") as report:
        for factor in (3.0, 5.0):
            model(torch.tensor([[factor]])).sum().backward()  # ZG101
            optimizer.step()
    assert_found(report, seen=1)
    (finding,) = report.findings
    assert "expected |grad| 5, got 8 (weight)" in finding.message
    assert finding.site.iteration == 2
    (note,) = finding.notes
    assert (note.message, note.site.line) == ("used here", finding.site.line + 1)


def test_many_parameters_are_named_by_the_first_few_and_a_count() -> None:
    model = nn.Sequential(*(nn.Linear(3, 3) for _ in range(4)))
    optimizer = sgd(model)
    with zerograd.watch(on="collect") as report:
        for x in batches(3):
            loss_of(model, x).backward()  # ZG101
            optimizer.step()
    assert_found(report)
    assert "(0.weight, 0.bias, 1.weight and 5 more)" in report.findings[0].message


# What autograd does


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


# Windows


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
        for number, x in enumerate(batches(20), 1):
            if not right:
                optimizer.zero_grad()  # ZG103
            (loss_of(model, x) / 4).backward()
            if number % 4 == 0:
                optimizer.step()
                if right:
                    optimizer.zero_grad()
    assert_found(report, right=right)


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


# The other laws, as a run shows them


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


# Clipping, however it was imported

CLIPS: dict[str, Callable[[Any], object]] = {
    "from torch.nn.utils": lambda params: clip_grad_norm_(params, 1.0),
    "by name": lambda params: clip_grad_norm_(parameters=params, max_norm=1.0),
    "from torch.nn.utils.clip_grad": lambda params: clip_by_another_name(params, 1.0),
    "utils.": lambda params: utils.clip_grad_norm_(params, 1.0),
    "torch.nn.utils.": lambda params: torch.nn.utils.clip_grad_norm_(params, 1.0),
    "torch.nn.utils.clip_grad.": lambda params: torch.nn.utils.clip_grad.clip_grad_norm_(
        params, 1.0, norm_type=1.0
    ),
    "in two parts": lambda params: torch.nn.utils.clip_grads_with_norm_(
        params := list(params),
        1.0,
        torch.nn.utils.get_total_norm([one.grad for one in params if one.grad is not None]),
    ),
    "value": lambda params: clip_grad_value_(params, 1.0),
    "value, by name": lambda params: clip_grad_value_(parameters=params, clip_value=1.0),
    "utils., value": lambda params: utils.clip_grad_value_(params, 1.0),
}


@either_way
@pytest.mark.parametrize("how", CLIPS)
def test_a_clip_after_the_step_is_found_however_it_was_imported(how: str, right: bool) -> None:
    model = net()
    optimizer = sgd(model)
    with zerograd.watch(on="collect") as report:
        for x in batches():
            optimizer.zero_grad()
            loss_of(model, x).backward()
            if right:
                CLIPS[how](model.parameters())
            optimizer.step()
            if not right:
                clip = CLIPS[how]
                clip(model.parameters())
    codes = [finding.code for finding in report.findings]
    assert codes == ([] if right else ["ZG203"])


@either_way
def test_a_clip_before_the_backward_is_found(right: bool) -> None:
    model = net()
    optimizer = sgd(model)
    with zerograd.watch(on="collect") as report:
        for x in batches():
            optimizer.zero_grad(set_to_none=False)
            if not right:
                clip_grad_norm_(model.parameters(), 1.0)  # ZG202
            loss_of(model, x).backward()
            if right:
                clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
    assert_found(report, right=right)


@either_way
def test_a_clip_in_the_middle_of_a_window_is_found(right: bool) -> None:
    model = net()
    optimizer = sgd(model)
    with zerograd.watch(on="collect") as report:
        for number, x in enumerate(batches(12), 1):
            (loss_of(model, x) / 4).backward()
            if number % 4 == 0 or not right:
                clip_grad_norm_(model.parameters(), 1.0)  # ZG204
            if number % 4 == 0:
                optimizer.step()
                optimizer.zero_grad()
    assert_found(report, right=right)


def test_asking_for_the_norm_is_no_clip() -> None:
    model = net()
    optimizer = sgd(model)
    with zerograd.watch(on="collect") as report:
        for x in batches():
            optimizer.zero_grad()
            loss_of(model, x).backward()
            optimizer.step()
            clip_grad_norm_(model.parameters(), float("inf"))
    assert_found(report, right=True)


@either_way
def test_clipping_each_parameter_by_itself_is_watched(right: bool) -> None:
    model = net()
    optimizer = sgd(model)
    with zerograd.watch(on="collect") as report:
        for x in batches():
            if right:
                optimizer.zero_grad()
            loss_of(model, x).backward()  # ZG101
            for param in model.parameters():
                clip_grad_norm_(param, 1.0)
            optimizer.step()
    assert_found(report, right=right, seen=5)


# Scaling


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


# Several optimizers


@pytest.mark.parametrize("mistake", [None, "generator", "discriminator"])
def test_a_gan_whose_phases_fill_each_other_is_watched(mistake: str | None) -> None:
    generator, judge = net(), nn.Linear(2, 1)
    opt_g, opt_d = sgd(generator), torch.optim.Adam(judge.parameters(), lr=0.01)
    with zerograd.watch(on="collect") as report:
        for x in batches(10):
            fake = generator(x)
            if mistake != "discriminator":
                opt_d.zero_grad()
            real_loss = judge(torch.ones(5, 2)).mean()
            (judge(fake.detach()).mean() - real_loss).backward()
            opt_d.step()
            if mistake != "generator":
                opt_g.zero_grad()
            (-judge(fake).mean()).backward()
            opt_g.step()
    codes = [finding.code for finding in report.findings]
    assert codes == ([] if mistake is None else ["ZG101"])
    assert report.errors == []


def test_a_gan_that_clears_everything_through_its_modules_is_right() -> None:
    generator, judge = net(), nn.Linear(2, 1)
    opt_g, opt_d = sgd(generator), sgd(judge)
    with zerograd.watch(on="collect") as report:
        for x in batches(10):
            fake = generator(x)
            judge.zero_grad()
            judge(fake.detach()).mean().backward()
            opt_d.step()
            generator.zero_grad()
            (-judge(fake).mean()).backward()
            opt_g.step()
    assert_found(report, right=True)


@pytest.mark.parametrize("cleared_twice", [False, True])
def test_a_gan_whose_phases_share_a_function_for_backward_is_right(cleared_twice: bool) -> None:
    generator, judge = net(), nn.Linear(2, 1)
    opt_g, opt_d = sgd(generator), sgd(judge)

    def run(loss: Any) -> None:
        loss.backward()

    with zerograd.watch(on="collect") as report:
        for x in batches(10):
            fake = generator(x)
            opt_d.zero_grad()
            run(judge(fake.detach()).mean())
            opt_d.step()
            if cleared_twice:
                opt_d.zero_grad()
            opt_g.zero_grad()
            run(-judge(fake).mean())
            opt_g.step()
    assert_found(report, right=True)


def test_a_discriminator_of_two_backward_calls_leaves_no_window_open() -> None:
    generator, judge = net(), nn.Linear(2, 1)
    opt_g, opt_d = sgd(generator), sgd(judge)
    with zerograd.watch(on="collect") as report:
        for x in batches(10):
            opt_d.zero_grad()
            judge(x.tile(1, 2)[:, :2]).mean().backward()
            fake = generator(x)
            (-judge(fake.detach()).mean()).backward()
            opt_d.step()
            opt_g.zero_grad()
            judge(fake).mean().backward()
            opt_g.step()
    assert report.findings == []


@either_way
def test_what_the_generators_phase_leaves_in_the_discriminator_is_found(right: bool) -> None:
    generator, judge = net(), nn.Linear(2, 1)
    opt_g, opt_d = sgd(generator), sgd(judge)
    with zerograd.watch(on="collect") as report:
        for x in batches(10):
            fake = generator(x)
            (-judge(fake).mean()).backward()
            opt_g.step()
            opt_g.zero_grad()
            if right:
                opt_d.zero_grad()
            judge(fake.detach()).pow(2).mean().backward()  # ZG106
            opt_d.step()
            opt_d.zero_grad()
    assert_found(report, right=right)


@either_way
def test_an_actor_whose_loss_runs_through_the_critic_is_watched(right: bool) -> None:
    actor, critic = nn.Linear(3, 2), nn.Linear(5, 1)
    opt_a, opt_c = sgd(actor), sgd(critic)
    with zerograd.watch(on="collect") as report:
        for x in batches(10):
            action = actor(x)
            value = critic(torch.cat([x, action.detach()], 1))
            if right:
                opt_c.zero_grad()
            (value - 1).pow(2).mean().backward()  # ZG101
            opt_c.step()
            opt_a.zero_grad()
            (-critic(torch.cat([x, action], 1)).mean()).backward()
            opt_a.step()
    codes = {finding.code for finding in report.findings}
    assert codes == (set() if right else {"ZG101"})


def test_two_nets_that_know_nothing_of_each_other_are_right() -> None:
    first, second = net(), net(seed=1)
    opt_a, opt_b = sgd(first), sgd(second)
    with zerograd.watch(on="collect") as report:
        for x in batches(10):
            opt_a.zero_grad()
            opt_b.zero_grad()
            loss_of(first, x).backward()
            opt_a.step()
            loss_of(second, x).backward()
            opt_b.step()
    assert_found(report, right=True)


@either_way
def test_one_of_two_nets_that_is_never_cleared_is_found(right: bool) -> None:
    first, second = net(), net(seed=1)
    opt_a, opt_b = sgd(first), sgd(second)
    with zerograd.watch(on="collect") as report:
        for x in batches(10):
            opt_a.zero_grad()
            if right:
                opt_b.zero_grad()
            loss_of(first, x).backward()
            opt_a.step()
            loss_of(second, x).backward()  # ZG101
            opt_b.step()
    assert_found(report, right=right, seen=9)


def test_an_encoder_of_many_tasks_with_three_optimizers_is_right() -> None:
    encoder, left, right = net(), nn.Linear(2, 1), nn.Linear(2, 1)
    optimizers = [sgd(encoder), sgd(left), sgd(right)]
    with zerograd.watch(on="collect") as report:
        for x in batches(10):
            for optimizer in optimizers:
                optimizer.zero_grad()
            code = encoder(x)
            left(code).pow(2).mean().backward(retain_graph=True)
            optimizers[1].step()
            right(code).pow(2).mean().backward()
            optimizers[2].step()
            optimizers[0].step()
    assert_found(report, right=True)


@either_way
def test_parameters_shared_by_two_optimizers_are_watched(right: bool) -> None:
    shared, first, second = nn.Linear(3, 3), nn.Linear(3, 1), nn.Linear(3, 1)
    opt_a = torch.optim.SGD([*shared.parameters(), *first.parameters()], lr=0.01)
    opt_b = torch.optim.SGD([*shared.parameters(), *second.parameters()], lr=0.01)
    with zerograd.watch(on="collect") as report:
        for x in batches(10):
            opt_a.zero_grad()
            first(shared(x)).pow(2).mean().backward()
            opt_a.step()
            if right:
                opt_b.zero_grad()
            second(shared(x)).pow(2).mean().backward()  # ZG101
            opt_b.step()
    assert_found(report, right=right)


@either_way
def test_two_optimizers_over_the_same_parameters_are_one_subject(right: bool) -> None:
    model = net()
    slow, fast = sgd(model, lr=0.001), sgd(model)
    with zerograd.watch(on="collect") as report:
        for number, x in enumerate(batches(10)):
            optimizer = slow if number % 2 else fast
            if right or number != 5:
                slow.zero_grad()
            loss_of(model, x).backward()  # ZG101
            optimizer.step()
    assert_found(report, right=right, seen=1)


@either_way
def test_an_optimizer_per_layer_is_watched(right: bool) -> None:
    model = net()
    optimizers = [sgd(model[0]), sgd(model[2])]
    with zerograd.watch(on="collect") as report:
        for x in batches():
            for optimizer in optimizers[: 2 if right else 1]:
                optimizer.zero_grad()
            loss_of(model, x).backward()  # ZG101
            for optimizer in optimizers:
                optimizer.step()
    assert_found(report, right=right)
    if not right:
        assert "(2.weight, 2.bias)" in report.findings[0].message


# An optimizer's life


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
            optimizer.step()
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


# What people do between backward and step


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


# Compiled

needs_no_compiler = pytest.mark.parametrize("backend", ["eager", "aot_eager"])
compiles = pytest.mark.filterwarnings("ignore")
"""Compilers of torch warn of what is going on inside."""


@pytest.fixture
def fresh_compiler() -> Any:
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()


@either_way
@needs_no_compiler
@compiles
@pytest.mark.usefixtures("fresh_compiler")
def test_a_compiled_model_is_watched(backend: str, right: bool) -> None:
    model = net()
    optimizer = sgd(model)
    compiled = torch.compile(model, backend=backend)
    with zerograd.watch(on="collect") as report:
        for x in batches():
            if right:
                optimizer.zero_grad()
            loss_of(compiled, x).backward()  # ZG101
            optimizer.step()
    assert_found(report, right=right, seen=5)


@either_way
@compiles
@pytest.mark.usefixtures("fresh_compiler")
def test_a_compiled_step_is_watched(right: bool) -> None:
    model = net()
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    step = torch.compile(optimizer.step, backend="eager")
    with zerograd.watch(on="collect") as report:
        for x in batches():
            if right:
                optimizer.zero_grad()
            loss_of(model, x).backward()  # ZG101
            step()
    assert_found(report, right=right, seen=5)


@either_way
@needs_no_compiler
@compiles
@pytest.mark.usefixtures("fresh_compiler")
def test_a_wholly_compiled_train_step_is_watched(backend: str, right: bool) -> None:
    model = net()
    optimizer = sgd(model)

    def train(x: Tensor) -> None:
        if right:
            optimizer.zero_grad()
        loss_of(model, x).backward()  # ZG101
        optimizer.step()

    compiled = torch.compile(train, backend=backend)
    with zerograd.watch(on="collect") as report:
        for x in batches():
            compiled(x)
    assert_found(report, right=right, seen=5)


@either_way
@compiles
@pytest.mark.usefixtures("fresh_compiler")
def test_compiled_autograd_is_watched(right: bool) -> None:
    model = net()
    optimizer = sgd(model)
    enable = torch._dynamo.compiled_autograd._enable
    with zerograd.watch(on="collect") as report:
        for x in batches():
            if right:
                optimizer.zero_grad()
            loss = loss_of(model, x)
            with enable(torch.compile(backend="eager")):
                loss.backward()  # ZG101
            optimizer.step()
    assert_found(report, right=right, seen=5)


# Threads


def in_threads(work: Callable[[int], None], count: int = 4) -> None:
    raised: list[Exception] = []

    def guarded(number: int) -> None:
        try:
            work(number)
        except Exception as error:  # noqa: BLE001 - it is raised again where threads are joined
            raised.append(error)

    threads = [threading.Thread(target=guarded, args=(number,)) for number in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert raised == []


@either_way
def test_threads_with_a_model_each_are_watched(right: bool) -> None:
    models = [net(seed=number) for number in range(4)]

    def work(number: int) -> None:
        model = models[number]
        optimizer = sgd(model)
        for count, x in enumerate(batches(30)):
            if right or number != 2 or count != 20:
                optimizer.zero_grad()
            loss_of(model, x).backward()  # ZG101
            optimizer.step()

    with zerograd.watch(on="collect") as report:
        in_threads(work)
    assert_found(report, right=right, seen=1)
    assert report.watched is not None
    assert report.watched.steps == 120


@pytest.mark.parametrize("own", [False, True], ids=["one optimizer", "an optimizer each"])
@pytest.mark.parametrize("clear", [none_by_hand, zeros_by_hand, None])
def test_threads_that_share_one_model_are_not_guessed_at(
    clear: Callable[[Any], None] | None, own: bool
) -> None:
    """As in Hogwild; the lock keeps torch itself from being read while it writes."""
    model = net()
    shared = sgd(model)
    lock = threading.Lock()

    def work(number: int) -> None:
        optimizer = sgd(model) if own else shared
        for x in batches(30):
            with lock:
                clear(model) if clear else optimizer.zero_grad()
            with lock:
                loss_of(model, x).backward()
            with lock:
                optimizer.step()

    with zerograd.watch(on="collect") as report:
        in_threads(work)
    assert_found(report, right=True)


def test_a_thread_may_take_over_from_one_that_has_ended() -> None:
    model = net()
    optimizer = sgd(model)

    def work(number: int) -> None:
        for x in batches(5):
            loss_of(model, x).backward()  # ZG101
            optimizer.step()
        optimizer.zero_grad()

    with zerograd.watch(on="collect") as report:
        for _ in range(3):
            in_threads(work, count=1)
    assert_found(report)
    assert (report.findings[0].seen or 0) >= 8


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
