"""The search for the objects of the program, while its threads go on."""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator

import pytest

from zerograd.runtime.live_objects import instances


class Wanted:
    """What is searched for."""


class Derived(Wanted):
    """Of a type that is wanted, too."""


@pytest.fixture
def eager_threads() -> Iterator[None]:
    """Threads take turns as often as they can."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    yield
    sys.setswitchinterval(before)


def test_every_object_of_a_wanted_type_is_found() -> None:
    made = [Wanted(), Derived()]
    found = instances(lambda kind: issubclass(kind, Wanted))
    assert sorted(map(id, found)) == sorted(map(id, made))


@pytest.mark.usefixtures("eager_threads")
def test_a_search_does_not_disturb_a_thread_that_builds_tuples() -> None:
    """CPython raises SystemError if something else refers to a tuple that it resizes."""
    errors: list[SystemError] = []
    built, ended = threading.Event(), threading.Event()

    def build() -> None:
        while not ended.is_set():
            try:
                tuple(number for number in range(50))
            except SystemError as error:
                errors.append(error)
            built.set()

    thread = threading.Thread(target=build)
    thread.start()
    try:
        assert built.wait(60)
        for _ in range(10):
            instances(lambda kind: issubclass(kind, Wanted))
    finally:
        ended.set()
        thread.join()
    assert not errors
