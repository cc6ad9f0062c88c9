"""Times the checker, ruff and ripgrep on the pinned packages, in interleaved rounds.

Each round runs every command once, in a new order, and each ratio is the median over the rounds. If
the machine slows down, it slows both sides. ruff and ripgrep are also compared with themselves: the
difference of that ratio from 1 is the measurement error of this machine.
"""

from __future__ import annotations

import argparse
import os
import platform
import random
import statistics
import subprocess
import sys
import sysconfig
import tempfile
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import outcome
from corpus import (
    CorpusError,
    add_arguments,
    prepare,
    progress,
    python_files,
    read_list,
)
from processes import Command, CommandError, find, peak_memory, seconds

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

CONTROL = " again"
METHOD = (
    "Commands over many files in a new order each round; each ratio is the median over the rounds. "
    "ruff and ripgrep are also compared with themselves."
)
INSTALLED = {"PYTHONDONTWRITEBYTECODE": ""}
"""An install compiles modules; if zerograd runs in place, the first round compiles them."""
ONE_FILE = """\
import torch

model = torch.nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for _ in range(100):
    x = torch.randn(8, 4)
    loss = (model(x) - x.sum(1, keepdim=True)).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
"""


@dataclass(frozen=True)
class Goal:
    """A measured value and its limit. A value without a limit is only shown."""

    name: str
    value: float | None
    unit: str
    limit: float | None = None
    low: float | None = None
    high: float | None = None

    @property
    def met(self) -> bool:
        """A value that could not be measured misses its goal."""
        return self.limit is None or (self.value is not None and self.value <= self.limit)

    def __str__(self) -> str:
        digits = 2 if self.unit == "×" else 0
        shown = "—" if self.value is None else f"{self.value:.{digits}f} {self.unit}"
        limit = "" if self.limit is None else f"≤ {self.limit:g} {self.unit}"
        verdict = "" if self.limit is None else "met" if self.met else "MISSED"
        verdict = "not measured" if self.value is None else verdict
        return f"{self.name:34}{shown:>12}   {limit:10} {verdict}".rstrip()


def main() -> int:
    """Measure, print both tables, and exit with 1 if a goal is missed."""
    options = _options()
    try:
        installed = Path(sysconfig.get_paths()["purelib"])
        sources = (
            installed if options.installed else prepare(read_list(options.list), options.corpus)
        )
        with tempfile.TemporaryDirectory() as scratch:
            goals = measure(options, sources.resolve(), Path(scratch).resolve())
    except (CorpusError, CommandError, OSError) as error:
        print(f"check_speed: {error}", file=sys.stderr)
        return 2
    print("\n" + "\n".join(map(str, goals)))
    if options.result:
        rows = [
            outcome.Row(g.name, g.value, g.unit, g.low, g.high, goal=g.limit)
            for g in goals
            if g.value is not None
        ]
        what = "the installed packages" if options.installed else "the pinned packages"
        title = f"Speed of check, over {what}"
        outcome.write(options.result, title=title, method=METHOD, rows=rows)
    return int(not all(goal.met for goal in goals))


def measure(options: argparse.Namespace, sources: Path, scratch: Path) -> list[Goal]:
    """Measure everything, and print the table of wall times."""
    zerograd = options.zerograd or find("zerograd")
    if zerograd is None:
        raise CommandError("there is no `zerograd` command: install zerograd for this Python first")
    over = over_corpus(zerograd, sources, scratch)
    start = start_up(zerograd, scratch)
    _show_setting(sources, options.rounds)
    times = interleave(over, options.rounds, "rounds over the corpus")
    _show_times(times)
    started = interleave(start, 3 * options.rounds, "rounds of one file")
    progress("measuring", 1, 1, "memory")
    ratios = (
        ("cold, to ruff", "zerograd, no cache", "ruff", 1),
        ("cold, to ruff, a line a finding", "zerograd, no cache", "ruff, a line a finding", None),
        ("warm, to ripgrep", "zerograd, warm cache", "ripgrep", 3),
        ("ruff to itself (control)", "ruff" + CONTROL, "ruff", None),
        ("ripgrep to itself (control)", "ripgrep" + CONTROL, "ripgrep", None),
    )
    return [
        *(_ratio(name, times, one, other, limit) for name, one, other, limit in ratios),
        *(
            Goal(name, statistics.median(taken), "s", None, min(taken), max(taken))
            for name, taken in times.items()
            if CONTROL not in name
        ),
        Goal("files", len(list(python_files(sources))), ""),
        Goal("peak memory, no cache", peak_memory(over["zerograd, no cache"]) / 1e6, "MB", 300),
        Goal("peak memory, warm cache", peak_memory(over["zerograd, warm cache"]) / 1e6, "MB", 300),
        Goal("zerograd --help", 1000 * _median(started, "help"), "ms", 100),
        Goal("zerograd check of one file", 1000 * _median(started, "one file"), "ms", 200),
        Goal("a bare Python (floor)", 1000 * _median(started, "python"), "ms"),
    ]


