"""An exception from outside is distinguished from one of the code that it comes through."""

from __future__ import annotations

import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

import zerograd
from zerograd.core.interruptions import Tolerating, interrupts


class Stop(Exception):
    """An exception of the program."""


def work() -> None:
    signal.raise_signal(signal.SIGUSR1)


def fails() -> None:
    raise Stop


@pytest.fixture
def handled() -> Iterator[None]:
    """Signals go to handlers of the test, and to what was there after it."""
    before = signal.getsignal(signal.SIGUSR1)
    yield
    signal.signal(signal.SIGUSR1, before)


def raised(by: Any) -> BaseException:
    try:
        by()
    except BaseException as error:  # noqa: BLE001, it is looked at
        return error
    raise AssertionError


def handler(number: int, frame: FrameType | None) -> None:
    raise Stop


def handler_of_any_arguments(*given: object) -> None:
    raise Stop


@pytest.mark.usefixtures("handled")
@pytest.mark.parametrize("which", [handler, handler_of_any_arguments])
def test_what_a_signal_handler_raises_interrupts(which: Any) -> None:
    signal.signal(signal.SIGUSR1, which)
    assert interrupts(raised(work))


@pytest.mark.usefixtures("handled")
def test_what_a_function_of_a_signal_handler_raises_interrupts() -> None:
    def calls(number: int, frame: FrameType | None) -> None:
        fails()

    signal.signal(signal.SIGUSR1, calls)
    assert interrupts(raised(work))


def test_what_a_trace_function_raises_interrupts() -> None:
    def trace(frame: FrameType, event: str, argument: object) -> None:
        if frame.f_code is fails.__code__:
            raise Stop

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        error = raised(fails)
    finally:
        sys.settrace(before)
    assert interrupts(error)


def test_an_error_of_the_code_does_not_interrupt() -> None:
    assert not interrupts(raised(fails))
    assert not interrupts(Stop())


@pytest.mark.usefixtures("handled")
def test_an_error_whose_cause_interrupts_does_so_too() -> None:
    signal.signal(signal.SIGUSR1, handler)
    error = Stop()
    error.__cause__ = raised(work)
    assert interrupts(error) is True


def test_an_error_whose_cause_is_another_of_the_code_does_not_interrupt() -> None:
    error = Stop()
    error.__cause__ = raised(fails)
    assert not interrupts(error)


def test_an_error_of_a_function_that_holds_another_frame_does_not_interrupt() -> None:
    own = sys._getframe()

    def inner(frame: FrameType, pair: tuple[FrameType, ...], many: list[FrameType]) -> None:
        raise Stop

    def outer() -> None:
        # The frame of the caller's caller, and the caller's own in a list: no handler gets those.
        inner(own, (own,), [sys._getframe()])

    assert not interrupts(raised(outer))


def test_an_error_of_a_patch_of_ours_that_holds_its_caller_does_not_interrupt() -> None:
    text = "import sys\ndef patch():\n    frame = sys._getframe(1)\n    raise ValueError\n"
    ours = Path(zerograd.__file__).with_name("a_patch.py")
    for file, expected in ((ours, False), (Path("of_the_program.py"), True)):
        names: dict[str, Any] = {}
        exec(compile(text, str(file), "exec"), names)
        assert interrupts(raised(names["patch"])) is expected


def test_a_frame_without_a_caller_is_no_handler() -> None:
    error = Stop()
    done: list[BaseException] = []

    def alone() -> None:
        nothing = None  # as the frame that it has not
        try:
            raise error
        except Stop as caught:
            done.append(caught)
        assert nothing is None

    import _thread
    import time

    _thread.start_new_thread(alone, ())
    end = time.monotonic() + 30
    while not done and time.monotonic() < end:
        time.sleep(0.001)
    assert done == [error]
    assert not interrupts(error)


@pytest.mark.parametrize("kind", [KeyboardInterrupt, SystemExit, GeneratorExit])
def test_what_is_no_error_interrupts(kind: type[BaseException]) -> None:
    assert interrupts(kind())


def test_a_time_limit_interrupts_and_that_of_the_system_does_not() -> None:
    assert interrupts(TimeoutError("too long"))
    assert not interrupts(TimeoutError(110, "Connection timed out"))


def test_a_block_tolerates_errors_of_its_kinds_only() -> None:
    with Tolerating(Stop, ValueError):
        raise ValueError
    with pytest.raises(KeyError), Tolerating(Stop, ValueError):
        raise KeyError
    with Tolerating(Stop):
        pass


@pytest.mark.usefixtures("handled")
def test_a_block_tolerates_no_interruption() -> None:
    signal.signal(signal.SIGUSR1, handler)
    with pytest.raises(Stop), Tolerating(Stop):
        work()
