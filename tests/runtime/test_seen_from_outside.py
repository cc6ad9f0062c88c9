"""What a program sees of torch is the same with a watch as without one."""

from __future__ import annotations

import _thread
import functools
import importlib
import inspect
import pickle
import threading
import time
import typing
import weakref
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
import torch.distributed
import torch.nn.parallel.distributed
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.distributed.fsdp import FullyShardedDataParallel
from torch.distributed.fsdp.sharded_grad_scaler import ShardedGradScaler
from torch.nn.utils import clip_grad_norm_, clip_grad_value_
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

import zerograd
from support.training import batches, loss_of, net, sgd, weights
from zerograd.runtime.subjects import Subjects

optim = importlib.import_module("torch.optim.optimizer")
clip_grad = importlib.import_module("torch.nn.utils.clip_grad")
graph = importlib.import_module("torch.autograd.graph")
collectives = importlib.import_module("torch.distributed.distributed_c10d")
DDP = nn.parallel.DistributedDataParallel

PATCHED: dict[str, Callable[[], Any]] = {
    "Module.zero_grad": lambda: nn.Module.zero_grad,
    "Optimizer.zero_grad": lambda: torch.optim.Optimizer.zero_grad,
    "Optimizer.add_param_group": lambda: torch.optim.Optimizer.add_param_group,
    "Optimizer.step": lambda: torch.optim.SGD.step,
    "clip_grad_norm_": lambda: clip_grad_norm_,
    "_clip_grads_with_norm_": lambda: clip_grad._clip_grads_with_norm_,
    "clip_grad_value_": lambda: clip_grad_value_,
    "_engine_run_backward": lambda: graph._engine_run_backward,
    "Tensor.backward": lambda: torch.Tensor.backward,
    "GradScaler.scale": lambda: torch.amp.GradScaler.scale,
    "GradScaler.unscale_": lambda: torch.amp.GradScaler.unscale_,
    "GradScaler.step": lambda: torch.amp.GradScaler.step,
    "GradScaler.update": lambda: torch.amp.GradScaler.update,
    "ShardedGradScaler.scale": lambda: ShardedGradScaler.scale,
    "ShardedGradScaler.unscale_": lambda: ShardedGradScaler.unscale_,
    "ShardedGradScaler.update": lambda: ShardedGradScaler.update,
    "FSDP.clip_grad_norm_": lambda: FullyShardedDataParallel.clip_grad_norm_,
    "DDP.__init__": lambda: DDP.__init__,
    "DDP.forward": lambda: DDP.forward,
    "DDP.no_sync": lambda: DDP.no_sync,
    "all_reduce": lambda: collectives.all_reduce,
    "init_process_group": lambda: collectives.init_process_group,
}
if not hasattr(clip_grad, "_clip_grads_with_norm_"):  # before torch 2.6
    del PATCHED["_clip_grads_with_norm_"]


def hints(function: Any) -> object:
    try:
        return typing.get_type_hints(function)
    except (NameError, TypeError) as error:
        return repr(error)


def seen(function: Any) -> dict[str, object]:
    """What a function shows of itself."""
    wrapped = getattr(function, "__wrapped__", None)
    return {
        "signature": inspect.signature(function),
        "arguments": inspect.getfullargspec(function),
        "hints": hints(function),
        "wrapped": getattr(wrapped, "__qualname__", None),
        "name": function.__name__,
        "qualified name": function.__qualname__,
        "module": function.__module__,
        "documentation": function.__doc__,
        "annotations": function.__annotations__,
    }


@pytest.mark.parametrize("name", PATCHED)
def test_a_function_of_torch_shows_what_it_shows_without_a_watch(name: str) -> None:
    bare = seen(PATCHED[name]())
    with zerograd.watch(on="collect"):
        function = PATCHED[name]()
        assert seen(function) == bare
        assert pickle.loads(pickle.dumps(function)) is function
    assert seen(PATCHED[name]()) == bare


