"""Runs the benchmarks one after the other and writes bench/results/*.json and docs/benchmarks.md.

    python bench/measure.py          those that fit into 20 minutes on two cores (make bench)
    python bench/measure.py --full   those that take longer (make bench-full)
    python bench/measure.py --only watch_overhead   one of them

A benchmark that misses a goal is measured all the same: its result says so. One that fails, or takes longer than its
time, leaves its last result as it was, and the others are measured. Each result is written when it is complete, so that
Ctrl-C keeps what is done; `--resume` leaves out those whose result was measured with the code of this tree.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

import outcome

HERE = Path(__file__).parent
REPOS = "known_bugs needs the checkouts of bench/labels.jsonl: make bench REPOS=DIR, as `bench/wild.py --help` describes"
GRACE = 20.0
"""How many seconds a benchmark that is ended has for removing what it made."""


@dataclass(frozen=True)
class Measurement:
    """A benchmark, and the arguments that it is run with."""

    name: str
    script: str
    words: tuple[str, ...] = ()
    seconds: float | None = None
    """The most that it may take, on two cores without other work; None for those of --full."""
    repos: bool = False
    """Whether it needs checkouts, which are not part of this repository."""

    @property
    def full(self) -> bool:
        """Whether it is too long for `make bench`."""
        return self.seconds is None


RANKS = ("--only", "ranks", "--worlds", "2", "--wraps", "ddp", "--rounds", "2")
MEASUREMENTS = (
    Measurement("exactness", "exactness.py", seconds=30),
    Measurement("mutants", "mutants.py", seconds=80),
    Measurement("stepper_overhead", "stepper_overhead.py", ("--rounds", "10"), 50),
    Measurement("watch_overhead", "watch_overhead.py", ("--short", "--growth", "10000"), 400),
    Measurement("ranks_overhead", "ranks_overhead.py", RANKS, 80),
    Measurement("lsp_latency", "lsp_latency.py", ("--edits", "100"), 55),
    Measurement("pytest_overhead", "pytest_overhead.py", seconds=75),
    Measurement("check_speed", "check_speed.py", ("--installed", "--rounds", "3"), 150),
    Measurement("scan", "scan.py", seconds=25),
    Measurement("detection_ours", "detection.py", ("--ours", "--slow", "10"), 60),
    Measurement("known_bugs", "wild.py", seconds=180, repos=True),
    Measurement("mutation", "mutation_score.py", ("--jobs", "2")),
    Measurement("scale", "scale.py"),
    Measurement("fuzz", "fuzz.py"),
    Measurement(
        "detection",
        "detection.py",
        ("--mutants", "all", "--parts", str(HERE / ".cache" / "detection")),
    ),
    Measurement("watch_overhead_long", "watch_overhead.py"),
    Measurement("ranks_overhead_long", "ranks_overhead.py"),
    Measurement("check_speed_packages", "check_speed.py"),
    Measurement("ecosystem", "ecosystem.py"),
)


class Unmeasured(Exception):
    """A benchmark gave no result, and why."""


def main() -> int:
    """Measure, and write the pages; the exit code is 2 if a benchmark gave no result, 130 after Ctrl-C."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--full", action="store_true", help="the benchmarks that take longer")
    parser.add_argument(
        "--only", choices=[one.name for one in MEASUREMENTS], metavar="NAME", help="one benchmark"
    )
    parser.add_argument("--list", action="store_true", help="print the names, and how long each took")  # fmt: skip
    parser.add_argument("--resume", action="store_true", help="leave out what was measured already")
    parser.add_argument("--patient", action="store_true", help="a benchmark may take longer than its time")  # fmt: skip
    parser.add_argument("--repos", type=Path, metavar="DIR", help="the checkouts of bench/labels.jsonl")  # fmt: skip
    options = parser.parse_args()
    if options.list:
        for one in MEASUREMENTS:
            most = f"at most {one.seconds:.0f} s" if one.seconds else "--full"
            print(f"{one.name:22}{most:16}{_took(outcome.RESULTS / f'{one.name}.json')}")
        return 0
    chosen = [
        one
        for one in MEASUREMENTS
        if (one.full is options.full if options.only is None else one.name == options.only)
    ]
    return measure(chosen, options)


