"""Threads that train at the same time."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pytest
from torch.nn.utils import clip_grad_norm_

import zerograd
from support.clears import none_by_hand, zeros_by_hand
from support.training import assert_found, batches, either_way, loss_of, net, sgd


def in_threads(work: Callable[[int], None], count: int = 4) -> None:
    raised: list[Exception] = []

    def guarded(number: int) -> None:
        try:
            work(number)
        except Exception as error:  # noqa: BLE001 - it is raised again where threads are joined
            raised.append(error)

    threads = [threading.Thread(target=guarded, args=(number,)) for number in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert raised == []


@either_way
def test_threads_with_a_model_each_are_watched(right: bool) -> None:
    models = [net(seed=number) for number in range(4)]

    def work(number: int) -> None:
        model = models[number]
        optimizer = sgd(model)
        for count, x in enumerate(batches(30)):
            if right or number != 2 or count != 20:
                optimizer.zero_grad()
            loss_of(model, x).backward()  # ZG101
            optimizer.step()

    with zerograd.watch(on="collect") as report:
        in_threads(work)
    assert_found(report, right=right, seen=1)
    assert report.watched is not None
    assert report.watched.steps == 120


@pytest.mark.parametrize("own", [False, True], ids=["one optimizer", "an optimizer each"])
@pytest.mark.parametrize("clear", [none_by_hand, zeros_by_hand, None])
def test_threads_that_share_one_model_are_not_guessed_at(
    clear: Callable[[Any], None] | None, own: bool
) -> None:
    """As in Hogwild; the lock keeps torch itself from being read while it writes."""
    model = net()
    shared = sgd(model)
    lock = threading.Lock()

    def work(number: int) -> None:
        optimizer = sgd(model) if own else shared
        for x in batches(30):
            with lock:
                clear(model) if clear else optimizer.zero_grad()
            with lock:
                loss_of(model, x).backward()
            with lock:
                optimizer.step()

    with zerograd.watch(on="collect") as report:
        in_threads(work)
    assert_found(report, right=True)


@pytest.mark.parametrize("act", ["zero_grad", "module.zero_grad", "clip"])
def test_what_another_thread_clears_or_clips_is_not_guessed_at(act: str) -> None:
    """In the middle of a round of a loop that the first thread has repeated for long."""
    model = net()
    optimizer = sgd(model)
    acts: dict[str, Callable[[], object]] = {
        "zero_grad": optimizer.zero_grad,
        "module.zero_grad": model.zero_grad,
        "clip": lambda: clip_grad_norm_(model.parameters(), 1.0),
    }

    def elsewhere() -> None:
        thread = threading.Thread(target=acts[act])
        thread.start()
        thread.join()

    with zerograd.watch(on="collect") as report:
        for number, x in enumerate(batches(16)):
            optimizer.zero_grad()
            if number == 13:
                elsewhere()
            loss_of(model, x).backward()
            if number == 10:
                elsewhere()
            optimizer.step()
            if number == 12:
                elsewhere()
    assert_found(report, right=True)
    assert report.watched is not None
    assert report.watched.steps == 16


def test_a_thread_may_take_over_from_one_that_has_ended() -> None:
    model = net()
    optimizer = sgd(model)

    def work(number: int) -> None:
        for x in batches(5):
            loss_of(model, x).backward()  # ZG101
            optimizer.step()
        optimizer.zero_grad()

    with zerograd.watch(on="collect") as report:
        for _ in range(3):
            in_threads(work, count=1)
    assert_found(report)
    assert (report.findings[0].seen or 0) >= 8