CALLS: dict[str, Callable[[Any], Any]] = {
    "Module.zero_grad, too many": lambda it: it.model.zero_grad(True, False),
    "Module.zero_grad, unknown": lambda it: it.model.zero_grad(to_none=True),
    "Optimizer.zero_grad, too many": lambda it: it.optimizer.zero_grad(True, False),
    "Optimizer.zero_grad, unknown": lambda it: it.optimizer.zero_grad(to_none=True),
    "Optimizer.zero_grad, nobody": lambda it: it.torch.optim.Optimizer.zero_grad(),
    "add_param_group, none": lambda it: it.optimizer.add_param_group(),
    "add_param_group, nobody": lambda it: it.torch.optim.Optimizer.add_param_group(),
    "add_param_group, no group": lambda it: it.optimizer.add_param_group(3),
    "step, too many": lambda it: it.optimizer.step(1, 2, 3),
    "FSDP.clip_grad_norm_, none": lambda it: it.clip_flat(),
    "FSDP.clip_grad_norm_, unknown": lambda it: it.clip_flat(norm=3),
    "FSDP.clip_grad_norm_, a number": lambda it: it.clip_flat(3, 1.0),
    "DDP, nobody": lambda it: it.wrap.__init__(),
    "DDP.forward, a number": lambda it: it.wrap.forward(3),
    "DDP.no_sync, two": lambda it: it.wrap.no_sync(3, 4),
    "clip_grad_norm_, none": lambda it: it.clip_norm(),
    "clip_grad_norm_, no limit": lambda it: it.clip_norm(it.model.parameters()),
    "clip_grad_norm_, a number": lambda it: it.clip_norm(3, 1.0),
    "clip_grad_norm_, a text": lambda it: it.clip_norm(it.model.parameters(), "x"),
    "clip_grad_value_, none": lambda it: it.clip_value(),
    "clip_grad_value_, no limit": lambda it: it.clip_value(it.model.parameters()),
    "clip_grad_value_, a number": lambda it: it.clip_value(3, 1.0),
    "clip_grad_value_, unknown": lambda it: it.clip_value(it.model.parameters(), limit=1.0),
    "clip_grad_value_, a text": lambda it: it.clip_value(it.model.parameters(), "x"),
    "scale, none": lambda it: it.scaler.scale(),
    "unscale_, none": lambda it: it.scaler.unscale_(),
    "unscale_, a text": lambda it: it.scaler.unscale_("x"),
    "scaler.step, none": lambda it: it.scaler.step(),
    "scaler.step, closure": lambda it: it.scaler.step(it.optimizer, closure=print),
    "update, too many": lambda it: it.scaler.update(1, 2),
    "backward, a text": lambda it: it.torch.autograd.backward("x"),
    "backward, unknown": lambda it: it.model(torch.ones(1, 3)).sum().backward(graph=True),
    "backward, not a number": lambda it: it.model(torch.ones(2, 3)).backward(),
    "DDP, none": lambda it: it.wrap(),
    "all_reduce, none": lambda it: it.all_reduce(),
}


@pytest.mark.parametrize("name", CALLS)
def test_a_wrong_call_raises_what_it_raises_without_a_watch(name: str) -> None:
    def error(watch: AbstractContextManager[object]) -> tuple[type, str]:
        model = net()
        it = SimpleNamespace(
            torch=torch,
            model=model,
            optimizer=sgd(model),
            scaler=torch.amp.GradScaler("cpu"),
            clip_norm=clip_grad_norm_,
            clip_value=clip_grad_value_,
            wrap=DDP,
            clip_flat=FullyShardedDataParallel.clip_grad_norm_,
            all_reduce=collectives.all_reduce,
        )
        with watch as report:
            loss_of(model, next(batches())).backward()
            with pytest.raises(Exception) as raised:  # noqa: PT011  # any, as long as it is the same
                CALLS[name](it)
        assert getattr(report, "errors", []) == []
        return raised.type, str(raised.value)

    assert error(zerograd.watch(on="collect")) == error(nullcontext())


