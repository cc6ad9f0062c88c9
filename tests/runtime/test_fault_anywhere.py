"""A fault of zerograd, in whatever function of the watching: said once, and the training goes on."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterator
from types import FunctionType
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn.utils import clip_grad_norm_, clip_grad_value_

import zerograd
from support import tiers
from support.training import batches, loss_of, net, sgd, weights
from zerograd.runtime.engine import learned


class Fault(Exception):
    """An error of a kind that no code expects."""


Fault.__module__ = "zerograd.test"


def functions() -> Iterator[tuple[type, str]]:
    """The methods of all classes that watch."""
    for name, module in list(sys.modules.items()):
        if name.startswith("zerograd.runtime."):
            for owner in vars(module).values():
                if isinstance(owner, type) and owner.__module__ == name:
                    for method, function in vars(owner).items():
                        if isinstance(function, FunctionType) and not method.startswith("__"):
                            yield owner, method


def trains(body: Callable[[Callable[[], Any]], Any]) -> list[Tensor]:
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

    for number, x in enumerate(batches(8)):
        body(lambda number=number, x=x: batch(number, x))  # type: ignore[misc]
    return weights(model) + weights(head)


def here(call: Callable[[], Any]) -> None:
    call()


def in_a_thread(call: Callable[[], Any]) -> None:
    thread = threading.Thread(target=call)
    thread.start()
    thread.join()


class Injected:
    """Makes one method raise a fault in one of its calls, while the training runs."""

    def __init__(self, owner: type, method: str, at: int) -> None:
        self._place = owner, method
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

    def run(self, body: Callable[[Callable[[], Any]], Any]) -> list[Tensor]:
        self.armed = True
        try:
            return trains(body)
        finally:
            self.armed = False


def reached(body: Callable[[Callable[[], Any]], Any], at: int) -> list[tuple[type, str]]:
    """The methods that the training calls so often."""
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
            trains(body)
            return [place for place, one in counting.items() if one.calls >= at]


@pytest.mark.parametrize("at", tiers.sample([1, 4], [4]))
@pytest.mark.parametrize("body", tiers.sample([here, in_a_thread], [here]))
def test_a_fault_in_any_function_ends_the_watching_and_nothing_else(
    at: int, body: Callable[[Callable[[], Any]], Any], capfd: pytest.CaptureFixture[str]
) -> None:
    expected = trains(body)
    places = reached(body, at)
    assert len(places) > 40
    wrong: dict[str, str] = {}
    for owner, method in places:
        injected = Injected(owner, method, at)
        name = f"{owner.__name__}.{method}"
        capfd.readouterr()
        with pytest.MonkeyPatch.context() as patch:
            injected.put(patch)
            learned.cache_clear()
            try:
                with zerograd.watch(on="collect") as report:
                    found = injected.run(body)
            except Fault:
                wrong[name] = "reaches the program"
                continue
        said = capfd.readouterr().err.count("watches no more")
        if not all(one.equal(other) for one, other in zip(found, expected, strict=True)):
            wrong[name] = "other weights"
        elif (said, len(report.errors)) != (1, 1):
            wrong[name] = f"said {said} times, {len(report.errors)} errors"
    assert wrong == {}
