"""Watching changes nothing: not the numbers, not the random state, not even when it fails itself."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn.utils import clip_grad_norm_
from torch.optim.optimizer import register_optimizer_step_post_hook
from torch.utils.checkpoint import checkpoint

import zerograd
from support.torch_state import torch_as_it_is
from support.training import batches, loss_of, net, sgd, weights
from zerograd.runtime.gradient_probe import GradientProbe
from zerograd.runtime.posting import Posting
from zerograd.runtime.step_and_clear import StepAndClear
from zerograd.runtime.subjects import Subject
from zerograd.runtime.watcher import Watcher

Result = tuple[list[Tensor], list[float]]


def noisy() -> Any:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(3, 8), nn.BatchNorm1d(8), nn.Dropout(0.3), nn.Linear(8, 2))


def plain(*, clears: bool = True) -> Result:
    model = noisy()
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    losses = []
    for x in batches(8):
        if clears:
            optimizer.zero_grad()
        loss = loss_of(model, x + 0.1 * torch.randn_like(x))
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return weights(model), losses


def by_hand() -> Result:
    model = noisy()
    optimizer = sgd(model)
    losses = []
    for x in batches(8):
        for param in model.parameters():
            if param.grad is not None:
                param.grad.zero_()
        loss = loss_of(model, x)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return weights(model), losses


def half_cleared() -> Result:
    model = noisy()
    optimizer = torch.optim.RMSprop(model.parameters(), lr=0.01)
    losses = []
    for x in batches(8):
        model[0].zero_grad()
        loss = loss_of(model, x)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return weights(model), losses


def accumulating() -> Result:
    model = noisy()
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01, fused=True)
    losses = []
    for number, x in enumerate(batches(10), 1):
        loss = loss_of(model, x) / 4
        loss.backward()
        losses.append(loss.item())
        if number % 4 == 0:
            clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            optimizer.zero_grad(set_to_none=False)
    return weights(model), losses


def scaling() -> Result:
    model = noisy()
    optimizer = sgd(model)
    scaler = torch.amp.GradScaler("cpu", init_scale=8.0, growth_interval=2)
    losses = []
    for number, x in enumerate(batches(8)):
        optimizer.zero_grad()
        loss = loss_of(model, x) * (float("inf") if number == 3 else 1.0)
        scaler.scale(loss).backward()
        scaler.unscale_(optimizer)
        clip_grad_norm_(model.parameters(), 1.0)
        scaler.step(optimizer)
        scaler.update()
        losses += [loss.item(), scaler.get_scale()]
    return weights(model), losses


def adversarial(*, clears: bool = True) -> Result:
    generator, judge = net(), nn.Linear(2, 1)
    opt_g, opt_d = sgd(generator), sgd(judge)
    losses = []
    for x in batches(8):
        fake = generator(x + torch.randn_like(x))
        if clears:
            opt_d.zero_grad()
        loss = judge(fake.detach()).pow(2).mean()
        loss.backward()
        opt_d.step()
        opt_g.zero_grad()
        (-judge(fake).mean()).backward()
        opt_g.step()
        losses.append(loss.item())
    return weights(generator, judge), losses


def second_order() -> Result:
    model = net()
    optimizer: Any = torch.optim.LBFGS(
        model.parameters(), max_iter=3, line_search_fn="strong_wolfe"
    )
    losses = []
    for x in batches(3):

        def closure(x: Tensor = x) -> Any:
            optimizer.zero_grad()
            loss = loss_of(model, x)
            loss.backward()
            losses.append(loss.item())
            return loss

        optimizer.step(closure)
    return weights(model), losses


def checkpointed() -> Result:
    model = noisy()
    optimizer = sgd(model)
    losses = []
    for x in batches(6):
        optimizer.zero_grad()
        out = checkpoint(model, x.requires_grad_(), use_reentrant=True)
        loss = (out - 10).pow(2).mean()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return weights(model), losses


def penalised() -> Result:
    model = net()
    optimizer = sgd(model)
    losses = []
    for x in batches(6):
        optimizer.zero_grad()
        x.requires_grad_()
        loss = loss_of(model, x)
        (slope,) = torch.autograd.grad(loss, x, create_graph=True)
        loss = loss + slope.norm()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return weights(model), losses


def sparse() -> Result:
    torch.manual_seed(0)
    table = nn.Embedding(10, 3, sparse=True)
    optimizer: Any = torch.optim.SparseAdam(table.parameters(), lr=0.01)
    losses = []
    for start in range(6):
        loss = table(torch.randint(10, (start + 1,))).pow(2).sum()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return weights(table), losses


def in_backward() -> Result:
    model = net()
    optimizers = {param: torch.optim.Adam([param], lr=0.01) for param in model.parameters()}

    def step(param: Tensor) -> None:
        optimizers[param].step()
        optimizers[param].zero_grad()

    for param in model.parameters():
        param.register_post_accumulate_grad_hook(step)
    losses = []
    for x in batches(6):
        loss = loss_of(model, x)
        loss.backward()
        losses.append(loss.item())
    return weights(model), losses


PROGRAMS: dict[str, Callable[[], Result]] = {
    "plain": plain,
    "never clears": lambda: plain(clears=False),
    "clears by hand": by_hand,
    "clears one layer": half_cleared,
    "accumulation": accumulating,
    "scaler": scaling,
    "GAN": adversarial,
    "GAN that never clears": lambda: adversarial(clears=False),
    "LBFGS": second_order,
    "checkpointing": checkpointed,
    "gradient penalty": penalised,
    "sparse, never clears": sparse,
    "optimizer in backward": in_backward,
}


def run(program: Callable[[], Result]) -> tuple[Result, object, bytes, bytes]:
    """What a program computes, and in which state it leaves the random generators."""
    random.seed(1)
    np.random.seed(1)
    result = program()
    state: Any = np.random.get_state()
    return result, random.getstate(), state[1].tobytes(), bytes(torch.get_rng_state().tolist())


def assert_same(one: Any, other: Any) -> None:
    (first, first_losses), *first_random = one
    (second, second_losses), *second_random = other
    assert torch.tensor(first_losses).equal(torch.tensor(second_losses))
    assert all(a.equal(b) for a, b in zip(first, second, strict=True))
    assert first_random == second_random


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_watched_run_is_bit_identical(name: str) -> None:
    bare = run(PROGRAMS[name])
    assert_same(bare, run(PROGRAMS[name]))
    with zerograd.watch(on="collect") as report:
        watched = run(PROGRAMS[name])
    assert_same(bare, watched)
    assert report.errors == []
    assert_same(bare, run(PROGRAMS[name]))


@pytest.mark.parametrize("name", ["plain", "GAN that never clears"])
def test_every_gradient_is_what_it_is_without_a_watch(name: str) -> None:
    def gradients() -> list[Tensor]:
        seen: list[Tensor] = []

        def look(optimizer: Any, args: Any, kwargs: Any) -> None:
            for group in optimizer.param_groups:
                seen.extend(param.grad.clone() for param in group["params"])

        handle = register_optimizer_step_post_hook(look)
        try:
            PROGRAMS[name]()
        finally:
            handle.remove()
        return seen

    bare = gradients()
    with zerograd.watch(on="collect"):
        watched = gradients()
    assert all(a.equal(b) for a, b in zip(bare, watched, strict=True))


METHODS: list[tuple[type, str]] = [
    (Watcher, "backward_begins"),
    (Watcher, "backward_ended"),
    (Watcher, "step_begins"),
    (Watcher, "step_ended"),
    (Watcher, "zeroed"),
    (Watcher, "clipped"),
    (Watcher, "scaled"),
    (Watcher, "unscaling"),
    (Watcher, "scaler_step_begins"),
    (Watcher, "scaler_step_ended"),
    (Watcher, "updated"),
    (Watcher, "grouped"),
    (GradientProbe, "before"),
    (GradientProbe, "_look"),
    (GradientProbe, "_meet"),
    (StepAndClear, "step"),
    (Posting, "post"),
    (Subject, "names"),
]
AFTER = 3
"""So many calls go well before one fails."""


@pytest.mark.parametrize(("part", "method"), METHODS)
@pytest.mark.parametrize("on", ["collect", "raise"])
def test_a_fault_of_ours_is_said_once_and_the_training_goes_on(
    part: type,
    method: str,
    on: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    def program() -> Result:
        with zerograd.allow("ZG"):
            first, first_losses = scaling()
            second, second_losses = adversarial(clears=False)
        return first + second, first_losses + second_losses

    bare = run(program)
    original = getattr(part, method)
    calls = 0

    def fails(*args: Any, **kwargs: Any) -> Any:
        nonlocal calls
        calls += 1
        if calls == (1 if method == "names" else AFTER):
            raise ZeroDivisionError("ours")
        return original(*args, **kwargs)

    monkeypatch.setattr(part, method, fails)
    before = torch_as_it_is()
    with zerograd.watch(on=on) as report:
        watched = run(program)
        assert [(a, b) for a, b in zip(before, torch_as_it_is(), strict=True) if a is not b] == []
    assert_same(bare, watched)
    (problem,) = report.errors
    assert "ours" in problem.message
    said = capsys.readouterr().err
    assert said.count("zerograd has failed") == 1
    assert "Please report this as a bug of zerograd" in said
    assert all(a is b for a, b in zip(before, torch_as_it_is(), strict=True))


def test_a_fault_inside_a_backward_leaves_no_hook_on_a_parameter(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def fails(*args: Any) -> None:
        raise ZeroDivisionError("ours")

    monkeypatch.setattr("zerograd.runtime.looks.plain", fails)
    model = net()
    optimizer = sgd(model)
    with zerograd.watch(on="collect") as report:
        for x in batches():
            loss_of(model, x).backward()
            optimizer.step()
    assert len(report.errors) == 1
    assert not any(param._backward_hooks for param in model.parameters())


@pytest.mark.parametrize("ends", ["finding", "fault", "error"])
def test_no_hook_is_left_on_a_parameter(ends: str, monkeypatch: pytest.MonkeyPatch) -> None:
    model = net()
    optimizer = sgd(model)
    raised = 0

    def refuse(grad: Tensor) -> None:
        raise KeyError("mine")

    if ends == "fault":
        monkeypatch.setattr(GradientProbe, "_meet", refuse)
    with zerograd.watch(on="collect"):
        for number, x in enumerate(batches()):
            out = model(x)
            if ends == "error" and number == 3:
                out.register_hook(refuse)
            try:
                (out - 10).pow(2).mean().backward()
            except KeyError:
                raised += 1
            optimizer.step()
    assert raised == (ends == "error")
    assert not any(param._backward_hooks for param in model.parameters())
