"""`zerograd.watch` itself: how it is entered and left, what a finding does, and what it leaves behind."""

from __future__ import annotations

import gc
import inspect
import threading
import traceback
import tracemalloc
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import zerograd
from support import tiers
from support.torch_state import torch_as_it_is
from support.training import assert_found, batches, loss_of, net, place, sgd
from zerograd.rules.selection import UnknownRule
from zerograd.runtime.call_sites import OURS
from zerograd.runtime.engine import Engine

HERE = str(Path(__file__).resolve())


def forget_to_clear(count: int = 4) -> None:
    model = net()
    optimizer = sgd(model)
    for x in batches(count):
        loss_of(model, x).backward()  # ZG101
        optimizer.step()


def train_rightly(count: int = 4) -> None:
    model = net()
    optimizer = sgd(model)
    for x in batches(count):
        optimizer.zero_grad()
        loss_of(model, x).backward()
        optimizer.step()


LINE = inspect.getsourcelines(forget_to_clear)[1] + 4


@pytest.fixture(autouse=True)
def torch_is_left_as_it_was() -> Any:
    before = torch_as_it_is()
    yield
    after = torch_as_it_is()
    assert len(before) == len(after)
    assert all(one is other for one, other in zip(before, after, strict=True))


def test_watching_does_change_what_these_tests_compare() -> None:
    before = torch_as_it_is()
    with zerograd.watch():
        now = torch_as_it_is()
    assert len(now) == len(before) + 2
    assert any(one is not other for one, other in zip(before, now, strict=False))


# What a finding does


def test_a_finding_is_a_warning_at_the_users_line_once() -> None:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        with zerograd.watch() as report:
            forget_to_clear()
    (one,) = caught
    assert one.category is zerograd.GradientWarning
    assert (str(Path(one.filename).resolve()), one.lineno) == (HERE, LINE)
    assert str(one.message).startswith("zerograd: ZG101 stale-gradient: backward() adds to")
    assert report.findings[0].seen == 3


def test_a_warning_made_an_error_stops_the_training() -> None:
    with pytest.raises(zerograd.GradientWarning, match="ZG101"), zerograd.watch():
        forget_to_clear()


def test_a_finding_can_be_an_error_that_stops_the_training_there() -> None:
    model = net()
    optimizer = sgd(model)
    steps = 0

    def train() -> None:
        nonlocal steps
        for x in batches():
            loss_of(model, x).backward()
            optimizer.step()
            steps += 1

    watch = zerograd.watch(on="raise")
    with pytest.raises(zerograd.GradientError, match=r"ZG101.*expected") as caught, watch as report:
        train()
    assert steps == 1
    assert caught.value.finding == report.findings[0]
    assert report.errors == []


def test_no_frame_of_ours_is_in_the_traceback_of_a_finding() -> None:
    with pytest.raises(zerograd.GradientError) as caught, zerograd.watch(on="raise"):
        forget_to_clear()
    assert not any(frame.filename.startswith(OURS) for frame in traceback.extract_tb(caught.tb))


def test_a_finding_can_be_kept_for_later() -> None:
    with zerograd.watch(on="collect") as report:
        forget_to_clear()
    (finding,) = report.findings
    assert place(finding) == ("ZG101", HERE, LINE)
    assert (finding.name, finding.level, finding.certain, finding.seen) == (
        "stale-gradient",
        "error",
        True,
        3,
    )
    assert report.exit_code == 1


def test_an_unknown_way_is_refused() -> None:
    with pytest.raises(ValueError, match="'warn', 'raise', 'collect'"):
        zerograd.watch(on="shout")


@pytest.mark.parametrize("rules", [["ZG101"], ["stale-gradient"], ["ZG1"], "ZG101", None])
def test_the_chosen_rules_find(rules: list[str] | str | None) -> None:
    with zerograd.watch(on="collect", rules=rules) as report:
        forget_to_clear()
    assert [finding.code for finding in report.findings] == ["ZG101"]


