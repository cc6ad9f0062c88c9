"""The result of a benchmark as a file: what was measured, how, on which machine, with its spread.

`docs/benchmarks.py` makes the page of all results, and `docs/readme.py` takes its numbers from them.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import re
import subprocess
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
RESULTS = Path(__file__).with_name("results")


@dataclass(frozen=True)
class Row:
    """One measured value."""

    name: str
    value: float
    unit: str = ""
    low: float | None = None
    high: float | None = None
    """The spread: the quartiles, or the least and the most."""
    of: float | None = None
    """For a count, of how many."""
    goal: float | None = None
    """The value should not exceed it; for a count, should not be below it."""


def add_argument(parser: argparse.ArgumentParser) -> None:
    """Add the option that every benchmark has."""
    parser.add_argument(
        "--result", type=Path, metavar="FILE", help="also write the result to this file, as JSON"
    )


def write(
    path: Path,
    *,
    title: str,
    method: str,
    rows: Sequence[Row],
    tables: bool = False,
    notes: Sequence[str] = (),
    commit: str | None = None,
) -> None:
    """Write a result with the versions and the machine it was measured on.

    With `tables`, a row named `a: b` is the cell of line a and column b on the page. The commit is that of this tree,
    unless what was measured before is put together.
    """
    found: dict[str, Any] = {
        "title": title,
        "method": method,
        "setting": {**setting(), **({"commit": commit} if commit else {})},
        **({"tables": True} if tables else {}),
        **({"notes": list(notes)} if notes else {}),
        "rows": [{k: v for k, v in asdict(row).items() if v is not None} for row in rows],
    }
    save(path, found)


def save(path: Path, found: dict[str, Any]) -> None:
    """Write a result; an interruption leaves the old one or the new one, never a half."""
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(f"{path.name}.part")
    part.write_text(json.dumps(found, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    part.replace(path)


def setting() -> dict[str, Any]:
    """The versions and the machine."""
    return {
        "commit": _commit(),
        "zerograd": version("zerograd"),
        "python": platform.python_version(),
        "torch": _installed("torch"),
        "system": f"{platform.system()} {platform.machine()}",
        "cpu": _cpu(),
        "cores": os.cpu_count(),
        "load": round(os.getloadavg()[0], 1),
    }


MADE = (":!bench/results", ":!README.md", ":!docs/*.md")
"""What measurements write, which is no change of what is measured."""


def _commit() -> str:
    """The commit, and whether more than results was changed since."""
    commit = _git("rev-parse", "--short=12", "HEAD")
    changed = _git("status", "--porcelain", "--untracked-files=no", "--", ".", *MADE)
    return f"{commit}-dirty" if changed else commit or "unknown"


def is_current(commit: str) -> bool:
    """Whether the code of this tree is that of a commit, results aside."""
    known = _git("rev-parse", "--verify", "--quiet", f"{commit}^{{commit}}")
    return bool(known) and not _git("diff", "--stat", known, "--", "src", "bench", *MADE)


def _git(*words: str) -> str:
    command = ["git", "-C", str(ROOT), *words]
    return subprocess.run(command, capture_output=True, text=True, check=False).stdout.strip()


def _installed(name: str) -> str | None:
    try:
        return version(name)
    except PackageNotFoundError:
        return None


def _cpu() -> str:
    try:
        text = Path("/proc/cpuinfo").read_text(encoding="utf-8")
    except OSError:
        return platform.processor()
    found = re.search(r"^model name\s*: (.+)$", text, re.MULTILINE)
    return found[1] if found else platform.processor()


def read(name: str) -> dict[str, Any]:
    """A result that was written before."""
    found: dict[str, Any] = json.loads((RESULTS / f"{name}.json").read_text(encoding="utf-8"))
    return found


def rows(name: str) -> dict[str, dict[str, Any]]:
    """The rows of a result, by name."""
    return {row["name"]: row for row in read(name)["rows"]}
