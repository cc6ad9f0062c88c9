"""Measures the cost of watching a run in three ways, on nets from tiny to ten million numbers.

Self time: clocks around all patches of zerograd, minus clocks around torch's own work inside them,
minus the time that the same clocks show without a watch. This measure is precise, because it is not
the difference of two long times.

Side by side: blocks of bare and of watched steps in a new order each round, with other tools, and with
bare blocks as a control: the difference of the control from 1 is the measurement error of this
machine. Tools start, warm up and stop outside the measured time.

Growth: the memory at the end of a long run, minus the memory after its first steps.
"""

from __future__ import annotations

import argparse
import contextlib
import functools
import gc
import importlib
import json
import os
import platform
import random
import statistics
import sys
import time
import tracemalloc
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import torch

import loops
import outcome
import zerograd
from corpus import progress
from loops import CLEARS, IN_PLACE, LOOPS, ZERO_GRAD, Loop
from zerograd.runtime import gradient_probe, looks, orphans, patches

WARM_UP = 12
"""The number of steps before the measurement: zerograd learns the usual sequence in them."""
LEARNS = ("zerograd", "torch-audit, each step", "torch-audit, as it comes", "guardtower.monitor")
"""The tools that learn or allocate in their first steps. Before a block of others, two steps are enough."""
BLOCK = 0.25
"""The minimum duration of a block of steps, in seconds."""
LONG = 300
"""Milliseconds of a step. The time of zerograd in it is no longer than in others, and half as many show it."""
MEGABYTE = 1e6
METHOD = (
    "One thread. Shares are self time: clocks around the patches of zerograd, minus torch's own work inside "
    "them. Ratios are blocks of steps in a new order each round, with bare blocks as the control; the spread "
    "is that of the middle half of the rounds."
)
LONGEST = ("10M transformer", "GAN")
"""The loops with the longest steps."""
SHORT = (
    "Side by side are the loops with short steps that clear with zero_grad(); the others need minutes, and "
    "`make bench-full` measures them."
)

Patch = Callable[[Any], Any]
Tool = Callable[[Loop], AbstractContextManager[object]]


@dataclass
class Row:
    """One loop under one tool."""

    loop: str
    clear: str
    tool: str
    ratio: float
    """The median over the rounds of its time, relative to the bare blocks."""
    low: float
    high: float
    """The quartiles."""


@dataclass
class Own:
    """The time of zerograd itself in the steps of one loop."""

    loop: str
    clear: str
    size: str
    step: float
    """Milliseconds of a bare step."""
    usual: float
    """Microseconds of zerograd in a step, the median."""
    walk: float
    """Additional microseconds in the one step of 256 that walks the whole graph."""
    thorough: int
    """How often zerograd had to register hooks to see what a backward reaches."""
    limit: float | None

    @property
    def all(self) -> float:
        """Microseconds per step, with its share of the graph walk."""
        return self.usual + self.walk / orphans.EVERY

    @property
    def share(self) -> float:
        """The percentage of a bare step."""
        return self.all / self.step / 10

    @property
    def met(self) -> bool:
        """Whether the share is below its limit."""
        return self.limit is None or self.share < self.limit


@dataclass
class Growth:
    """The growth of memory in a long run after its warm-up, in MB."""

    steps: int
    resident: float
    python: float
    limit: float = 1.0

    @property
    def met(self) -> bool:
        """Whether memory does not grow."""
        return max(self.resident, self.python) < self.limit


@dataclass
class Result:
    """All measurements."""

    own: list[Own] = field(default_factory=list)
    rows: list[Row] = field(default_factory=list)
    missing: list[str] = field(default_factory=list)
    growth: Growth | None = None

    @property
    def met(self) -> bool:
        """Whether every goal is met."""
        return all(own.met for own in self.own) and (self.growth is None or self.growth.met)


