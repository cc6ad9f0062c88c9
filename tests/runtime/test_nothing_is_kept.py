"""No model, parameter, gradient or optimizer lives longer because somebody watches it."""

# ruff: noqa: ARG005  # what trains a model gets it and its optimizer, whichever it uses
from __future__ import annotations

import gc
import threading
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn.utils import clip_grad_norm_, clip_grad_value_

import zerograd
from support import tiers
from support.training import batches, loss_of, net
from zerograd.recording.writer import Recorder
from zerograd.runtime.watch import Watch
from zerograd.runtime.watcher import Watcher

TIMES = 20
Train = Callable[[Any, Any], list[Any]]
"""Trains a model, and returns what else must not be kept."""


def loop(
    *,
    clear: Callable[[Any, Any], object] = lambda model, optimizer: optimizer.zero_grad(),
    after: Callable[[Any, Any], object] = lambda model, optimizer: None,
    step: bool = True,
) -> Train:
    def train(model: Any, optimizer: Any) -> list[Any]:
        for x in batches(6):
            clear(model, optimizer)
            loss_of(model, x).backward()
            after(model, optimizer)
            if step:
                optimizer.step()
        return []

    return train


def by_none(model: Any, optimizer: Any) -> None:
    for param in model.parameters():
        param.grad = None


def in_place(model: Any, optimizer: Any) -> None:
    for param in model.parameters():
        if param.grad is not None:
            param.grad.zero_()


def scaler(model: Any, optimizer: Any) -> list[Any]:
    one = torch.amp.GradScaler("cpu", init_scale=8.0)
    for number, x in enumerate(batches(6)):
        optimizer.zero_grad()
        one.scale(loss_of(model, x) * (float("inf") if number == 3 else 1.0)).backward()
        one.unscale_(optimizer)
        one.step(optimizer)
        one.update()
    return [one]


def orphans(model: Any, optimizer: Any) -> list[Any]:
    orphan = nn.Linear(2, 2)
    for x in batches(12):
        optimizer.zero_grad()
        orphan(model(x)).pow(2).mean().backward()
        optimizer.step()
    return [orphan, *orphan.parameters()]


def in_a_thread(model: Any, optimizer: Any) -> list[Any]:
    thread = threading.Thread(target=loop(), args=(model, optimizer))
    thread.start()
    thread.join()
    return []


def backward_fails(model: Any, optimizer: Any) -> list[Any]:
    def refuse(grad: Tensor) -> None:
        raise KeyError

    for number, x in enumerate(batches(8)):
        optimizer.zero_grad()
        out = model(x)
        if number == 5:
            out.register_hook(refuse)
        try:
            out.sum().backward()
        except KeyError:
            continue
        optimizer.step()
    return []


def two_optimizers(model: Any, optimizer: Any) -> list[Any]:
    head = nn.Linear(2, 1)
    other = torch.optim.SGD(head.parameters(), lr=0.01)
    for x in batches(8):
        optimizer.zero_grad()
        head(model(x)).pow(2).mean().backward()
        optimizer.step()
        other.step()
    return [head, other, *head.parameters()]


def stepper(model: Any, optimizer: Any) -> list[Any]:
    made = zerograd.Stepper(model, optimizer, accumulate=2, clip_norm=1.0)
    for number, x in enumerate(made(list(batches(7)))):
        made.backward(loss_of(model, x), weight=5)
        if number == 4:
            break
    return [made]


def layer_replaced(model: Any, optimizer: Any) -> list[Any]:
    loop()(model, optimizer)
    old = [model[0], *model[0].parameters()]
    model[0] = nn.Linear(3, 4)
    optimizer.param_groups[0]["params"] = list(model.parameters())
    loop()(model, optimizer)
    return old


EVENTS: dict[str, Train] = {
    "a steady loop": loop(),
    "clip": loop(after=lambda m, o: clip_grad_norm_(m.parameters(), 1.0)),
    "clip by value": loop(after=lambda m, o: clip_grad_value_(m.parameters(), 1.0)),
    "module.zero_grad": loop(clear=lambda m, o: m.zero_grad()),
    "in place by zero_grad": loop(clear=lambda m, o: o.zero_grad(set_to_none=False)),
    "None by hand": loop(clear=by_none),
    "zero by hand": loop(clear=in_place),
    "a finding": loop(clear=lambda m, o: None),
    "backward only": loop(step=False),
    "step without gradients": loop(after=by_none),
    "a scaler": scaler,
    "orphans": orphans,
    "a thread": in_a_thread,
    "a backward that fails": backward_fails,
    "two optimizers": two_optimizers,
    "a stepper": stepper,
    "a replaced layer": layer_replaced,
}


def alive(train: Train) -> int:
    """How many of the models, and of what belongs to them, live on when the program has dropped them."""
    dropped: list[weakref.ref[Any]] = []
    for _ in range(TIMES):
        model = net()
        optimizer = torch.optim.AdamW(model.parameters(), lr=0.001)
        rest = train(model, optimizer)
        params = list(model.parameters())
        grads = [param.grad for param in params if param.grad is not None]
        dropped += map(weakref.ref, [model, optimizer, *params, *grads, *rest])
        del model, optimizer, params, grads, rest
    gc.collect()
    return sum(one() is not None for one in dropped)


@pytest.mark.parametrize("recorded", tiers.sample([True, False]), ids=["recorded", ""])
@pytest.mark.parametrize("name", EVENTS)
def test_what_the_program_drops_is_freed(name: str, recorded: bool, tmp_path: Path) -> None:
    assert alive(EVENTS[name]) == 0
    record = Recorder(str(tmp_path / "run.jsonl"), program="train.py", rank=None)
    watch = Watch("collect", record=record if recorded else None)
    with watch as report:
        assert alive(EVENTS[name]) == 0
    assert alive(EVENTS[name]) == 0
    record.close()
    assert report.errors == []


@pytest.mark.parametrize("method", ["backward_ended", "step_ended", "zeroed", "scaler_step_ended"])
def test_a_fault_of_ours_keeps_nothing(method: str, monkeypatch: pytest.MonkeyPatch) -> None:
    original = getattr(Watcher, method)
    calls = 0

    def fails(*args: Any) -> Any:
        nonlocal calls
        calls += 1
        if calls == 3:
            raise ZeroDivisionError
        return original(*args)

    monkeypatch.setattr(Watcher, method, fails)
    with zerograd.watch(on="collect") as report:
        assert alive(scaler) == 0
    assert len(report.errors) == 1
