"""`zerograd run --steps N`: N steps are watched and reported; the program goes on, or ends with `--stop`."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

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
