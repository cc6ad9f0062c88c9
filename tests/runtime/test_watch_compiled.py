"""Compiled models and compiled steps are watched."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.nn.utils
import torch.nn.utils.clip_grad
from torch import Tensor

import zerograd
from support import tiers
from support.training import assert_found, batches, either_way, loss_of, net, sgd

needs_no_compiler = pytest.mark.parametrize("backend", tiers.sample(["eager", "aot_eager"]))
compiles = pytest.mark.filterwarnings("ignore")
"""Compilers of torch warn of what is going on inside."""
LOSES_LINES = torch.__version__.startswith(("2.4.", "2.5.", "2.6."))
"""What torch up to 2.6 compiles calls backward() from the first line of the function."""


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
    if LOSES_LINES and not right:
        assert [(one.code, one.seen) for one in report.findings] == [("ZG101", 5)]
    else:
        assert_found(report, right=right, seen=5)


@tiers.long
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
