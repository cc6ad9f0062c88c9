"""No model, parameter, gradient or optimizer lives longer because somebody watches it."""

# ruff: noqa: ARG005  # what trains a model gets it and its optimizer, whichever it uses
from __future__ import annotations

import gc
import sys
import threading
import warnings
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
import torch.utils.checkpoint
from torch import Tensor, nn
from torch.nn.utils import clip_grad_norm_, clip_grad_value_

import zerograd
from support import tiers
from support.training import batches, loss_of, net
from zerograd.recording.writer import Recorder
from zerograd.runtime.unnoticed import unnoticed
from zerograd.runtime.watch import Watch
from zerograd.runtime.watcher import Watcher

TIMES = 6
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


def schedule(model: Any, optimizer: Any) -> list[Any]:
    made = torch.optim.lr_scheduler.OneCycleLR(optimizer, max_lr=0.1, total_steps=10)
    averaged = torch.optim.swa_utils.AveragedModel(model)
    for x in batches(8):
        optimizer.zero_grad()
        loss_of(model, x).backward()
        optimizer.step()
        made.step()
        averaged.update_parameters(model)
    return [made, averaged, *averaged.parameters()]


class Kept:
    """What the hooks of a program hold."""


def hooks(model: Any, optimizer: Any) -> list[Any]:
    kept = Kept()
    model[2].register_full_backward_hook(lambda *_, kept=kept: None)
    model[0].weight.register_hook(lambda grad, kept=kept: grad * 2)
    model[2].weight.register_post_accumulate_grad_hook(lambda param, kept=kept: None)
    optimizer.register_step_pre_hook(lambda *_, kept=kept: None)
    optimizer.register_step_post_hook(lambda *_, kept=kept: None)
    loop()(model, optimizer)
    return [kept]


def steps_in_backward(model: Any, optimizer: Any) -> list[Any]:
    each = {one: torch.optim.SGD([one], lr=0.01) for one in model.parameters()}

    def step(param: Any) -> None:
        each[param].step()
        each[param].zero_grad()

    handles = [one.register_post_accumulate_grad_hook(step) for one in each]
    for x in batches(6):
        loss_of(model, x).backward()
    for handle in handles:
        handle.remove()  # else they hold the parameters, also without a watch
    return list(each.values())


def ranks(model: Any, optimizer: Any) -> list[Any]:
    store = dist.HashStore()  # type: ignore[attr-defined]
    dist.init_process_group("gloo", store=store, rank=0, world_size=1)
    try:
        wrapped = nn.parallel.DistributedDataParallel(model)
        loop(clear=lambda m, o: wrapped.zero_grad())(wrapped, optimizer)
        with wrapped.no_sync():
            loop()(wrapped, optimizer)
    finally:
        dist.destroy_process_group()
    return [wrapped]


def closures(model: Any, optimizer: Any) -> list[Any]:
    newton = torch.optim.LBFGS(model.parameters(), lr=0.01, max_iter=2)
    for x in batches(6):

        def closure(x: Tensor = x) -> Any:
            newton.zero_grad()
            loss = loss_of(model, x)
            loss.backward()
            return loss

        newton.step(closure)  # type: ignore[no-untyped-call]
    return [newton, closure]


def assigned(model: Any, optimizer: Any) -> list[Any]:
    given: list[Tensor] = []
    for x in batches(6):
        found = torch.autograd.grad(loss_of(model, x), list(model.parameters()))
        for param, grad in zip(model.parameters(), found, strict=True):
            param.grad = grad
        clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        given += found
    return given


def optimizers_remade(model: Any, optimizer: Any) -> list[Any]:
    made = []
    for x in batches(8):
        optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
        optimizer.zero_grad()
        loss_of(model, x).backward()
        optimizer.step()
        made.append(optimizer)
    return made


def forgotten_detach(model: Any, optimizer: Any) -> list[Any]:
    judge = nn.Linear(2, 1)
    other = torch.optim.SGD(judge.parameters(), lr=0.01)
    for x in batches(16):
        optimizer.zero_grad()
        other.zero_grad()
        (judge(model(x)).mean() - judge(x[:, :2]).mean()).backward()
        other.step()
        (-judge(model(x)).mean()).backward()
        optimizer.step()
    return [judge, other, *judge.parameters()]


def exploding(model: Any, optimizer: Any) -> list[Any]:
    for number, x in enumerate(batches(24)):
        optimizer.zero_grad()
        (loss_of(model, x) * (float("inf") if number > 3 else 1.0)).backward()
        optimizer.step()
    return []


def graphs(model: Any, optimizer: Any) -> list[Any]:
    """A backward that creates a graph, one of other inputs, one inside another."""
    losses = []
    for x in batches(6):
        optimizer.zero_grad()
        loss = loss_of(model, x)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            loss.backward(create_graph=True)
        penalty = sum(param.grad.pow(2).sum() for param in model.parameters())
        penalty.backward(inputs=list(model.parameters()))
        torch.utils.checkpoint.checkpoint(model, x, use_reentrant=False).sum().backward()
        optimizer.step()
        losses += [loss, penalty]
        optimizer.zero_grad()  # the gradients hold the graph, and the graph holds them
    return losses


def compiled(model: Any, optimizer: Any) -> list[Any]:
    made = torch.compile(model, backend="eager")
    loop()(made, optimizer)
    torch._dynamo.reset()
    return [made]


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
    "schedulers and averages": schedule,
    "hooks": hooks,
    "steps inside backward": steps_in_backward,
    "ranks": ranks,
    "closures": closures,
    "assigned gradients": assigned,
    "optimizers made anew": optimizers_remade,
    "a forgotten detach": forgotten_detach,
    "gradients that are not finite": exploding,
    "graphs of graphs": graphs,
    "a compiled model": compiled,
    "a clip of everything, and of nothing": loop(
        after=lambda m, o: [
            clip_grad_norm_([], 1.0),
            clip_grad_norm_([*m.parameters(), torch.zeros(2, requires_grad=True)], 1.0),
            clip_grad_value_(m[0].weight, 1.0),
        ]
    ),
}


SLOW = ("a compiled model",)


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


def test_a_model_is_freed_at_once_also_after_a_loop_that_was_followed() -> None:
    """No search for garbage is needed, so that its memory serves the next model."""

    def train(steps: int) -> list[weakref.ref[Any]]:
        model = net()
        optimizer = torch.optim.AdamW(model.parameters(), lr=0.001)
        for x in batches(steps):
            optimizer.zero_grad()
            loss_of(model, x).backward()
            optimizer.step()
        return list(map(weakref.ref, model.parameters()))

    gc.collect()
    gc.disable()
    try:
        with zerograd.watch(on="collect"):
            dropped = train(6)
        dropped += train(1)
        assert [one() for one in dropped] == [None] * len(dropped)
    finally:
        gc.enable()


@pytest.mark.parametrize("recorded", tiers.sample([True, False]), ids=["recorded", ""])
@pytest.mark.parametrize(
    "name", [pytest.param(one, marks=tiers.long if one in SLOW else ()) for one in EVENTS]
)
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


@pytest.mark.skipif(sys.version_info >= (3, 12), reason="None is not counted there")
def test_no_reference_is_taken_from_what_everybody_uses() -> None:
    heard = unnoticed(torch, lambda error: False)
    before = sys.getrefcount(None)
    for _ in range(1_000):
        heard(int)
    assert abs(sys.getrefcount(None) - before) < 100
