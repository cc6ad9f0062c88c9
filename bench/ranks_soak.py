"""Four ranks train for 2,000 steps with a fault on one of them, which must be reported.

The faults: a rank is killed at a random step, a rank forgets one clear, the parameters of a rank are
changed, those of the first rank are changed, and no fault. Every run must end by itself.
"""

from __future__ import annotations

import argparse
import json
import random
import re
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

TRAINING = Path(__file__).with_name("ranks_training.py")
LONGEST = 300
"""Seconds after which a run counts as hanging."""
WITHIN = 100
"""The number of steps within which a difference must be found."""


@dataclass(frozen=True)
class Fault:
    """The kind of fault, its rank and its step."""

    name: str
    rank: int = 0
    at: int = 0


@dataclass(frozen=True)
class Outcome:
    """How a run ended, and what was reported."""

    code: int
    seconds: float
    findings: list[dict[str, object]]
    screen: str


def run(fault: Fault, steps: int, world: int = 4) -> Outcome:
    """One run, from the launcher to the merged report."""
    words = [sys.executable, "-m", "zerograd", "run", "--format", "json", "--output"]
    with tempfile.TemporaryDirectory() as folder:
        output = Path(folder) / "found.json"
        words += [str(output), "-m", "torch.distributed.run", f"--nproc-per-node={world}"]
        words += ["--standalone", str(TRAINING), f"--steps={steps}", f"--fault={fault.name}"]
        words += [f"--rank={fault.rank}", f"--at={fault.at}"]
        began = time.monotonic()
        done = subprocess.run(
            words, capture_output=True, text=True, timeout=LONGEST, check=False, encoding="utf-8"
        )
        found = json.loads(output.read_text(encoding="utf-8"))["findings"]
    return Outcome(done.returncode, time.monotonic() - began, found, done.stderr)


def missing(fault: Fault, outcome: Outcome) -> str:
    """What a run should have reported but did not; empty if the report is right."""
    found = [(one["code"], one["ranks"]) for one in outcome.findings]
    steps = [int(step) for step in re.findall(r"at step (\d+)", outcome.screen)]
    if fault.name == "none":
        return "" if not found and outcome.code == 0 else f"{found}, exit {outcome.code}"
    if fault.name == "kill":
        killed = re.search(rf"rank +: {fault.rank} .*\n.*exitcode +: -9 ", outcome.screen)
        lines = re.findall(r"stopped +ranks? ([0-9–, ]+) after step (\d+)", outcome.screen)
        named = [int(step) for ranks, step in lines if fault.rank in _numbers(ranks)]
        # The rank dies before its step is counted, and before or after the step itself.
        as_expected = killed and named and fault.at - 1 <= named[0] <= fault.at
        return "" if as_expected else f"no report about rank {fault.rank}: {outcome.screen[-2000:]}"
    code, last = ("ZG101", fault.at) if fault.name == "forget" else ("ZG402", fault.at + WITHIN)
    if outcome.code != 1 or [one for one, _ in found] != [code]:
        return f"{found}, exit {outcome.code}: {outcome.screen[-2000:]}"
    if not steps or not fault.at <= steps[0] <= last:
        return f"reported at step {steps}, not from {fault.at} to {last}"
    who = f"rank {fault.rank} " if code == "ZG402" else f"on rank {fault.rank}\n"
    return "" if who in outcome.screen else f"{who!r} is not named: {outcome.screen[-2000:]}"


def _numbers(text: str) -> set[int]:
    """The ranks of `0–1, 3`."""
    ends = [[int(end) for end in part.split("–")] for part in text.split(", ")]
    return {rank for one in ends for rank in range(one[0], one[-1] + 1)}


def main() -> int:
    """Run all faults. Returns 1 if one of them was not reported correctly."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=2000)
    parser.add_argument("--seed", type=int, default=None)
    options = parser.parse_args()
    random.seed(options.seed)
    at = 1357 * options.steps // 2000
    faults = (
        Fault("none"),
        Fault("kill", 2, random.randrange(2, options.steps)),
        Fault("forget", 1, at),
        Fault("perturb", 3, at),
        Fault("perturb", 0, at),
    )
    wrong = 0
    for fault in faults:
        outcome = run(fault, options.steps)
        problem = missing(fault, outcome)
        wrong += bool(problem)
        place = f"rank {fault.rank}, step {fault.at}" if fault.at else ""
        print(f"{fault.name:8} {place:18} {outcome.seconds:5.1f} s  {problem or 'as expected'}")
    return int(bool(wrong))


if __name__ == "__main__":
    sys.exit(main())
