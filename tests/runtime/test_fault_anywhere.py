"""A fault of zerograd, in whatever function of the watching: said once, and the training goes on."""

from __future__ import annotations

import gc
import sys
import threading
from collections.abc import Callable, Iterator
from types import FunctionType, ModuleType
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.utils import clip_grad_norm_, clip_grad_value_

import zerograd
from support import tiers
from support.training import batches, loss_of, net, sgd, weights
from zerograd.runtime.engine import learned


class Fault(Exception):
    """An error of a kind that no code expects."""


Fault.__module__ = "zerograd.test"


WATCHING = ("zerograd.runtime.", "zerograd.fold.", "zerograd.core.automaton")
"""The modules whose code runs inside calls of torch."""
GUARDS = ("zerograd.runtime.hook_guard", "zerograd.runtime.disguise", "zerograd.core.interruptions")
"""What makes a fault harmless is not itself faulty, and what hides a patch runs before any training."""

Place = tuple[type | ModuleType, str]


def functions() -> Iterator[Place]:
    """The methods of all classes that watch, and the functions of modules, wherever they are imported."""
    for name, module in list(sys.modules.items()):
        if not name.startswith(WATCHING) or name in GUARDS:
            continue
        for own_name, value in vars(module).items():
            if isinstance(value, type) and value.__module__ == name:
                for method, function in vars(value).items():
                    if isinstance(function, FunctionType) and not method.startswith("__"):
                        yield value, method
            elif isinstance(value, FunctionType) and value.__module__.startswith(WATCHING):
                if value.__module__ not in GUARDS:
                    yield module, own_name


def trains(body: Body) -> list[Tensor]:
    """A training that does a bit of everything; `body` calls each of its batches."""
    model, head = net(), net()
    optimizer, other = sgd(model), torch.optim.Adam(head.parameters(), lr=0.01)
    scaler = torch.amp.GradScaler("cpu", init_scale=8.0, growth_interval=2)

    def batch(number: int, x: Tensor) -> None:
        if number != 5:  # what the step before has used is there
            optimizer.zero_grad()
        loss_of(model, x).backward()
        clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        if number % 2:
            scaler.scale(loss_of(head, x)).backward()
            scaler.unscale_(other)
            clip_grad_value_(head.parameters(), 0.5)
            scaler.step(other)
            scaler.update()
            head.zero_grad()
        if number == 4:
            return
        if number == 6:  # the step of one uses what was left in the other
            (loss_of(head, x) + loss_of(model, x)).backward()
            other.step()
            loss_of(model, -x).backward()
            optimizer.step()
        for param in model.parameters():
            if param.grad is not None and number % 3:
                param.grad.zero_()
            elif not number % 3:
                param.grad = None

    def more(x: Tensor) -> None:
        """Closures, groups that come late, layers that no optimizer has, optimizers that go."""
        grown = net(seed=1)
        newton = torch.optim.LBFGS(grown.parameters(), lr=0.01, max_iter=2)

        def closure() -> Any:
            newton.zero_grad()
            loss = loss_of(grown, x)
            loss.backward()
            return loss

        newton.step(closure)  # type: ignore[no-untyped-call]
        late = torch.optim.SGD(grown[0].parameters(), lr=0.01)
        late.add_param_group({"params": list(grown[2].parameters())})
        for _ in range(4):
            late.zero_grad(set_to_none=False)
            loss_of(head, grown(x)[:, :1].expand(-1, 3)).backward()
            late.step()
        head.zero_grad()

    for number, x in enumerate(batches(8)):
        body(lambda number=number, x=x: batch(number, x))  # type: ignore[misc]
        if number in (2, 6):
            body(lambda x=x: more(x))  # type: ignore[misc]
            gc.collect()
    return weights(model) + weights(head)


