"""Checks pinned packages from the package index, and counts false alarms.

A person must have read every certain error: `adjudicated.jsonl` says of each whether it is true.
The exit code is 1 if an error was not read, or if too many are false.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from collections import Counter
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import outcome
from adjudication import (
    Found,
    Judged,
    Place,
    VerdictError,
    draft,
    function_at,
    judge,
    read_verdicts,
)
from corpus import (
    CorpusError,
    Package,
    Size,
    add_arguments,
    measure,
    prepare,
    progress,
    python_files,
    read_list,
)
from processes import find

ADJUDICATED = Path(__file__).with_name("adjudicated.jsonl")
FALSE_ALARMS_PER_500 = 1.0
METHOD = (
    "zerograd check, with its defaults, on the pinned packages of bench/ecosystem.txt. A person has read each "
    "error; bench/adjudicated.jsonl gives the reasons."
)
LONGEST_CHECK = 1800


@dataclass(frozen=True)
class Checked:
    """The report of the checker for one package."""

    package: Package
    findings: list[dict[str, Any]]
    errors: int
    files: int


class CheckerError(Exception):
    """The checker is missing, or did not print a report."""


def main() -> int:
    """Download, check, compare, print."""
    options = _options()
    try:
        packages = [
            package
            for package in read_list(options.list)
            if not options.only or package.name in options.only
        ]
        verdicts = read_verdicts(options.adjudicated)
        sources = prepare(packages, options.corpus)
        checked = check_all(find_checker(options.zerograd), packages, sources, options.jobs)
    except (CorpusError, CheckerError, VerdictError, OSError) as error:
        print(f"ecosystem: {error}", file=sys.stderr)
        return 2
    found = [finding for one in checked for finding in certain_errors(one, sources)]
    names = {package.name for package in packages}
    judged = judge(found, (verdict for verdict in verdicts if verdict.place.package in names))
    sizes = [measure(sources / package.folder) for package in packages]
    if options.draft:
        options.draft.write_text(draft(judged.unread), encoding="utf-8")
    if options.result:
        rows = [
            outcome.Row("packages", len(checked)),
            outcome.Row("files", sum(size.files for size in sizes)),
            outcome.Row("files with .backward(", sum(size.backward for size in sizes)),
            outcome.Row("errors", len(found)),
            outcome.Row("real", len(judged.true), of=len(found)),
            outcome.Row("false", len(judged.false), of=len(found)),
            outcome.Row("not read", len(judged.unread), of=len(found)),
        ]
        outcome.write(options.result, title="False alarms in packages", method=METHOD, rows=rows)
    return show(checked, sizes, judged)


def find_checker(given: str | None) -> str:
    """Find the command. `-m zerograd` would import modules from the working directory."""
    command = given or find("zerograd")
    if command is None:
        raise CheckerError("there is no `zerograd` command: install zerograd for this Python first")
    return command


def check_all(zerograd: str, packages: list[Package], sources: Path, jobs: int) -> list[Checked]:
    """Check each package in its own process, the largest first, so that none waits at the end."""
    heaviest = sorted(packages, key=lambda p: -sum(1 for _ in python_files(sources / p.folder)))
    with ThreadPoolExecutor(jobs) as pool:
        running = {pool.submit(check, zerograd, package, sources): package for package in heaviest}
        try:
            for number, done in enumerate(as_completed(running), 1):
                done.result()
                progress("checking", number, len(packages), running[done].folder)
        except CheckerError:
            pool.shutdown(cancel_futures=True)
            raise
    results = {package: future.result() for future, package in running.items()}
    return [results[package] for package in packages]


def check(zerograd: str, package: Package, sources: Path) -> Checked:
    """Check one package, without the cache, which might hold results of an earlier version."""
    command = [zerograd, "check", "--format", "json", "--exit-zero", "--no-cache", "--jobs", "1"]
    folder = str(sources / package.folder)
    try:
        done = subprocess.run(
            [*command, folder], capture_output=True, timeout=LONGEST_CHECK, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise CheckerError(f"{package.folder}: {error}") from error
    try:
        report = json.loads(done.stdout)
        return Checked(package, report["findings"], len(report["errors"]), report["files"])
    except (ValueError, KeyError, TypeError) as error:
        said = done.stderr.decode(errors="replace").strip()[-2000:]
        raise CheckerError(f"{package.folder}: {zerograd} printed no report. {said}") from error


def certain_errors(checked: Checked, sources: Path) -> list[Found]:
    """The findings that would fail a build, each with its enclosing function."""
    folder = (sources / checked.package.folder).resolve()
    found = []
    for finding in checked.findings:
        if finding["level"] == "error" and finding["certain"]:
            path, line = Path(finding["path"]).resolve(), finding["line"]
            function = function_at(path, line, finding["cell"])
            inside = path.relative_to(folder).as_posix()
            place = Place(checked.package.name, inside, finding["code"], function)
            found.append(Found(place, line, finding["name"], finding["message"]))
    return found


def show(checked: list[Checked], sizes: list[Size], judged: Judged) -> int:
    """Print the result and return the exit code."""
    backward = sum(size.backward for size in sizes)
    print(f"packages      {len(checked)}")
    print(f"files         {sum(size.files for size in sizes)}", end="")
    print(f", {sum(one.files for one in checked)} checked", end="")
    print(f", {sum(one.errors for one in checked)} could not be read")
    print(f".backward(    in {backward} files", end="")
    print(f", and in {sum(size.backward_in_tests for size in sizes)} test files that are left out")
    _show_codes(checked)
    for found, verdict in judged.false:
        print(f"false alarm   {_where(found)}\n              {verdict.reason}")
    for verdict in judged.gone:
        place, was = verdict.place, "bug" if verdict.true else "false alarm"
        print(f"no longer     {place.package}: {place.path}:{verdict.line}  {place.code}, a {was}")
    for found in judged.unread:
        print(f"not read      {_where(found)}")
    rate = 500 * len(judged.false) / backward if backward else 0.0
    print(
        f"\ntrue {len(judged.true)} · false {len(judged.false)} · not read {len(judged.unread)}"
        f" · {rate:.2f} false alarms per 500 files with .backward( "
        f"(goal: at most {FALSE_ALARMS_PER_500:g})"
    )
    return int(bool(judged.unread) or rate > FALSE_ALARMS_PER_500)


def _show_codes(checked: list[Checked]) -> None:
    kinds = ("certain", "possible", "advice")
    counts: Counter[tuple[str, str, str]] = Counter()
    for one in checked:
        for finding in one.findings:
            kind = "certain" if finding["certain"] else "possible"
            kind = "advice" if finding["level"] == "advice" else kind
            counts[finding["code"], finding["name"], kind] += 1
    print(f"\n{'findings':32}" + "".join(f"{kind:>10}" for kind in kinds))
    for code, name in sorted({(code, name) for code, name, _ in counts}):
        print(f"{code} {name:26}" + "".join(f"{counts[code, name, kind]:10}" for kind in kinds))
    totals = (sum(n for key, n in counts.items() if key[2] == kind) for kind in kinds)
    print(f"{'all':32}" + "".join(f"{total:10}" for total in totals) + "\n")


def _where(found: Found) -> str:
    place = found.place
    return (
        f"{place.package}: {place.path}:{found.line} in {place.function}"
        f"  {place.code} {found.name}  {found.message}"
    )


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    add_arguments(parser)
    parser.add_argument(
        "--jobs",
        type=int,
        default=os.cpu_count() or 1,
        metavar="N",
        help="packages checked at once (default: %(default)s)",
    )
    parser.add_argument("--only", action="append", metavar="NAME", help="check this package only")
    parser.add_argument(
        "--draft",
        type=Path,
        metavar="FILE",
        help="write rows to fill in for findings that were not read",
    )
    parser.add_argument(
        "--adjudicated", type=Path, default=ADJUDICATED, metavar="FILE", help="other verdicts"
    )
    outcome.add_argument(parser)
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
