"""Checks every Python file of the standard library and of all installed packages, torch among them.

No file may make the checker fail, and none may take longer than the limit of a file. Files are checked one by one, as
an editor does.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import statistics
import sys
import sysconfig
import time
from collections.abc import Iterator
from pathlib import Path

import outcome
from corpus import progress
from zerograd.static.check_file import result_for_file
from zerograd.static.time_limit import TOO_LONG

LONGEST = 2.0
OURS = "zerograd failed"
METHOD = (
    "Every .py file of the standard library and of the installed packages, one by one, in one process per core. The "
    "time of a file is processor time."
)


def files() -> Iterator[str]:
    """All files of the standard library and of the installed packages, each once."""
    folders = {sysconfig.get_path(name) for name in ("stdlib", "purelib", "platlib")}
    seen: set[str] = set()
    for folder in sorted(folders):
        for path in sorted(Path(folder).rglob("*.py")):
            real = os.path.realpath(path)
            if real not in seen and path.is_file():
                seen.add(real)
                yield real


def check(path: str) -> tuple[str, float, str]:
    """The time of a file, and what went wrong."""
    began = time.process_time()
    verdict = result_for_file(path)
    took = time.process_time() - began
    for problem in verdict.problems:
        if OURS in problem.message or problem.message == TOO_LONG:
            return path, took, problem.message
    return path, took, ""


def main() -> int:
    """Check everything; the exit code is 1 if a file failed or took too long."""
    parser = argparse.ArgumentParser(description=__doc__)
    outcome.add_argument(parser)
    options = parser.parse_args()
    todo = list(files())
    times: list[float] = []
    failed: list[tuple[str, str]] = []
    with multiprocessing.Pool() as pool:
        for number, (path, took, message) in enumerate(pool.imap_unordered(check, todo, 16), 1):
            times.append(took)
            if message or took > LONGEST:
                failed.append((path, message or f"took {took:.1f} s"))
            if number % 1000 == 0:
                progress("checking", number, len(todo), "files")
    for path, message in failed:
        print(f"{path}: {message}")
    rows = [
        outcome.Row("files", len(todo)),
        outcome.Row("files that failed or took too long", len(failed), goal=0),
        outcome.Row("the longest", max(times), "s", goal=LONGEST),
        outcome.Row("a file, on average", 1000 * statistics.mean(times), "ms"),
    ]
    for row in rows:
        print(f"{row.name:40}{row.value:12,.3f} {row.unit}")
    if options.result:
        title = "Every installed Python file"
        outcome.write(options.result, title=title, method=METHOD, rows=rows)
    return int(bool(failed))


if __name__ == "__main__":
    sys.exit(main())