@pytest.mark.parametrize("rules", [["ZG2"], ["clip-after-step", "ZG303"]])
def test_the_rules_that_were_not_chosen_do_not(rules: list[str]) -> None:
    with zerograd.watch(on="raise", rules=rules) as report:
        forget_to_clear()
    assert report.findings == []


@pytest.mark.parametrize("rules", [["ZG999"], ["stale"], [""]])
def test_an_unknown_rule_is_refused_before_anything_happens(rules: list[str]) -> None:
    with pytest.raises(UnknownRule):
        zerograd.watch(rules=rules)
    with pytest.raises(UnknownRule):
        zerograd.allow(*rules).__enter__()


def test_a_window_shorter_than_one_is_refused() -> None:
    with pytest.raises(ValueError, match="1 backward call"), zerograd.expect_window(0):
        pass


def test_allowing_and_declaring_without_a_watch_do_nothing() -> None:
    before = torch_as_it_is()
    with zerograd.allow("stale-gradient"), zerograd.expect_window(4):
        now = torch_as_it_is()
        forget_to_clear()
    assert len(now) == len(before)
    assert all(one is other for one, other in zip(before, now, strict=True))
    with zerograd.watch(on="collect") as later:
        forget_to_clear()
        train_rightly(9)  # in windows of 1
    assert [place(finding) for finding in later.findings] == [("ZG101", HERE, LINE)]


# How it is entered and left


def test_a_function_can_be_watched_whenever_it_runs() -> None:
    @zerograd.watch(on="raise")
    def train(count: int) -> str:
        """Trains."""
        forget_to_clear(count)
        return "done"

    assert train(1) == "done"
    for _ in range(2):
        with pytest.raises(zerograd.GradientError):
            train(4)
    assert (train.__name__, train.__doc__) == ("train", "Trains.")


def test_a_watched_function_may_call_itself() -> None:
    @zerograd.watch(on="collect")
    def train(depth: int) -> None:
        train_rightly()
        if depth:
            train(depth - 1)

    train(3)
    assert (train.report.findings, train.report.errors) == ([], [])
    assert train.report.watched is not None
    assert train.report.watched.steps == 4 * 4


def test_the_report_of_a_watched_function_is_that_of_its_last_call() -> None:
    @zerograd.watch(on="collect")
    def train(count: int) -> None:
        forget_to_clear(count)

    assert train.report.findings == []
    train(4)
    first = train.report
    assert [(finding.code, finding.seen) for finding in first.findings] == [("ZG101", 3)]
    train(1)
    assert train.report.findings == []
    assert train.report.watched is not None
    assert train.report.watched.steps == 1
    assert len(first.findings) == 1


def test_the_report_of_a_watched_function_that_calls_itself_is_that_of_the_outer_call() -> None:
    @zerograd.watch(on="collect")
    def train(counts: list[int]) -> None:
        forget_to_clear(counts[0])
        if counts[1:]:
            train(counts[1:])
            assert train.report.findings == []

    train([4, 1])
    assert [(finding.code, finding.seen) for finding in train.report.findings] == [("ZG101", 3)]


def test_the_report_of_a_watched_function_is_there_after_an_error() -> None:
    @zerograd.watch(on="raise")
    def train() -> None:
        forget_to_clear(4)

    with pytest.raises(zerograd.GradientError):
        train()
    assert [finding.code for finding in train.report.findings] == ["ZG101"]


def test_a_watched_method_is_bound_to_its_object() -> None:
    class Trainer:
        steps = 3

        @zerograd.watch(on="collect")
        def train(self, more: int) -> int:
            forget_to_clear(self.steps + more)
            return self.steps

    assert Trainer().train(1) == 3
    assert [finding.seen for finding in Trainer.__dict__["train"].report.findings] == [3]


