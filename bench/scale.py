"""Measures whether time and memory stay in proportion: a large project, a long run, a page of many steps.

    python bench/scale.py                     100,000 files, 10,000,000 events, 5,000,000 steps
    python bench/scale.py --part watch        one of check, watch, page
    python bench/scale.py --divide 1000       a thousandth of it, as tests do

Each part is measured at a quarter of its size and in full. Memory is flat if the larger one needs hardly more, and time
is linear if a file or an event of the larger one takes no longer. Time is CPU time. What was measured is kept in
bench/.cache/scale.json for its commit, so that a run that was ended goes on with the other parts.
"""

from __future__ import annotations

import argparse
import json
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import outcome
import page_memory
from outcome import ROOT, Row

STATE = ROOT / "bench" / ".cache" / "scale.json"
FILES, EVENTS, STEPS = 100_000, 10_000_000, 5_000_000
LESS = 4
"""The smaller measurement is of a quarter."""
GROWTH = 16.0
"""How many MB more the full size may need than a quarter of it."""
LONGER = 1.25
"""How many times as long one file, event or step of the full size may take."""
LARGEST_PAGE = 5.0
"""MB."""
KEPT = (
    "A check keeps until its end: of each file its name, the time of its last change, its size and a pointer; of each "
    "training loop, here in every tenth file, its verdict; of each finding, here in every hundredth file, the lines of "
    "its file. What is read of a file is forgotten."
)


@dataclass(frozen=True)
class Use:
    """What one measurement took."""

    size: int
    seconds: float
    """Of all processors."""
    megabytes: float
    """The most that one process held."""
    page: float = 0.0
    """The size of the page in MB."""


# A project


def files(folder: Path, number: int) -> None:
    """Write a project of which a tenth trains, and one file in a hundred has a finding."""
    for at in range(number):
        place = folder / f"package_{at // 1000}" / f"folder_{at // 50 % 20}"
        if at % 50 == 0:
            place.mkdir(parents=True, exist_ok=True)
        (place / f"module_{at}.py").write_text("\n".join(_lines(at)), encoding="utf-8")


def _lines(at: int) -> Iterator[str]:
    if at % 10:
        yield "import os"
        for number in range(20):
            yield f"def function_{at}_{number}(value):"
            yield f"    return os.path.join(str(value), 'part_{number}') if value else None"
        return
    yield "import torch"
    yield f"def train_{at}(model, loader, loss_fn):"
    yield "    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)"
    yield "    for x, y in loader:"
    if at % 100:
        yield "        optimizer.zero_grad()"
    yield "        loss = loss_fn(model(x), y)"
    yield "        loss.backward()"
    yield "        optimizer.step()"


def check(number: int) -> Use:
    """One check without a cache, in a process of its own."""
    with tempfile.TemporaryDirectory() as folder:
        here = Path(folder, "project")
        files(here, number)
        words = ["check", "--no-cache", "--jobs", "1", "--format", "json", "."]
        use, said = _measured([sys.executable, "-m", "zerograd", *words], here, number)
        found = len(json.loads(said)["findings"])
        if found != len(range(0, number, 100)):
            raise SystemExit(f"{found} findings in {number} files")
    return use


# A run

PROGRAM = """
import sys, torch, zerograd
steps = int(sys.argv[1])
weight = torch.nn.Parameter(torch.ones(1))
optimizer = torch.optim.SGD([weight], lr=1e-9, foreach=False)
with zerograd.watch("collect") as report:
    for _ in range(steps):
        optimizer.zero_grad()
        weight.sum().backward()
        optimizer.step()
assert not report.findings
assert report.watched.steps == steps
"""