def measure(chosen: list[Measurement], options: argparse.Namespace) -> int:
    """Run the chosen benchmarks, and say at the end what became of each."""
    said: dict[str, str] = {}
    failed = False
    began = time.monotonic()
    try:
        for number, one in enumerate(chosen, 1):
            result = outcome.RESULTS / f"{one.name}.json"
            if options.resume and _is_current(result):
                said[one.name] = "measured before"
                continue
            if one.repos and options.repos is None:
                said[one.name] = f"skipped: {REPOS}"
                continue
            gone = (time.monotonic() - began) / 60
            last = _took(result)
            print(f"== {number} of {len(chosen)}: {one.name} (last time: {last}), after {gone:.1f} min", flush=True)  # fmt: skip
            more = ("--repos", str(options.repos)) if one.repos else ()
            try:
                seconds = run(one, result, more, patient=options.patient)
                said[one.name] = f"measured in {seconds:.0f} s"
            except Unmeasured as error:
                failed = True
                said[one.name] = f"NOT MEASURED: {error}"
            print(f"== {one.name}: {said[one.name]}\n", flush=True)
            failed |= not _page("benchmarks")
    except KeyboardInterrupt:
        print("\nstopped; what was measured is kept. To go on: --resume", file=sys.stderr)
        return 130
    finally:
        written = _page("benchmarks") and _page("readme")
        for one in chosen:
            print(f"{one.name:22}{said.get(one.name, 'not measured')}")
        print(f"{(time.monotonic() - began) / 60:.1f} min in all", flush=True)
    return 2 if failed or not written else 0


def run(one: Measurement, result: Path, more: tuple[str, ...], *, patient: bool) -> float:
    """Run one benchmark and take over its result, if it gave one; how many seconds it took."""
    began = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        made = Path(folder) / result.name
        command = [sys.executable, str(HERE / one.script), *one.words, *more, "--result", str(made)]
        process = subprocess.Popen(command, start_new_session=True)
        try:
            code = process.wait(None if patient else one.seconds)
        except subprocess.TimeoutExpired:
            _end(process)
            raise Unmeasured(f"it took longer than its {one.seconds:.0f} s (--patient waits)") from None  # fmt: skip
        except BaseException:
            _end(process)
            raise
        # A goal that is missed is exit code 1, and so is an exception: only the result tells them apart.
        if code not in (0, 1) or not made.exists():
            raise Unmeasured(f"it ended with exit code {code}")
        seconds = time.monotonic() - began
        found = json.loads(made.read_text(encoding="utf-8"))
    found["setting"]["seconds"] = round(seconds)
    outcome.save(result, found)
    return seconds


def _end(process: subprocess.Popen[bytes]) -> None:
    """End a benchmark and what it has started: first as Ctrl-C does, so that it removes its files."""
    for sign in (signal.SIGINT, signal.SIGKILL):
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, sign)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(GRACE)


def _page(name: str) -> bool:
    """Write a page from the results; whether that worked."""
    script = outcome.ROOT / "docs" / f"{name}.py"
    return subprocess.run([sys.executable, str(script)], check=False).returncode == 0


def _took(result: Path) -> str:
    if not result.exists():
        return "not measured yet"
    given = json.loads(result.read_text(encoding="utf-8"))["setting"]
    load = f", with a load of {given['load']}" if "load" in given else ""
    return f"{given['seconds']} s{load}" if "seconds" in given else "measured alone"


def _is_current(result: Path) -> bool:
    if not result.exists():
        return False
    found = json.loads(result.read_text(encoding="utf-8"))
    return outcome.is_current(found["setting"]["commit"])


if __name__ == "__main__":
    sys.exit(main())
