"""Several processes under gloo. Every scenario runs once on each rank, in one process group."""

from __future__ import annotations

import contextlib
import datetime as dt
import os
import pickle
import sys
import time
import traceback
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest

from support.warm_python import with_torch


class NotInThisTorch(Exception):
    """What a scenario needs is not in the torch that is installed; every rank raises it at the same place."""


SECONDS = 120
"""Seconds after which a rank counts as hanging."""


def work(rank: int, world: int, meeting: Path, scenarios: dict[str, Callable[[], Any]]) -> None:
    """Run the scenarios on one rank, and write what each returned or raised."""
    import torch
    import torch.distributed as dist

    torch.set_num_threads(1)
    dist.init_process_group(
        "gloo",
        init_method=(meeting / "store").as_uri(),
        rank=rank,
        world_size=world,
        timeout=dt.timedelta(seconds=20),
    )
    results: dict[str, tuple[str, Any]] = {}
    for name, scenario in scenarios.items():
        try:
            torch.manual_seed(0)
            results[name] = "returned", scenario()
            dist.barrier()
        except NotInThisTorch as reason:
            results[name] = "absent", str(reason)
        except Exception:  # noqa: BLE001, the test shows it
            results[name] = "raised", traceback.format_exc()
            break  # the ranks are not synchronised any more
    (meeting / f"{rank}.pickle").write_bytes(pickle.dumps(results))
    dist.barrier()
    dist.destroy_process_group()


def chosen(scenarios: dict[str, Callable[[], Any]]) -> dict[str, Callable[[], Any]]:
    """The scenarios that this rank was started for."""
    how, *names = sys.argv[4:] or ["but"]
    return {name: one for name, one in scenarios.items() if (name in names) == (how == "only")}


def run(
    script: Path, world: int, meeting: Path, seconds: float = SECONDS, which: Iterable[str] = ()
) -> None:
    """Start the ranks and wait. The script calls `work` with its rank and the world size."""
    ranks = []
    tests = str(Path(__file__).parents[1])
    for rank in range(world):
        with (
            (meeting / f"{rank}.txt").open("wb") as printed,
            Path(os.devnull).open("rb") as nothing,
        ):
            ranks.append(
                with_torch().start(
                    [script, str(rank), str(world), str(meeting), *which],
                    cwd=meeting,
                    env={**os.environ, "PYTHONPATH": tests},
                    streams=(nothing.fileno(), printed.fileno(), printed.fileno()),
                )
            )
    until = time.monotonic() + seconds
    for process in ranks:
        with contextlib.suppress(TimeoutError):  # it is killed then, and has no results
            process.wait(timeout=max(until - time.monotonic(), 1))


def read(meeting: Path, world: int) -> list[dict[str, tuple[str, Any]]]:
    """The results of every rank."""
    results = []
    for rank in range(world):
        written = meeting / f"{rank}.pickle"
        said = (meeting / f"{rank}.txt").read_text(errors="replace")
        assert written.exists(), f"rank {rank} of {world} ended early:\n{said}"
        results.append(pickle.loads(written.read_bytes()))
    return results


Results = list[dict[str, tuple[str, Any]]]
"""By rank and scenario: whether it returned or raised, and what."""


def results(
    config: pytest.Config,
    folders: pytest.TempPathFactory,
    script: Path,
    world: int,
    seconds: float = SECONDS,
    which: Iterable[str] = (),
) -> Results:
    """The results of every rank. Of several test workers one runs the ranks, and the others wait."""
    base = folders.getbasetemp()
    shared = base.parent if hasattr(config, "workerinput") else base
    meeting = shared / f"{script.stem}-{world}"
    done = meeting / "done"
    try:
        meeting.mkdir()
    except FileExistsError:
        until = time.monotonic() + seconds
        while not done.exists() and time.monotonic() < until:
            time.sleep(0.2)
        return read(meeting, world)
    try:
        run(script, world, meeting, seconds, which)
    finally:
        done.touch()
    return read(meeting, world)


def of(found: Results, scenario: str) -> list[Any]:
    """What a scenario returned on each rank."""
    values = []
    for rank in found:
        how, what = rank.get(scenario, ("raised", f"an earlier one failed: {list(rank)[-1]}"))
        if how == "absent":
            pytest.skip(what)
        assert how == "returned", what
        values.append(what)
    return values