def watch(events: int) -> Use:
    """A loop of three events under a watch."""
    command = [sys.executable, "-c", PROGRAM, str(events // 3)]
    return _measured(command, ROOT, events)[0]


# A page


def page(steps: int) -> Use:
    """The page of a recording in which no two windows repeat."""
    with tempfile.TemporaryDirectory() as folder:
        recording, made = Path(folder, "run.jsonl"), Path(folder, "page.html")
        page_memory.write(recording, most_steps=steps)
        words = ["report", str(recording), "-o", str(made)]
        use, _ = _measured([sys.executable, "-m", "zerograd", *words], Path(folder), steps)
        opens(made)
        return Use(use.size, use.seconds, use.megabytes, made.stat().st_size / 1e6)


def opens(made: Path) -> None:
    """Open the page in a browser: it has to draw its timeline without an error."""
    chromium = shutil.which("chromium") or shutil.which("chromium-browser")
    if chromium is None:
        raise SystemExit("there is no chromium: apt-get install chromium")
    from playwright.sync_api import sync_playwright

    errors: list[str] = []
    with sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        shown = browser.new_page()
        shown.on("pageerror", lambda error: errors.append(str(error)))
        shown.goto(made.as_uri(), timeout=120_000)
        shown.wait_for_selector("#lanes", timeout=120_000)
        browser.close()
    if errors:
        raise SystemExit(f"the page fails: {errors}")


def _measured(command: Sequence[str], here: Path, size: int) -> tuple[Use, str]:
    """The CPU time and the largest memory of a command, measured by a process between."""
    between = (
        "import json, resource, subprocess, sys\n"
        "done = subprocess.run(sys.argv[1:], capture_output=True, text=True)\n"
        "used = resource.getrusage(resource.RUSAGE_CHILDREN)\n"
        "took = used.ru_utime + used.ru_stime\n"
        "print(json.dumps([done.returncode, done.stdout, done.stderr, took, used.ru_maxrss]))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", between, *command],
        cwd=here,
        capture_output=True,
        text=True,
        check=True,
    )
    code, said, wrong, seconds, kilobytes = json.loads(done.stdout)
    if code not in (0, 1) or "Traceback" in wrong:
        raise SystemExit(f"{' '.join(command)[:80]}: {wrong[-2000:]}")
    return Use(size, seconds, kilobytes / 1024), said


PARTS: dict[str, tuple[str, Callable[[int], Use], int]] = {
    "check": ("files", check, FILES),
    "watch": ("events", watch, EVENTS),
    "page": ("steps of a page", page, STEPS),
}


def rows(name: str, less: Use, full: Use) -> list[Row]:
    """What two sizes of one part show."""
    what = PARTS[name][0]
    each = 1e6 / full.size
    found = [
        Row(f"{full.size:,} {what}: memory", full.megabytes, "MB"),
        Row(
            f"{full.size:,} {what}: more memory than for {less.size:,}",
            full.megabytes - less.megabytes,
            "MB",
            goal=GROWTH,
        ),
        Row(
            f"{full.size:,} {what}: memory of each after the first {less.size:,}",
            1e6 * (full.megabytes - less.megabytes) / (full.size - less.size),
            "bytes",
        ),
        Row(f"{full.size:,} {what}: CPU time", full.seconds, "s"),
        Row(f"{full.size:,} {what}: CPU time of each", full.seconds * each, "µs"),
        Row(
            f"{full.size:,} {what}: CPU time of each, against {less.size:,}",
            (full.seconds / full.size) / (less.seconds / less.size),
            "x",
            goal=LONGER,
        ),
    ]
    if full.page:
        found.append(Row(f"{full.size:,} {what}: its size", full.page, "MB", goal=LARGEST_PAGE))
    return found


def main() -> int:
    """Measure the parts; the exit code is 1 if a goal is missed."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--part", choices=PARTS, help="only one")
    parser.add_argument("--divide", type=int, default=1, metavar="N", help="an Nth of each size")
    outcome.add_argument(parser)
    options = parser.parse_args()
    commit = outcome.setting()["commit"]
    known = json.loads(STATE.read_text(encoding="utf-8")) if STATE.exists() else {}
    found: list[Row] = []
    for name, (_, measure, size) in PARTS.items():
        if options.part not in (None, name):
            continue
        key = f"{commit} {name} {options.divide}"
        if key not in known:
            sizes = (size // options.divide // LESS, size // options.divide)
            known[key] = [asdict(measure(one)) for one in sizes]
            STATE.parent.mkdir(parents=True, exist_ok=True)
            STATE.write_text(json.dumps(known), encoding="utf-8")
        found += rows(name, *(Use(**one) for one in known[key]))
    for row in found:
        goal = "" if row.goal is None else f"  (at most {row.goal:g})"
        print(f"{row.name:60} {row.value:10.2f} {row.unit}{goal}", flush=True)
    if options.result is not None:
        outcome.write(
            options.result,
            title="Scale",
            method="A check without a cache of generated files, of which a tenth trains; a loop of three events under "
            "a watch; the page of a recording in which windows do not repeat, opened in a browser. Each at a quarter "
            "of its size and in full, in processes of their own.",
            notes=[KEPT],
            rows=found,
        )
    return int(any(row.goal is not None and row.value > row.goal for row in found))


if __name__ == "__main__":
    sys.exit(main())
