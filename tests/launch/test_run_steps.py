"""`zerograd run --steps N`: N steps are watched and reported; the program goes on, or ends with `--stop`."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from support import tiers
from support.command import write, zerograd

PROGRAM = """\
import sys
import torch
from torch.autograd import graph

model = torch.nn.Linear(1, 1)
optimizer = torch.optim.SGD(model.parameters(), 0.1)
for step in range(30):
    if step < 20 or "right" in sys.argv:
        optimizer.zero_grad()
    model(torch.ones(1)).sum().backward()
    optimizer.step()
print(step + 1, "steps,", "watched" if "patches" in graph._engine_run_backward.__code__.co_filename else "unwatched")
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return write(tmp_path, {"train.py": PROGRAM})


def test_after_so_many_steps_the_program_goes_on_unwatched(folder: Path) -> None:
    done = zerograd("run", "--steps", "12", "train.py", cwd=folder)
    assert (done.returncode, done.stdout) == (0, "30 steps, unwatched\n")
    assert "watched 12 steps: nothing to report\n" in done.stderr
    assert done.stderr.endswith("zerograd: train.py goes on unwatched, after 12 steps\n")


def test_what_was_found_until_then_decides_about_the_exit_code(folder: Path) -> None:
    output = ("--format", "json", "--output", "found.json")
    done = zerograd("run", "--steps", "25", *output, "train.py", cwd=folder)
    assert (done.returncode, done.stdout) == (1, "30 steps, unwatched\n")
    (one,) = json.loads((folder / "found.json").read_text(encoding="utf-8"))["findings"]
    assert (one["code"], one["seen"]) == ("ZG101", 5)


def test_with_stop_the_program_ends_there(folder: Path) -> None:
    done = zerograd("run", "--steps", "12", "--stop", "train.py", cwd=folder)
    assert (done.returncode, done.stdout) == (0, "")
    assert done.stderr.endswith("watched 12 steps: nothing to report\n")


def test_a_shorter_program_is_watched_to_its_end(folder: Path) -> None:
    done = zerograd("run", "--steps", "99", "train.py", "right", cwd=folder)
    assert (done.returncode, done.stdout) == (0, "30 steps, watched\n")
    assert "watched 30 steps: nothing to report" in done.stderr


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--steps", "0"], "'0' is not a number of steps"),
        (["--stop"], "--stop ends the script after --steps N"),
    ],
)
def test_wrong_numbers_of_steps_are_refused(folder: Path, words: list[str], message: str) -> None:
    done = zerograd("run", *words, "train.py", cwd=folder)
    assert done.returncode == 2
    assert message in done.stderr


RANKS = """\
import sys
import torch, torch.distributed as dist
from torch.autograd import graph
from torch.nn.parallel import DistributedDataParallel

torch.set_num_threads(1)
dist.init_process_group("gloo")
rank = dist.get_rank()
model = DistributedDataParallel(torch.nn.Linear(3, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for step in range(16):
    if step < 10:
        optimizer.zero_grad()
    model(torch.ones(2, 3)).sum().backward()
    optimizer.step()
watched = "patches" in graph._engine_run_backward.__code__.co_filename
dist.destroy_process_group()
sys.stdout.write(f"rank {rank}: {step + 1} steps, {'watched' if watched else 'unwatched'}\\n")
"""


@tiers.long
@pytest.mark.parametrize(
    ("words", "code", "printed", "said"),
    [
        (
            ["--steps", "13"],
            1,
            ["rank 0: 16 steps, unwatched", "rank 1: 16 steps, unwatched"],
            "watched 13 steps on 2 ranks: 1 error",
        ),
        (["--steps", "8", "--stop"], 0, [], "watched 8 steps on 2 ranks: nothing to report"),
    ],
    ids=["goes on", "stops"],
)
def test_each_rank_is_watched_for_so_many_steps(
    tmp_path: Path, words: list[str], code: int, printed: list[str], said: str
) -> None:
    folder = write(tmp_path, {"train.py": RANKS})
    ranks = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2"]
    done = zerograd("run", *words, *ranks, "train.py", cwd=folder)
    assert done.returncode == code, done.stderr
    assert sorted(done.stdout.splitlines()) == printed
    assert said in done.stderr