def shares(body: Body) -> list[Tensor]:
    """A training under DDP, of one rank; some of its windows are not shared at first."""
    if not dist.is_initialized():
        # One for all trainings, and conftest.py ends it: torch takes a group apart without letting go of Python,
        # and waits for ever if one of the group's threads has something of Python's to release just then.
        store = dist.HashStore()  # type: ignore[attr-defined]
        dist.init_process_group("gloo", store=store, rank=0, world_size=1)
    model = nn.parallel.DistributedDataParallel(net())
    optimizer = sgd(model)

    def batch(number: int, x: Tensor) -> None:
        model.zero_grad()
        if number % 2:
            with model.no_sync():
                loss_of(model, x).backward()
        loss_of(model, x).backward()
        clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()

    for number, x in enumerate(batches(8)):
        body(lambda number=number, x=x: batch(number, x))  # type: ignore[misc]
    return weights(model)


Body = Callable[[Callable[[], Any]], Any]
"""Makes a call."""
Train = Callable[[Body], list[Tensor]]
"""Trains, batch by batch, and returns the weights."""


def here(call: Callable[[], Any]) -> None:
    call()


def in_a_thread(call: Callable[[], Any]) -> None:
    thread = threading.Thread(target=call)
    thread.start()
    thread.join()


class Injected:
    """Makes one method raise a fault in one of its calls, while the training runs."""

    def __init__(self, owner: type | ModuleType, name: str, at: int) -> None:
        self._place = owner, name
        self._at = at
        self.calls = 0
        self.armed = False

    def put(self, patch: pytest.MonkeyPatch) -> None:
        original = vars(self._place[0])[self._place[1]]

        def faulty(*args: Any, **options: Any) -> Any:
            if self.armed:
                self.calls += 1
                if self.calls == self._at:
                    raise Fault
            return original(*args, **options)

        patch.setattr(*self._place, faulty)

    def run(self, train: Train, body: Body) -> list[Tensor]:
        self.armed = True
        try:
            return train(body)
        finally:
            self.armed = False


def reached(train: Train, body: Body, at: int) -> list[Place]:
    """The functions that the training calls so often."""
    with zerograd.watch(on="collect"):
        pass  # imports what watches
    with pytest.MonkeyPatch.context() as patch:
        counting = {place: Injected(*place, at=0) for place in functions()}
        for one in counting.values():
            one.put(patch)
            one.armed = True
        learned.cache_clear()  # what is known already is not worked out again
        with zerograd.watch(on="collect"):
            for one in counting.values():
                one.calls = 0
            train(body)
            return [place for place, one in counting.items() if one.calls >= at]


@pytest.mark.parametrize("at", tiers.sample([1, 4], [4]))
@pytest.mark.parametrize("body", tiers.sample([here, in_a_thread], [here]))
@pytest.mark.parametrize(("train", "many"), tiers.sample([(trains, 100), (shares, 60)]))
def test_a_fault_in_any_function_ends_the_watching_and_nothing_else(
    train: Train, many: int, at: int, body: Body, capfd: pytest.CaptureFixture[str]
) -> None:
    expected = train(body)
    places = reached(train, body, at)
    raised = 0
    wrong: dict[str, str] = {}
    for owner, function in places:
        injected = Injected(owner, function, at)
        name = f"{owner.__name__}.{function}"
        capfd.readouterr()
        with pytest.MonkeyPatch.context() as patch:
            injected.put(patch)
            learned.cache_clear()
            try:
                with zerograd.watch(on="collect") as report:
                    found = injected.run(train, body)
            except Fault:
                wrong[name] = "reaches the program"
                continue
        if injected.calls < at:
            continue  # called less often than when all were counted: names are sought in the frames around
        raised += 1
        said = capfd.readouterr().err.count("watches no more")
        if not all(one.equal(other) for one, other in zip(found, expected, strict=True)):
            wrong[name] = "other weights"
        elif (said, len(report.errors)) != (1, 1):
            wrong[name] = f"said {said} times, {len(report.errors)} errors"
    assert wrong == {}
    assert raised > many