def over_corpus(zerograd: str, sources: Path, scratch: Path) -> dict[str, Command]:
    """The commands that read the whole corpus, without those of missing tools."""
    commands = {}
    corpus = str(sources)
    if ripgrep := find("rg"):
        search = Command((ripgrep, "-l", "backward", "-g", "*.py", corpus), scratch)
        commands["ripgrep"] = commands["ripgrep" + CONTROL] = search
    else:
        print("ripgrep is missing: pip install -r requirements/dev.txt", file=sys.stderr)
    if ruff := find("ruff"):
        how = (ruff, "check", "--no-cache", "--isolated", "--exit-zero", corpus)
        commands["ruff"] = commands["ruff" + CONTROL] = Command(how, scratch)
        # ruff finds far more than zerograd, and excerpts take a third of its time.
        brief = (*how, "--output-format", "concise")
        commands["ruff, a line a finding"] = Command(brief, scratch)
    else:
        print("ruff is missing: pip install -r requirements/dev.txt", file=sys.stderr)
    check = (zerograd, "check", "--exit-zero", corpus)
    environment = {"XDG_CACHE_HOME": str(scratch / "cache"), **INSTALLED}
    # The corpus contains files that cannot be parsed; then the exit code must be 2.
    warm = Command(check, scratch, environment, good=(0, 2))
    commands["zerograd, no cache"] = replace(warm, words=(*check, "--no-cache"))
    commands["zerograd, warm cache"] = warm
    return commands


def start_up(zerograd: str, scratch: Path) -> dict[str, Command]:
    """The commands that mostly measure the start-up time."""
    file = scratch / "train.py"
    file.write_text(ONE_FILE, encoding="utf-8")
    return {
        "help": Command((zerograd, "--help"), scratch, INSTALLED),
        "one file": Command((zerograd, "check", "--no-cache", str(file)), scratch, INSTALLED),
        "python": Command((sys.executable, "-c", "pass"), scratch),
    }


def interleave(commands: Mapping[str, Command], rounds: int, what: str) -> dict[str, list[float]]:
    """Run each command once per round, after a first round that fills caches and does not count."""
    order = random.Random(0)
    times: dict[str, list[float]] = {name: [] for name in commands}
    for command in commands.values():
        seconds(command)
    for number in range(1, rounds + 1):
        names = list(commands)
        order.shuffle(names)
        for name in names:
            times[name].append(seconds(commands[name]))
        progress("timing", number, rounds, what)
    return times


def _median(times: Mapping[str, Sequence[float]], name: str) -> float:
    return statistics.median(times[name])


def _ratio(
    name: str, times: Mapping[str, Sequence[float]], one: str, other: str, limit: float | None
) -> Goal:
    if one not in times or other not in times:
        return Goal(name, None, "×", limit)
    ratios = [a / b for a, b in zip(times[one], times[other], strict=True)]
    return Goal(name, statistics.median(ratios), "×", limit, min(ratios), max(ratios))


def _show_setting(sources: Path, rounds: int) -> None:
    files = list(python_files(sources))
    size = sum(path.stat().st_size for path in files) / 1e6
    print(f"{len(files)} files, {size:.0f} MB, {rounds} interleaved rounds", end="")
    print(f"; Python {platform.python_version()}, {os.cpu_count()} CPUs", end="")
    for tool in ("ruff", "rg"):
        if command := find(tool):
            version = subprocess.run([command, "--version"], capture_output=True, check=False)
            print(f", {version.stdout.decode().splitlines()[0]}", end="")
    print("\n")


def _show_times(times: Mapping[str, Sequence[float]]) -> None:
    print(f"{'wall time':26}{'median':>10}{'least':>10}{'most':>10}")
    for name, taken in times.items():
        cells = (statistics.median(taken), min(taken), max(taken))
        print(f"{name:26}" + "".join(f"{cell:8.3f} s" for cell in cells))


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    add_arguments(parser)
    parser.add_argument(
        "--rounds", type=int, default=7, metavar="N", help="number of rounds (default: %(default)s)"
    )
    parser.add_argument(
        "--installed", action="store_true", help="check the installed packages, download nothing"
    )
    outcome.add_argument(parser)
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
