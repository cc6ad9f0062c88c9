"""Measures what `pytest --zerograd` adds to small training tests, in CPU time.

One run of pytest has 600 tests: 200 that are watched, and twice 200 that are equal but marked as not to be
watched. They take turns, some tests at a time, so that all three meet the same machine, and torch stays patched
from one watched test to the next as in a session that watches all of its tests. The second 200 without a watch are
the control: their difference from the first 200 is the measurement error.

Each test trains a small net for a few dozen steps, as a test does that wants to see a loss fall.
"""

from __future__ import annotations

import argparse
import re
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import outcome

GOAL = 0.02
METHOD = (
    "One run of pytest has each test three times: watched, and twice marked as not to be watched. They take turns, "
    "nine tests at a time. "
    "The second of those is the control. Medians of processor time."
)
TESTS = """\
import pytest
import torch
from torch import nn

torch.set_num_threads(1)


def mlp():
    model = nn.Sequential(nn.Linear(64, 256), nn.ReLU(), nn.Linear(256, 256), nn.ReLU(), nn.Linear(256, 1))
    return model, torch.randn(128, 64), 40


def convolutions():
    model = nn.Sequential(
        nn.Conv2d(1, 8, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(8, 16, 3, padding=1), nn.ReLU(), nn.Flatten(), nn.Linear(16 * 64, 1),
    )
    return model, torch.randn(32, 1, 16, 16), 30


def attention():
    layer = nn.TransformerEncoderLayer(64, 4, 128, dropout=0.0, batch_first=True)
    return nn.Sequential(layer, nn.Flatten(), nn.Linear(64 * 16, 1)), torch.randn(16, 16, 64), 20


@pytest.mark.parametrize("made", [mlp, convolutions, attention])
@pytest.mark.parametrize("number", range(67))
@pytest.mark.parametrize("kind", ["bare", "control", "watched"])
def test_loss_falls(kind, number, made):
    torch.manual_seed(number)
    model, x, steps = made()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    losses = []
    for _ in range(steps):
        optimizer.zero_grad()
        loss = (model(x) - 1).square().mean()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert losses[-1] < losses[0]
"""
CONFTEST = """\
import collections
import random
import time

import pytest

spent = collections.defaultdict(list)


def pytest_collection_modifyitems(items):
    for item in items:
        if item.callspec.params["kind"] != "watched":
            item.add_marker(pytest.mark.zerograd(allow=["ALL"]))
    turns = collections.defaultdict(lambda: collections.defaultdict(list))
    for item in items:
        turns[item.callspec.params["number"] // 3][item.callspec.params["kind"]].append(item)
    order = random.Random(0)
    items[:] = []
    for kinds in turns.values():
        for kind in order.sample(sorted(kinds), len(kinds)):
            items += kinds[kind]


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_protocol(item):
    began = time.process_time()
    result = yield
    spent[item.callspec.params["made"].__name__, item.callspec.params["kind"]].append(
        time.process_time() - began
    )
    return result


def pytest_sessionfinish():
    for (made, kind), times in spent.items():
        # The first tests of a kind import what torch needs for it.
        for one in times[3:]:
            print(f"\\nspent {made} {kind} {one:.9f}", end="")
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=1, help="how often pytest is run")
    outcome.add_argument(parser)
    options = parser.parse_args()
    spent: dict[tuple[str, str], list[float]] = {}
    for _ in range(options.rounds):
        for made, kind, time in re.findall(r"spent (\w+) (\w+) ([\d.]+)", _run()):
            spent.setdefault((made, kind), []).append(float(time))
    nets = sorted({made for made, _ in spent})
    rows: list[outcome.Row] = []
    total = dict.fromkeys(("bare", "control", "watched"), 0.0)
    for made in nets:
        middle = {kind: statistics.median(spent[made, kind]) for kind in total}
        for kind, time in middle.items():
            total[kind] += time
        _print(made, middle)
        rows += _rows(made, middle)
    _print("all", total)
    rows += _rows("all", total)
    if options.result:
        title = "Tests under pytest --zerograd"
        outcome.write(options.result, title=title, method=METHOD, rows=rows)


def _rows(name: str, times: dict[str, float]) -> Iterator[outcome.Row]:
    for kind, goal in (("watched", 1 + GOAL), ("control", None)):
        yield outcome.Row(f"{name}: {kind}, to bare", times[kind] / times["bare"], "×", goal=goal)
    yield outcome.Row(f"{name}: a bare test", 1e3 * times["bare"], "ms")


def _print(name: str, times: dict[str, float]) -> None:
    bare = times["bare"]
    print(
        f"{name:12}  a test {1e3 * bare:7.2f} ms  control {100 * (times['control'] / bare - 1):+6.2f} %"
        f"  watched {100 * (times['watched'] / bare - 1):+6.2f} %"
    )


def _run() -> str:
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "test_small.py").write_text(TESTS, encoding="utf-8")
        Path(folder, "conftest.py").write_text(CONFTEST, encoding="utf-8")
        words = [
            "-m",
            "pytest",
            "--zerograd",
            "-q",
            "-s",
            "-p",
            "no:cacheprovider",
            "--rootdir",
            folder,
        ]
        done = subprocess.run(
            [sys.executable, *words, folder],
            cwd=folder,
            capture_output=True,
            text=True,
            check=False,
        )
    if done.returncode:
        sys.exit(done.stdout[-3000:] + done.stderr)
    return done.stdout


if __name__ == "__main__":
    main()
