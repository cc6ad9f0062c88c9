"""Runs a program as its user would, and once more under `zerograd run`."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any, NamedTuple

from support.paths import ROOT

HERE = ROOT / "tests" / "libraries"

# Libraries keep settings and caches at home: theirs is in the environment they are installed in.
HOME = Path(sys.prefix, "home")

ENVIRONMENT = {
    "HOME": str(HOME),
    "HF_HUB_OFFLINE": "1",
    "OMP_NUM_THREADS": "1",  # sums in another order are other numbers
    "PYTHONUTF8": "1",
    "TOKENIZERS_PARALLELISM": "false",
}


class Ran(NamedTuple):
    """What came of a program; it prints its result last."""

    code: int
    result: str
    log: str


class Watched(NamedTuple):
    """The same, and what zerograd found in it."""

    ran: Ran
    findings: list[dict[str, Any]]

    def codes(self, level: str) -> set[str]:
        return {finding["code"] for finding in self.findings if finding["level"] == level}


def bare(program: Path, folder: Path) -> Ran:
    """`python PROGRAM` in a folder."""
    return _python([str(program)], folder)


def watched(program: Path, folder: Path) -> Watched:
    """`zerograd run PROGRAM` in a folder."""
    report = folder / "report.json"
    words = ["-m", "zerograd", "run", "--format", "json", "--output", str(report), str(program)]
    ran = _python(words, folder)
    assert report.exists(), ran.log
    return Watched(ran, json.loads(report.read_text(encoding="utf-8"))["findings"])


def _python(words: list[str], folder: Path) -> Ran:
    HOME.mkdir(exist_ok=True)
    done = subprocess.run(
        [sys.executable, *words],
        cwd=folder,
        env={**os.environ, **ENVIRONMENT},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        encoding="utf-8",
        timeout=300,
        check=False,
    )
    lines = [line for line in done.stdout.splitlines() if line.startswith("final ")]
    return Ran(done.returncode, lines[-1] if lines else "", done.stdout + done.stderr)