def test_it_can_be_started_and_stopped() -> None:
    watch = zerograd.watch(on="collect")
    report = watch.start()
    forget_to_clear()
    assert watch.stop() is report
    forget_to_clear()
    assert [finding.seen for finding in report.findings] == [3]


def test_stopping_what_was_never_started_does_nothing() -> None:
    watch = zerograd.watch(on="collect")
    with zerograd.watch(on="collect") as other:
        assert watch.stop() is watch.stop()
        forget_to_clear()
    assert [finding.seen for finding in other.findings] == [3]
    with watch as report:
        forget_to_clear()
    assert [finding.seen for finding in report.findings] == [3]


def test_starting_again_begins_a_new_report() -> None:
    watch = zerograd.watch(on="collect")
    first = watch.start()
    forget_to_clear()
    watch.stop()
    second = watch.start()
    train_rightly()
    watch.stop()
    assert [finding.code for finding in first.findings] == ["ZG101"]
    assert second.findings == []


def test_the_same_watch_can_be_entered_while_it_is_open() -> None:
    watch = zerograd.watch(on="collect")
    with watch as outer:
        with watch as inner:
            forget_to_clear()
        forget_to_clear()
    assert outer is inner
    assert [finding.seen for finding in outer.findings] == [6]


def test_watches_may_be_nested_and_each_hears_its_own_time() -> None:
    with zerograd.watch(on="collect") as outer:
        forget_to_clear()
        with zerograd.watch(on="collect", rules=["ZG1"]) as inner:
            forget_to_clear()
        with zerograd.watch(on="collect", rules=["ZG2"]) as deaf:
            forget_to_clear()
    assert [finding.seen for finding in outer.findings] == [9]
    assert [finding.seen for finding in inner.findings] == [3]
    assert deaf.findings == []


def test_watches_may_be_stopped_in_any_order() -> None:
    first, second = zerograd.watch(on="collect"), zerograd.watch(on="collect")
    one = first.start()
    two = second.start()
    first.stop()
    forget_to_clear()
    second.stop()
    assert one.findings == []
    assert [finding.seen for finding in two.findings] == [3]


def test_an_error_of_the_user_passes_through_and_restores_torch() -> None:
    def deep() -> None:
        x: Any = torch.ones(2, requires_grad=True)
        x.register_hook(refuse)
        x.sum().backward()

    def refuse(grad: torch.Tensor) -> None:
        raise KeyError("mine")

    before = torch_as_it_is()
    with pytest.raises(KeyError, match="mine") as caught, zerograd.watch():
        deep()
    assert all(one is other for one, other in zip(before, torch_as_it_is(), strict=True))
    trace = traceback.extract_tb(caught.tb)
    assert not any(frame.filename.startswith(OURS) for frame in trace)
    assert "deep" in {frame.name for frame in trace}


def test_a_run_that_was_broken_off_is_not_blamed_for_what_it_left_open() -> None:
    model = net()
    optimizer = sgd(model)

    def train() -> None:
        for number, x in enumerate(batches(18), 1):
            (loss_of(model, x) / 4).backward()
            if number % 4 == 0:
                optimizer.step()
                optimizer.zero_grad()
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt), zerograd.watch(on="collect") as report:
        train()
    assert report.findings == []


