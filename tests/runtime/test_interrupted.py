"""Exceptions that are not ours reach the program at once, wherever they meet our code."""

from __future__ import annotations

import ctypes
import functools
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import zerograd
from support import tiers
from support.training import batches, loss_of, net, sgd
from zerograd.core.interruptions import Tolerating, interrupts
from zerograd.recording.writer import Recorder
from zerograd.runtime.call_sites import OURS
from zerograd.runtime.gradient_probe import GradientProbe
from zerograd.runtime.looks import GradientHooks
from zerograd.runtime.posting import Posting
from zerograd.runtime.steady_loop import SteadyLoop
from zerograd.runtime.step_and_clear import StepAndClear
from zerograd.runtime.unnoticed import is_ours
from zerograd.runtime.watcher import Watcher


class Preempted(Exception):
    """An exception of the program."""


KINDS: list[type[BaseException]] = [
    Preempted,
    TimeoutError,
    RuntimeError,
    OSError,
    KeyboardInterrupt,
    SystemExit,
]
MOMENTS: list[tuple[type, str]] = [
    (Watcher, "backward_begins"),
    (Watcher, "backward_ended"),
    (Watcher, "step_begins"),
    (Watcher, "step_ended"),
    (Watcher, "zeroed"),
    (GradientProbe, "before"),
    (GradientProbe, "_meet"),
    (GradientHooks, "_note"),
    (StepAndClear, "step"),
    (Posting, "post"),
    (SteadyLoop, "backward_begins"),
    (SteadyLoop, "leave"),
    (SteadyLoop, "step_ends"),
    (SteadyLoop, "clears"),
]


def raising(kind: type[BaseException]) -> Callable[[int, Any], None]:
    def handler(number: int, frame: Any) -> None:
        raise kind("from outside")

    return handler


@pytest.fixture
def handled() -> Iterator[Callable[[Any], None]]:
    before = signal.getsignal(signal.SIGUSR1)
    yield lambda handler: (signal.signal(signal.SIGUSR1, handler), None)[1]
    signal.signal(signal.SIGUSR1, before)


@pytest.mark.parametrize(("part", "method"), MOMENTS)
@pytest.mark.parametrize("kind", tiers.sample(KINDS, [TimeoutError]))
def test_what_a_signal_handler_raises_in_our_code_reaches_the_program(
    part: type,
    method: str,
    kind: type[BaseException],
    monkeypatch: pytest.MonkeyPatch,
    handled: Callable[[Any], None],
) -> None:
    handled(raising(kind))
    original = getattr(part, method)
    calls = 0
    raised: list[str] = []

    def interrupted(*args: Any, **options: Any) -> Any:
        nonlocal calls
        calls += 1
        # The next clear is one that a loop expects, and nobody is asked.
        if calls == (1 if method in ("zeroed", "clears") else 2):
            os.kill(os.getpid(), signal.SIGUSR1)
        return original(*args, **options)

    monkeypatch.setattr(part, method, interrupted)
    model = net()
    optimizer = sgd(model)
    with zerograd.watch(on="collect") as report:
        for x in batches(8):
            try:
                loss_of(model, x).backward()
                optimizer.step()
                if method in ("zeroed", "clears"):
                    optimizer.zero_grad()
            except kind as error:
                raised.append(str(error))
    assert raised == ["from outside"]
    assert report.errors == []
    assert not any(param._backward_hooks for param in model.parameters())


def test_the_watching_goes_on_after_an_interrupt(handled: Callable[[Any], None]) -> None:
    handled(raising(Preempted))
    model = net()
    optimizer = sgd(model)
    with zerograd.watch(on="collect") as report:
        for number, x in enumerate(batches(12)):
            optimizer.zero_grad()
            try:
                loss_of(model, x).backward()
                if number == 5:
                    os.kill(os.getpid(), signal.SIGUSR1)
            except Preempted:
                continue
            optimizer.step()
        assert report.findings == []
        for x in batches(3):
            loss_of(model, x).backward()
            optimizer.step()
    assert report.errors == []
    assert [one.code for one in report.findings] == ["ZG101"]


