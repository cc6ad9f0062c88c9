"""Runs the benchmarks one after the other and writes bench/results/*.json and docs/benchmarks.md.

    python bench/measure.py          those that fit into 20 minutes on two cores (make bench)
    python bench/measure.py --full   those that take longer (make bench-full)
    python bench/measure.py --only watch_overhead   one of them

A benchmark that misses a goal is measured all the same: its result says so. `--resume` leaves out those whose
result was measured with the code of this tree.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

import outcome

HERE = Path(__file__).parent


@dataclass(frozen=True)
class Measurement:
    """A benchmark, and the arguments that it is run with."""

    name: str
    script: str
    words: tuple[str, ...] = ()
    full: bool = False


MEASUREMENTS = (
    Measurement("exactness", "exactness.py"),
    Measurement("mutants", "mutants.py"),
    Measurement("stepper_overhead", "stepper_overhead.py", ("--rounds", "20")),
    Measurement("watch_overhead", "watch_overhead.py", ("--rounds", "5", "--growth", "20000")),
    Measurement(
        "ranks_overhead", "ranks_overhead.py", ("--only", "ranks", "--worlds", "2", "--rounds", "2")
    ),
    Measurement("lsp_latency", "lsp_latency.py", ("--edits", "100")),
    Measurement("pytest_overhead", "pytest_overhead.py"),
    Measurement("check_speed", "check_speed.py", ("--installed", "--rounds", "3")),
    Measurement("scan", "scan.py"),
    Measurement("mutation", "mutation_score.py", full=True),
    Measurement("scale", "scale.py", full=True),
    Measurement("fuzz", "fuzz.py", full=True),
    Measurement("detection_ours", "detection.py", ("--ours", "--runs", "10")),
    Measurement(
        "detection",
        "detection.py",
        ("--mutants", "all", "--parts", str(HERE / ".cache" / "detection")),
        full=True,
    ),
    Measurement("check_speed_packages", "check_speed.py", full=True),
    Measurement("ecosystem", "ecosystem.py", full=True),
)


def main() -> int:
    """Measure, and write the page; the exit code is 2 if a benchmark failed."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--full", action="store_true", help="the benchmarks that take longer")
    parser.add_argument(
        "--only", choices=[one.name for one in MEASUREMENTS], metavar="NAME", help="one benchmark"
    )
    parser.add_argument("--list", action="store_true", help="print the names, and how long each took")  # fmt: skip
    parser.add_argument("--resume", action="store_true", help="leave out what was measured already")
    options = parser.parse_args()
    if options.list:
        for one in MEASUREMENTS:
            print(f"{one.name:26}{_took(outcome.RESULTS / f'{one.name}.json')}")
        return 0
    failed = []
    for one in MEASUREMENTS:
        if one.full is not options.full if options.only is None else one.name != options.only:
            continue
        result = outcome.RESULTS / f"{one.name}.json"
        if options.resume and _is_current(result):
            print(f"{one.name}: measured already")
            continue
        print(f"== {one.name}", flush=True)
        began = time.monotonic()
        command = [sys.executable, str(HERE / one.script), *one.words, "--result", str(result)]
        done = subprocess.run(command, check=False)
        seconds = time.monotonic() - began
        print(f"== {one.name}: {seconds:.0f} s\n", flush=True)
        if done.returncode in (0, 1):
            _note(result, seconds)
        else:
            failed.append(one.name)
    for page in ("benchmarks", "readme"):
        subprocess.run([sys.executable, str(outcome.ROOT / "docs" / f"{page}.py")], check=True)
    if failed:
        print(f"not measured: {', '.join(failed)}", file=sys.stderr)
    return 2 if failed else 0


def _note(result: Path, seconds: float) -> None:
    """Write into a result how long it took."""
    found = json.loads(result.read_text(encoding="utf-8"))
    found["setting"]["seconds"] = round(seconds)
    result.write_text(json.dumps(found, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


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