class Calls(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """What reaches the dispatcher."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.seen: list[str] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.seen.append(str(func))
        return func(*args, **(kwargs or {}))


class Functions(TorchFunctionMode):
    """What is called of torch, attributes included."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: list[str] = []

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.seen.append(getattr(func, "__qualname__", repr(func)))
        return func(*args, **(kwargs or {}))


def trains(clear: str) -> list[Tensor]:
    model = net()
    optimizer = sgd(model)
    scaler = torch.amp.GradScaler("cpu", init_scale=8.0)
    for x in batches(6):
        if clear == "zero_grad":
            optimizer.zero_grad()
        elif clear == "in place":
            for param in model.parameters():
                if param.grad is not None:
                    param.grad.zero_()
        elif clear == "None":
            for param in model.parameters():
                param.grad = None
        if clear == "scaler":
            model.zero_grad()
            scaler.scale(loss_of(model, x)).backward()
            scaler.unscale_(optimizer)
        else:
            loss_of(model, x).backward()
        clip_grad_norm_(model.parameters(), 1.0)
        if clear == "scaler":
            scaler.step(optimizer)
            scaler.update()
        else:
            optimizer.step()
    return weights(model)


@pytest.mark.parametrize("mode", [Calls, Functions])
@pytest.mark.parametrize("clear", ["zero_grad", "in place", "None", "nothing", "scaler"])
def test_a_mode_sees_the_calls_that_it_sees_without_a_watch(mode: Any, clear: str) -> None:
    with mode() as bare:
        expected = trains(clear)
    with zerograd.watch(on="collect") as report, mode() as watched:
        found = trains(clear)
    assert watched.seen == bare.seen
    assert len(bare.seen) > 50
    assert all(a.equal(b) for a, b in zip(expected, found, strict=True))
    assert report.errors == []
    assert [one.code for one in report.findings] == ["ZG101"] * (clear == "nothing")


def test_a_default_device_does_not_end_the_watching() -> None:
    with zerograd.watch(on="collect") as report, torch.device("cpu"):
        trains("in place")
        trains("nothing")
    assert report.errors == []
    assert [one.code for one in report.findings] == ["ZG101"]


@pytest.mark.parametrize("clear", ["zero_grad", "in place", "None", "nothing"])
def test_fake_tensors_train_nothing_and_end_nothing(clear: str) -> None:
    def fake() -> None:
        with FakeTensorMode():
            model = net()
            optimizer = sgd(model)
            for _ in range(5):
                if clear == "zero_grad":
                    optimizer.zero_grad()
                for param in model.parameters():
                    if clear == "None":
                        param.grad = None
                    elif clear == "in place" and param.grad is not None:
                        param.grad.zero_()
                loss_of(model, torch.randn(5, 3)).backward()
                clip_grad_norm_(model.parameters(), 1.0)
                optimizer.step()
            models.append(model)
            optimizers.append(optimizer)

    models: list[Any] = []
    optimizers: list[Any] = []
    with zerograd.watch(on="collect") as report:
        fake()
        for _ in range(3):  # outside of the mode, the tensors are still fake
            loss = loss_of(models[0], models[0][0].weight.new_zeros(5, 3))
            loss.backward()
            optimizers[0].step()
        trains("nothing")
    assert report.errors == []
    assert [one.code for one in report.findings] == ["ZG101"]


def alone_in_a_thread(call: Callable[[], object]) -> None:
    """Let a thread do nothing else, and wait until it has: no function of ours is above the call."""
    held = functools.partial(call)  # a thread lets go of it when the call has ended
    running = weakref.ref(held)
    _thread.start_new_thread(held, ())
    del held
    until = time.monotonic() + 10
    while running() is not None:
        assert time.monotonic() < until
        time.sleep(0.001)


@pytest.mark.parametrize("start", ["threading", "_thread", "autograd in _thread"])
def test_a_backward_may_be_all_that_a_thread_does(start: str) -> None:
    model = net()
    optimizer = sgd(model)
    with zerograd.watch(on="collect") as report:
        for x in batches(6):
            optimizer.zero_grad()
            loss = loss_of(model, x)
            if start == "threading":
                thread = threading.Thread(target=loss.backward)
                thread.start()
                thread.join()
            elif start == "_thread":
                alone_in_a_thread(loss.backward)
            else:
                alone_in_a_thread(functools.partial(torch.autograd.backward, loss))
            assert model[0].weight.grad is not None
            optimizer.step()
    assert (report.errors, report.findings) == ([], [])


def test_a_step_may_be_all_that_a_thread_does() -> None:
    model = net()
    optimizer = sgd(model)
    loss_of(model, next(batches())).backward()
    before = model[0].weight.detach().clone()
    with zerograd.watch(on="collect") as report:
        for call in (optimizer.step, optimizer.zero_grad, model.zero_grad):
            alone_in_a_thread(call)
    assert not model[0].weight.equal(before)
    assert model[0].weight.grad is None
    assert report.errors == []


def test_a_patch_of_the_program_stays_when_the_watch_ends(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    called: list[bool] = []
    # What is there now is put back after the test, not the patch of the watch.
    monkeypatch.setattr(nn.Module, "zero_grad", nn.Module.zero_grad)
    with zerograd.watch(on="collect") as report:
        ours = nn.Module.zero_grad

        def mine(self: Any, set_to_none: bool = True) -> None:
            called.append(set_to_none)
            ours(self, set_to_none)

        monkeypatch.setattr(nn.Module, "zero_grad", mine)
        net().zero_grad()
    assert nn.Module.zero_grad is mine
    net().zero_grad()
    assert called == [True, True]
    assert report.errors == []


def test_a_watch_begins_beside_a_wrapper_that_could_not_be_made(tmp_path: Path) -> None:
    dist = torch.distributed
    mine = not dist.is_initialized()
    if mine:
        store = (tmp_path / "store").as_uri()
        dist.init_process_group("gloo", init_method=store, rank=0, world_size=1)
    try:
        failed = DDP.__new__(DDP)
        with pytest.raises(TypeError):
            failed.__init__()  # type: ignore[misc]
        with zerograd.watch(on="collect") as report:
            pass
    finally:
        if mine:
            dist.destroy_process_group()
    assert report.errors == []


def test_a_patch_that_the_program_keeps_hears_nothing_after_the_watch(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    model = net()
    optimizer = sgd(model)

    def trains() -> None:
        for x in batches(6):
            clear(model)
            loss_of(model, x).backward()
            optimizer.step()

    with zerograd.watch(on="collect") as report:
        clear = nn.Module.zero_grad
        trains()
    heard: list[object] = []
    monkeypatch.setattr(Subjects, "covered", lambda _, module: heard.append(module))
    trains()
    assert heard == []
    assert (report.errors, report.findings) == ([], [])