def test_threads_may_watch_at_the_same_time() -> None:
    barrier = threading.Barrier(2)
    reports = []

    def work() -> None:
        barrier.wait()
        for _ in range(20):
            with zerograd.watch(on="collect") as report:
                train_rightly(2)
            reports.append(report)

    threads = [threading.Thread(target=work) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(reports) == 40
    assert [report.findings for report in reports] == [[]] * 40
    assert [report.errors for report in reports] == [[]] * 40
    assert Engine.running is None


def test_an_optimizer_that_outlives_two_watches_is_watched_in_both() -> None:
    model = net()
    optimizer = sgd(model)
    for _ in range(2):
        optimizer.zero_grad()
        with zerograd.watch(on="collect") as report:
            for x in batches():
                loss_of(model, x).backward()  # ZG101
                optimizer.step()
        assert_found(report, seen=5)


def test_the_report_says_what_was_watched() -> None:
    with zerograd.watch(on="collect", rules=["ZG101", "ZG106", "ZG201"]) as report:
        train_rightly(5)
        train_rightly(5)
    watched = report.watched
    assert watched is not None
    assert watched.optimizers == ("optimizer: SGD, 4 parameters", "optimizer: SGD, 4 parameters")
    assert watched.parameters == 8
    assert watched.steps == 10
    assert watched.windows == {1: 10}
    assert watched.ran == ("ZG101", "ZG106")
    assert watched.could_not == {"ZG201": "no scaler"}


# One missing clear among many


STEPS = 120
POSITIONS = [1, 2, 3, 4, 5, 64, 119]
Skip = Callable[[int], bool]


def plain(skip: Skip) -> None:
    model = net()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    for number, x in enumerate(batches(STEPS)):
        if not skip(number):
            optimizer.zero_grad()
        loss_of(model, x).backward()
        optimizer.step()


def clears_in_place(skip: Skip) -> None:
    model = net()
    optimizer = sgd(model, lr=1e-3)
    for number, x in enumerate(batches(STEPS)):
        if not skip(number):
            for param in model.parameters():
                if param.grad is not None:
                    param.grad.data.zero_()
        loss_of(model, x).backward()
        optimizer.step()


def clears_to_none(skip: Skip) -> None:
    model = net()
    optimizer = sgd(model, lr=1e-3)
    for number, x in enumerate(batches(STEPS)):
        if not skip(number):
            for param in model.parameters():
                param.grad = None
        loss_of(model, x).backward()
        optimizer.step()


def clears_the_model(skip: Skip) -> None:
    model = net()
    optimizer = sgd(model, lr=1e-3)
    for number, x in enumerate(batches(STEPS)):
        if not skip(number):
            model.zero_grad()
        loss_of(model, x).backward()
        optimizer.step()


def clears_after_the_step(skip: Skip) -> None:
    model = net()
    optimizer = sgd(model, lr=1e-3)
    for number, x in enumerate(batches(STEPS)):
        loss_of(model, x).backward()
        optimizer.step()
        if not skip(number + 1):
            optimizer.zero_grad(set_to_none=False)


def accumulates(skip: Skip) -> None:
    model = net()
    optimizer = sgd(model, lr=1e-3)
    for number in range(STEPS):
        if not skip(number):
            optimizer.zero_grad()
        for x in batches(3):
            (loss_of(model, x) / 3).backward()
        optimizer.step()


def adversaries(skip_judge: Skip, skip_generator: Skip, *, by_hand: bool = False) -> None:
    generator, judge = net(), nn.Linear(2, 1)
    opt_g, opt_d = sgd(generator, lr=1e-3), sgd(judge, lr=1e-3)

    def clear(model: Any, optimizer: Any) -> None:
        if not by_hand:
            optimizer.zero_grad()
        for param in model.parameters():
            if by_hand and param.grad is not None:
                param.grad.zero_()

    for number, x in enumerate(batches(STEPS)):
        fake = generator(x)
        if not skip_judge(number):
            clear(judge, opt_d)
        (judge(fake.detach()).pow(2).mean() + judge(x[:, :2]).mean()).backward()
        opt_d.step()
        if not skip_generator(number):
            clear(generator, opt_g)
        (-judge(fake).mean()).backward()
        opt_g.step()


def never(number: int) -> bool:
    return False


LOOPS: dict[str, Callable[[Skip], None]] = {
    "plain": plain,
    "in place": clears_in_place,
    "to None": clears_to_none,
    "model.zero_grad": clears_the_model,
    "after the step": clears_after_the_step,
    "accumulation": accumulates,
    "GAN, discriminator": lambda skip: adversaries(skip, never),
    "GAN, generator": lambda skip: adversaries(never, skip),
    "GAN by hand, discriminator": lambda skip: adversaries(skip, never, by_hand=True),
    "GAN by hand, generator": lambda skip: adversaries(never, skip, by_hand=True),
}


@pytest.mark.parametrize("loop", LOOPS)
def test_a_loop_that_always_clears_is_silent(loop: str) -> None:
    with zerograd.watch(on="collect") as report:
        LOOPS[loop](never)
    assert report.findings == []
    assert report.errors == []


@pytest.mark.parametrize("position", tiers.sample(POSITIONS, [1, 64]))
@pytest.mark.parametrize("loop", LOOPS)
def test_one_missing_clear_among_many_is_found_where_it_is(loop: str, position: int) -> None:
    with zerograd.watch(on="collect") as report:
        LOOPS[loop](lambda number: number == position)
    assert report.errors == []
    (finding,) = report.findings
    assert (finding.code, finding.seen) == ("ZG101", 1)
    assert finding.site.iteration == position + 1
    assert "expected |grad|" in finding.message


# A long run


@pytest.mark.parametrize("steps", tiers.sample([20_000, 3_000], [3_000]))
def test_a_long_run_does_not_grow(steps: int) -> None:
    weight: Any = nn.Parameter(torch.ones(2))
    optimizer = torch.optim.SGD([weight], lr=1e-6, foreach=False)

    def train(count: int) -> None:
        for number in range(count):
            if number % 3:
                optimizer.zero_grad()
            elif number % 2:
                weight.grad = None
            weight.sum().backward()
            optimizer.step()

    def sizes() -> tuple[int, int]:
        gc.collect()
        ours = tracemalloc.take_snapshot().filter_traces([tracemalloc.Filter(True, f"{OURS}*")])
        engine = Engine.running
        assert engine is not None
        watcher, lanes = engine.watcher, engine.watcher.lanes
        parts = [watcher, *vars(watcher).values(), engine.judge, lanes.subjects, lanes.here.lane]
        tables = [
            getattr(part, name)
            for part in parts
            for name in (*getattr(part, "__dict__", ()), *getattr(part, "__slots__", ()))
        ]
        counted = sum(len(one) for one in tables if isinstance(one, (dict, list, set)))
        assert len(tables) > 50
        return sum(trace.size for trace in ours.traces), counted

    with zerograd.watch(on="collect"):
        tracemalloc.start()
        try:
            train(1000)
            before = sizes()
            train(steps - 1000)
            after = sizes()
        finally:
            tracemalloc.stop()
    # Up to 2.9, torch keeps up to 20 KB of what its own _foreach_norm returns, in a bare loop, too.
    own = 20_000 if tuple(map(int, torch.__version__.split(".")[:2])) < (2, 10) else 0
    assert after[0] <= before[0] + 4096 + own
    assert after[1] <= before[1]


def test_many_optimizers_one_after_the_other_leave_nothing_behind() -> None:
    with zerograd.watch(on="collect"):
        for _ in range(30):
            train_rightly(2)
        engine = Engine.running
        assert engine is not None
        gc.collect()
        subjects = engine.watcher.lanes.subjects
        assert (subjects.all, subjects._known, subjects._by_params, subjects._owned) == (
            [],
            {},
            {},
            set(),
        )
        assert set(engine.judge._tracks) == set()


def test_a_finding_is_logged_once_with_itself(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level("INFO", logger="zerograd"), zerograd.watch(on="collect") as report:
        model = net()
        optimizer = sgd(model)
        for x in batches():
            loss_of(model, x).backward()
            optimizer.step()
    (record,) = caplog.records
    assert (record.name, record.levelname) == ("zerograd", "WARNING")
    assert vars(record)["finding"].place == report.findings[0].place
    assert "ZG101 stale-gradient" in record.getMessage()