@pytest.mark.parametrize("shape", ["function", "lambda", "method", "partial", "object", "nested"])
def test_every_kind_of_handler_is_recognised(shape: str, handled: Callable[[Any], None]) -> None:
    class Handler:
        def __call__(self, *args: Any) -> None:
            raise OSError("now")

        def method(self, number: int, frame: Any) -> None:
            raise OSError("now")

    def with_more(more: str, number: int, frame: Any) -> None:
        raise OSError(more)

    def nested(number: int, frame: Any) -> None:
        Handler()(1)

    handlers: dict[str, Any] = {
        "function": raising(OSError),
        "lambda": lambda *_: Handler()(),
        "method": Handler().method,
        "partial": functools.partial(with_more, "now"),
        "object": Handler(),
        "nested": nested,
    }
    handled(handlers[shape])
    with pytest.raises(OSError, match=r"now|outside") as raised, Tolerating(OSError):
        signal.raise_signal(signal.SIGUSR1)
    assert interrupts(raised.value)


def test_an_error_of_our_own_is_ours_and_that_of_another_library_is_not() -> None:
    def caught(kind: type[BaseException]) -> BaseException:
        try:
            raise kind
        except BaseException as error:  # noqa: BLE001
            return error

    assert is_ours(caught(ValueError))
    assert is_ours(caught(RuntimeError))
    assert not is_ours(caught(Preempted))
    assert not is_ours(caught(KeyboardInterrupt))
    assert not is_ours(caught(TimeoutError))
    with Tolerating(ValueError):
        raise ValueError("ours")


def test_what_a_generator_makes_of_an_interrupt_is_not_ours(
    handled: Callable[[Any], None],
) -> None:
    handled(raising(StopIteration))

    def numbers() -> Iterator[int]:
        yield 1
        signal.raise_signal(signal.SIGUSR1)

    with pytest.raises(RuntimeError, match="StopIteration") as raised:
        list(numbers())
    assert not is_ours(raised.value)


@tiers.long
@pytest.mark.parametrize("kind", [ValueError, OSError])
def test_an_interrupt_at_any_moment_reaches_the_program(
    kind: type[Exception], handled: Callable[[Any], None], tmp_path: Path
) -> None:
    """A handler raises at the next bytecode, one further each time; the run is recorded."""
    handled(raising(kind))
    model = net()
    optimizer = sgd(model)
    record = Recorder(str(tmp_path / "run.jsonl"))
    reached = rounds = 0

    def train(x: Any) -> None:
        optimizer.zero_grad()
        loss_of(model, x).backward()
        optimizer.step()

    with zerograd.watch(on="collect", record=record) as report:
        for x in batches(12):
            train(x)
        for x in batches(400):
            rounds += 1
            seen = 0

            def trace(frame: Any, what: str, arg: object) -> Any:
                nonlocal seen
                if frame.f_code.co_filename.startswith(OURS):
                    seen += 1
                    if seen == 3 * rounds:  # noqa: B023
                        sys.settrace(None)
                        signal.raise_signal(signal.SIGUSR1)
                return trace

            sys.settrace(trace)
            try:
                train(x)
            except (kind, RuntimeError):
                reached += 1
            finally:
                sys.settrace(None)
            if seen < 3 * rounds:
                rounds -= 1
                break
    record.close()
    assert rounds > 50
    assert (reached, report.errors) == (rounds, [])


def test_a_time_limit_set_by_another_thread_reaches_the_program() -> None:
    model = net()
    optimizer = sgd(model)
    thread = threading.get_ident()

    def limit() -> None:
        time.sleep(0.2)
        ctypes.pythonapi.PyThreadState_SetAsyncExc(
            ctypes.c_ulong(thread), ctypes.py_object(TimeoutError)
        )

    threading.Thread(target=limit).start()
    began = time.monotonic()

    def train() -> None:
        while time.monotonic() - began < 20:
            for x in batches(2):
                optimizer.zero_grad()
                loss_of(model, x).backward()
                optimizer.step()

    with zerograd.watch(on="collect") as report, pytest.raises(TimeoutError):
        train()
    assert report.errors == []


SCRIPT = """
import os, signal, sys, threading
signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell in the background ignores it
import torch
model = torch.nn.Linear(3, 2)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
threading.Timer(0.3, lambda: os.kill(os.getpid(), signal.SIGINT)).start()
while True:
    optimizer.zero_grad()
    model(torch.ones(5, 3)).sum().backward()
    optimizer.step()
"""


@tiers.long
def test_ctrl_c_ends_a_watched_program_as_it_ends_any_other(tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text(SCRIPT)
    codes = [
        subprocess.run(
            [sys.executable, *with_, str(script)], check=False, capture_output=True, timeout=120
        )
        for with_ in ([], ["-m", "zerograd", "run"])
    ]
    assert [one.returncode for one in codes] == [-signal.SIGINT, -signal.SIGINT]
    assert b"KeyboardInterrupt" in codes[1].stderr