def main() -> int:
    """Measure, print the tables, and exit with 1 if a goal is missed."""
    options = _options()
    torch.set_num_threads(options.threads)
    torch.manual_seed(0)
    warnings.simplefilter("ignore")
    print(
        f"torch {torch.__version__}, {options.threads} thread{'s' * (options.threads > 1)}, "
        f"Python {platform.python_version()}, {os.cpu_count()} CPUs\n"
    )
    result = Result()
    result.growth = growth(options.growth or (10_000 if options.quick else 100_000))
    chosen = ("MLP", "transformer") if options.quick else tuple(LOOPS)
    brief = options.quick or options.short
    steps = options.steps or (16 if brief else 64)
    for name, clear, make, limit in _loops(chosen):
        result.own.append(own_time(name, clear, make(clear), steps, limit))
    show_own(result.own)
    tools = _tools(result)
    rounds = options.rounds or (5 if brief else 15)
    for name, clear, make, _ in _loops(chosen):
        others = tools if clear == ZERO_GRAD else {}
        if not brief or (clear == ZERO_GRAD and name not in LONGEST):
            few = max(5, rounds // 3) if name == "GAN" else rounds  # its steps are the longest
            result.rows += side_by_side(name, clear, make(clear), others, few)
    show_rows(result.rows)
    for line in result.missing:
        print(line)
    show_growth(result.growth)
    if options.json:
        printed = {**asdict(result), "share": {f"{o.loop}, {o.clear}": o.share for o in result.own}}
        options.json.write_text(json.dumps(printed, indent=2) + "\n", encoding="utf-8")
    if options.result:
        title = "What watching costs"
        notes = [SHORT] if options.short else []
        found = list(_measured(result))
        outcome.write(options.result, title=title, method=METHOD, rows=found, notes=notes)
    return int(not result.met)


def _measured(result: Result) -> Iterator[outcome.Row]:
    """The values of the page of results."""
    for own in result.own:
        name = f"{own.loop}, {own.clear}"
        yield outcome.Row(f"{name}: share of a step", own.share, "%", goal=own.limit)
        yield outcome.Row(f"{name}: zerograd in a step", own.all, "µs")
        yield outcome.Row(f"{name}: a bare step", own.step, "ms")
    for row in result.rows:
        name = f"{row.loop}, {row.clear}: {row.tool}, to bare"
        yield outcome.Row(name, row.ratio, "×", row.low, row.high)
    if result.growth is not None:
        name = f"growth over {result.growth.steps:,} steps"
        yield outcome.Row(f"{name}, resident", result.growth.resident, "MB", goal=1)
        yield outcome.Row(f"{name}, of Python's", result.growth.python, "MB", goal=1)


def _loops(chosen: tuple[str, ...]) -> Iterator[tuple[str, str, loops.Make, float | None]]:
    """Each loop, and the percentage of a step that zerograd may use."""
    for name in chosen:
        for clear in CLEARS:
            limit = None
            if clear == ZERO_GRAD:
                limit = 3.0 if name == "MLP" else 0.2
            elif clear == IN_PLACE and name == "10M transformer":
                limit = 1.0
            yield name, clear, LOOPS[name], limit
    yield "GAN", ZERO_GRAD, loops.gan, 0.2


# Self time


class Clocks:
    """Clocks outside and inside zerograd's patches of torch."""

    def __init__(self) -> None:
        self.spent = 0

    def outside(self, call: Any) -> Any:
        """Make a call whose time counts."""

        def timed(*args: Any, **kwargs: Any) -> Any:
            began = time.perf_counter_ns()
            try:
                return call(*args, **kwargs)
            finally:
                self.spent += time.perf_counter_ns() - began

        return _hidden(call, timed)

    def inside(self, call: Any) -> Any:
        """Make a call whose time does not count."""

        def timed(*args: Any, **kwargs: Any) -> Any:
            began = time.perf_counter_ns()
            try:
                return call(*args, **kwargs)
            finally:
                self.spent -= time.perf_counter_ns() - began

        return _hidden(call, timed)

    @contextmanager
    def around(self, between: AbstractContextManager[object]) -> Iterator[None]:
        """Put the clocks on both sides of the patches that `between` makes."""
        with ExitStack() as stack:
            for place in _places():
                stack.enter_context(place(self.inside))
            # The clock adds a frame to the way to the user's code, which must not take longer.
            for name in ("ABOVE_TORCH", "ABOVE_PATCH"):
                stack.enter_context(_patched(patches, name, lambda far: far + 1))
            stack.enter_context(between)
            for place in _places():
                stack.enter_context(place(self.outside))
            for table in _step_hooks():
                for key, hook in table.items():
                    table[key] = self.outside(hook)
            yield


def own_time(name: str, clear: str, loop: Loop, steps: int, limit: float | None) -> Own:
    """The time that zerograd uses in the steps of a loop."""
    progress("self time", 0, 1, f"{name}, {clear}")
    clocks = Clocks()
    with clocks.around(_idle_hooks()):
        bare, _ = _timed(loop, clocks, 3)
        if bare > LONG:
            steps = max(8, steps // 2)
        steps = max(steps, round(1000 / bare))  # at least a second, if steps are short
        _, idle = _timed(loop, clocks, steps)
    with clocks.around(zerograd.watch(on="collect")):
        _run(loop, WARM_UP)
        with _counted() as thorough:
            bare, usual = _timed(loop, clocks, steps)
    # Another watch: the first one has set when it walks next.
    with _always_walking(), clocks.around(zerograd.watch(on="collect")):
        _run(loop, WARM_UP)
        _, walking = _timed(loop, clocks, 5)
    walk = max(0.0, walking - usual) / (3 if name == "GAN" else 1)
    usual = max(0.0, usual - idle)
    progress("self time", 1, 1, f"{name}, {clear}")
    return Own(name, clear, loop.size, bare, usual, walk, len(thorough), limit)


def _timed(loop: Loop, clocks: Clocks, steps: int) -> tuple[float, float]:
    """Medians: milliseconds of a step, and microseconds between the clocks."""
    without, between = [], []
    for _ in range(steps):
        clocks.spent = 0
        began = time.perf_counter_ns()
        loop.step()
        whole = time.perf_counter_ns() - began
        without.append((whole - clocks.spent) / 1e6)
        between.append(clocks.spent / 1e3)
    return statistics.median(without), statistics.median(between)


def _hidden(call: Any, timed: Any) -> Any:
    """Give a function a file name that zerograd skips when it looks for user code."""
    timed.__code__ = timed.__code__.replace(co_filename="<frozen clock>")
    return functools.wraps(call)(timed)


def _places() -> list[Callable[[Patch], AbstractContextManager[None]]]:
    """The places of zerograd's patches."""
    zero_grad = torch.optim.Optimizer.zero_grad
    [cell] = [cell for cell in zero_grad.__closure__ or () if callable(cell.cell_contents)]
    return [
        lambda patch: _patched(torch.autograd.graph, "_engine_run_backward", patch),
        lambda patch: _patched(torch.autograd, "_engine_run_backward", patch),
        lambda patch: _patched(torch.nn.Module, "zero_grad", patch),
        lambda patch: _patched(cell, "cell_contents", patch),
    ]


@contextmanager
def _patched(owner: Any, name: str, patch: Patch) -> Iterator[None]:
    before = getattr(owner, name)
    setattr(owner, name, patch(before))
    try:
        yield
    finally:
        setattr(owner, name, before)


def _step_hooks() -> list[dict[int, Any]]:
    module = vars(importlib.import_module("torch.optim.optimizer"))
    return [module["_global_optimizer_pre_hooks"], module["_global_optimizer_post_hooks"]]


@contextmanager
def _idle_hooks() -> Iterator[None]:
    """Empty hooks at the places of zerograd's hooks."""
    module = importlib.import_module("torch.optim.optimizer")
    before = module.register_optimizer_step_pre_hook(lambda *_: None)
    after = module.register_optimizer_step_post_hook(lambda *_: None)
    try:
        yield
    finally:
        before.remove()
        after.remove()


@contextmanager
def _counted() -> Iterator[list[None]]:
    """One entry for each time that hooks are registered on parameters."""
    calls: list[None] = []

    class Counted(looks.GradientHooks):
        def __init__(self, params: Sequence[torch.Tensor], heard: Callable[..., Any]) -> None:
            calls.append(None)
            super().__init__(params, heard)

    with _patched(gradient_probe, "GradientHooks", lambda _: Counted):
        yield calls


def _always_walking() -> AbstractContextManager[None]:
    """Walk the graph at every backward."""
    return _patched(orphans.Orphans, "next", lambda _: lambda *taken: taken[-1] + 1)


# Side by side


def side_by_side(
    name: str, clear: str, loop: Loop, others: dict[str, Tool], rounds: int
) -> list[Row]:
    """Blocks of steps with each tool in turn, each relative to the bare block of its round."""
    tools: dict[str, Tool] = {"bare": _bare, "bare again": _bare, "zerograd": _watched, **others}
    _run(loop, WARM_UP)
    steps = max(2, round(BLOCK / _seconds(loop, 3) * 3))
    ratios: dict[str, list[float]] = {tool: [] for tool in tools if tool != "bare"}
    order = random.Random(0)
    for number in range(1, rounds + 1):
        names = list(tools)
        order.shuffle(names)
        taken = {}
        for tool in names:
            with tools[tool](loop):
                _run(loop, WARM_UP if tool in LEARNS else 2)
                taken[tool] = _seconds(loop, steps)
        for tool, found in ratios.items():
            found.append(taken[tool] / taken["bare"])
        progress("side by side", number, rounds, f"{name}, {clear}")
    return [_row(name, clear, tool, found) for tool, found in ratios.items()]


def _row(name: str, clear: str, tool: str, found: list[float]) -> Row:
    low, middle, high = statistics.quantiles(found, n=4, method="inclusive")
    return Row(name, clear, tool, middle, low, high)


def _seconds(loop: Loop, steps: int) -> float:
    """Processor time: other programs disturb it less than wall time."""
    began = time.process_time()
    _run(loop, steps)
    return time.process_time() - began


def _run(loop: Loop, steps: int) -> None:
    for _ in range(steps):
        loop.step()


def _bare(loop: Loop) -> AbstractContextManager[object]:
    return contextlib.nullcontext()


def _watched(loop: Loop) -> AbstractContextManager[object]:
    return zerograd.watch(on="collect")


def _tools(result: Result) -> dict[str, Tool]:
    """The other tools. The result names those that are not installed."""
    tools: dict[str, Tool] = {"set_detect_anomaly": _anomaly}
    try:
        audit = importlib.import_module("torch_audit")
        tools["torch-audit, each step"] = lambda loop: _audited(audit, loop, 1)
        tools["torch-audit, as it comes"] = lambda loop: _audited(audit, loop, 1000)
    except ImportError:
        result.missing.append(
            "torch-audit is missing: pip install --no-deps -r requirements/bench.txt"
        )
    try:
        guardtower = importlib.import_module("guardtower")
        tools["guardtower.monitor"] = lambda loop: _monitored(guardtower, loop)
    except ImportError:
        result.missing.append(
            "guardtower is missing: pip install --no-deps -r requirements/bench.txt"
        )
    return tools


def _anomaly(loop: Loop) -> AbstractContextManager[object]:
    return torch.autograd.set_detect_anomaly(True)


@contextmanager
def _audited(module: Any, loop: Loop, every: int) -> Iterator[None]:
    auditors = [
        module.autopatch(net, optimizer=optimizer, every_n_steps=every, fail_level="FATAL")
        for net, optimizer in loop.nets
    ]
    try:
        yield
    finally:
        for auditor in auditors:
            auditor.unpatch()


@contextmanager
def _monitored(module: Any, loop: Loop) -> Iterator[None]:
    with ExitStack() as stack:
        for net, _ in loop.nets:
            stack.enter_context(module.monitor(net, on_nonfinite="warn"))
        yield


# Growth


def growth(steps: int) -> Growth:
    """The growth of memory in a watched run after its first tenth."""
    loop = loops.mlp(ZERO_GRAD)
    warm_up = steps // 10
    with zerograd.watch(on="collect"):
        tracemalloc.start()
        _run(loop, warm_up)
        resident, python = _held()
        for tenth in range(1, 10):
            _run(loop, warm_up)
            progress("growth", tenth, 9, f"{steps:,} steps")
        resident_after, python_after = _held()
        tracemalloc.stop()
    return Growth(steps, (resident_after - resident) / MEGABYTE, (python_after - python) / MEGABYTE)


def _held() -> tuple[int, int]:
    gc.collect()
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE"), tracemalloc.get_traced_memory()[0]


# Tables


def show_own(found: list[Own]) -> None:
    """Print the first table."""
    print(
        f"{'self time':18}{'clears by':14}{'trains':>20}{'bare step':>12}{'zerograd':>12}"
        f"{'share':>9}   goal"
    )
    for own in found:
        goal = "" if own.limit is None else f"< {own.limit:g} %  {'met' if own.met else 'MISSED'}"
        print(
            f"{own.loop:18}{own.clear:14}{own.size:>20}{own.step:9.2f} ms{own.all:9.1f} µs"
            f"{own.share:7.3f} %   {goal}".rstrip()
        )
        if own.thorough:
            print(f"{'':18}(registered hooks on parameters {own.thorough} times)")
    print()


def show_rows(rows: list[Row]) -> None:
    """Print the second table."""
    print(f"{'side by side':18}{'clears by':14}{'':26}{'to bare':>9}   half of the rounds")
    for row in rows:
        print(
            f"{row.loop:18}{row.clear:14}{row.tool:26}{row.ratio:7.3f} ×"
            f"   {row.low:.3f} – {row.high:.3f}"
        )
    print()


def show_growth(found: Growth) -> None:
    """Print the last lines."""
    print(
        f"growth over {found.steps:,} steps of the MLP: {found.resident:+.2f} MB resident, "
        f"{found.python:+.2f} MB of Python's"
        f"   < {found.limit:g} MB  {'met' if found.met else 'MISSED'}"
    )


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="fewer loops, steps and rounds")
    parser.add_argument("--short", action="store_true", help="all loops, but fewer steps, and fewer loops side by side")  # fmt: skip
    parser.add_argument("--steps", type=int, metavar="N", help="the number of steps with clocks")
    parser.add_argument("--rounds", type=int, metavar="N", help="the number of rounds side by side")
    parser.add_argument(
        "--growth", type=int, metavar="N", help="the number of steps in which memory must not grow"
    )
    parser.add_argument(
        "--threads", type=int, default=1, metavar="N", help="torch's threads (default: %(default)s)"
    )
    parser.add_argument(
        "--json", type=Path, metavar="FILE", help="also write the results to this file"
    )
    outcome.add_argument(parser)
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
