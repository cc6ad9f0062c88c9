"""One rank of `ranks_overhead`: bare and watched steps in turn, then steps with clocks.

Each block has its own watch or none. Its first steps are not timed, because ranks compare more often
there. The EVERY steps after them contain one check, like any EVERY later steps.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import random
import statistics
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, ExitStack
from pathlib import Path
from typing import Any
from unittest import mock

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

import ranks_training
import watch_overhead
from zerograd.processes.run_process import RunProcess
from zerograd.runtime.engine import Engine
from zerograd.runtime.ranks.replicas import EVERY, FIRST, PARTS, Replicas
from zerograd.runtime.ranks.sync import RankSync
from zerograd.runtime.watch import Watch

WARM_UP = FIRST + 2
BRIEF = 40
"""The number of steps that shows what every step does."""
SECONDS = 6.0
"""Seconds that the clocks run, at least for one check and at most for MOST_CHECKS."""
MOST_CHECKS = 10
ASKED = 1
"""The rank that reports. Unlike the first rank, it writes and reads."""
FOR_RANKS = (
    (RankSync, "forwarded"), (RankSync, "begins"), (RankSync, "annotate"), (RankSync, "stepping"),
    (RankSync, "before_step"),
    (Replicas, "step_begins"), (Replicas, "found"), (Engine, "rank_stepped"),
)  # fmt: skip
"""The functions that exist only for ranks."""

Step = Callable[[], None]
Around = Callable[[], AbstractContextManager[object]]


def main() -> None:
    """Measure. Rank ASKED writes the result."""
    options = _options()
    torch.set_num_threads(1)
    dist.init_process_group("gloo", timeout=ranks_training.TIMEOUT)
    with tempfile.TemporaryDirectory() as folder:
        company = RunProcess("ranks_timed.py", folder)
        company.met()
        found = measured(options, company)
        company.close()
    if dist.get_rank() == ASKED:
        options.out.write_text(json.dumps(found), encoding="utf-8")
    dist.destroy_process_group()


def measured(options: argparse.Namespace, company: RunProcess) -> dict[str, float]:
    """Milliseconds of a bare step, ratios to it, and microseconds of zerograd."""

    def watch(check: str = "default") -> Watch:
        return Watch("collect", process=company, check_ranks=check)

    step = _training(options)
    bare = _block(step, contextlib.nullcontext, BRIEF)
    found = {"step": 1e3 * bare}
    if options.rounds:
        found |= side_by_side(step, watch, options.rounds)
    checks = _agreed(min(SECONDS / bare / EVERY, MOST_CHECKS))
    steps = EVERY * (checks + 1)
    mine = for_ranks(step, watch, steps)
    usual, check = _of_steps(mine)
    found |= {"usual": usual, "check": check, "own": usual + check / EVERY}
    always = for_ranks(step, lambda: watch("every-step"), BRIEF)
    found["always"] = statistics.median(always[BRIEF // 4 :])
    idle = everything(step, contextlib.nullcontext, BRIEF)
    usual, check = _of_steps(everything(step, watch, steps))
    found["all"] = usual - statistics.median(idle) + check / EVERY
    return found


def _training(options: argparse.Namespace) -> Step:
    model = ranks_training.build(options.wrap, options.width, options.depth)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    torch.manual_seed(1 + dist.get_rank())
    x = torch.randn(options.batch, options.width)

    def step() -> None:
        optimizer.zero_grad()
        model(x).square().mean().backward()
        optimizer.step()

    for _ in range(BRIEF):
        step()
    return step


def _agreed(number: float) -> int:
    """The number of the first rank, at least 1. All ranks take the same number of steps."""
    agreed = torch.tensor([max(1, int(number))])
    dist.broadcast(agreed, 0)
    return int(agreed.item())


# Side by side


def side_by_side(step: Step, watch: Around, rounds: int) -> dict[str, float]:
    """Watched to bare and bare to bare, in a new order each round that is the same on all ranks."""
    ways: dict[str, Around] = {"bare": contextlib.nullcontext, "again": contextlib.nullcontext}
    ways["watched"] = watch
    times: dict[str, list[float]] = {way: [] for way in ways}
    order = random.Random(0)
    for _ in range(rounds):
        for way in order.sample(sorted(ways), len(ways)):
            times[way].append(_block(step, ways[way], EVERY))
    bare = times["bare"]
    return {
        "step": 1e3 * statistics.median(bare),
        **{
            way: statistics.median(a / b for a, b in zip(times[way], bare, strict=True))
            for way in ("watched", "again")
        },
    }


def _block(step: Step, around: Around, steps: int) -> float:
    """Seconds per step."""
    with around():
        for _ in range(WARM_UP):
            step()
        dist.barrier()
        began = time.perf_counter()
        for _ in range(steps):
            step()
        dist.barrier()
        return (time.perf_counter() - began) / steps


# Self time


def for_ranks(step: Step, watch: Around, steps: int) -> list[float]:
    """Microseconds that each step spends on ranks."""
    spent = 0

    def nothing(*args: Any, **kwargs: Any) -> None: ...

    def clocked(call: Any) -> Any:
        def timed(*args: Any, **kwargs: Any) -> Any:
            nonlocal spent
            # Code that is in no cache is slow. Warm up the clock, so that only zerograd is slow.
            nothing(*args, **kwargs)
            time.perf_counter_ns()
            began = time.perf_counter_ns()
            try:
                return call(*args, **kwargs)
            finally:
                spent += time.perf_counter_ns() - began

        return timed

    idle = clocked(nothing)
    rows, clocks = [], []
    with ExitStack() as stack:
        for owner, name in FOR_RANKS:
            stack.enter_context(_clocked(owner, name, clocked))
        stack.enter_context(watch())
        for _ in range(steps):
            spent = 0
            step()
            rows.append(spent / 1e3)
            spent = 0
            for _ in FOR_RANKS:
                idle()
            clocks.append(spent / 1e3)
    clock = statistics.median(clocks)
    return [max(0.0, row - clock) for row in rows]


def everything(step: Step, between: Around, steps: int) -> list[float]:
    """Microseconds that each step spends in zerograd."""
    clocks = watch_overhead.Clocks()
    rows = []
    with (
        _clocked(DistributedDataParallel, "forward", clocks.inside),
        clocks.around(between()),
        _clocked(DistributedDataParallel, "forward", clocks.outside),
    ):
        for _ in range(steps):
            clocks.spent = 0
            step()
            rows.append(clocks.spent / 1e3)
    return rows


def _clocked(owner: Any, name: str, clock: Any) -> AbstractContextManager[object]:
    return mock.patch.object(owner, name, clock(getattr(owner, name)))


def _of_steps(rows: Sequence[float]) -> tuple[float, float]:
    """The time of a usual step, and the extra time of a check: writing steps and reading step."""
    checks = [range(at, at + PARTS + 1) for at in range(EVERY, len(rows) - PARTS, EVERY)]
    checking = {step for check in checks for step in check}
    usual = statistics.median(
        row for step, row in enumerate(rows, start=1) if step > WARM_UP and step not in checking
    )
    each = zip(*([rows[step - 1] for step in check] for check in checks), strict=True)
    return usual, sum(max(0.0, statistics.median(found) - usual) for found in each)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--wrap", choices=("ddp", "fsdp"), default="ddp")
    parser.add_argument("--width", type=int, default=64)
    parser.add_argument("--depth", type=int, default=2)
    parser.add_argument("--batch", type=int, default=4)
    parser.add_argument("--rounds", type=int, default=0, help="rounds of bare and watched blocks")
    parser.add_argument("--out", type=Path, required=True)
    return parser.parse_args()


if __name__ == "__main__":
    main()
