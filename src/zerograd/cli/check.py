"""`zerograd check`: reads training code without running it, and reports gradient bugs."""

from __future__ import annotations

import argparse
import gc
import os
import re
import sys
from typing import TYPE_CHECKING, Literal, NamedTuple

from zerograd.cli.options import (
    add_check_rules,
    add_exit_zero,
    add_output,
    listed,
    number_of,
    rule_options,
)
from zerograd.cli.output import (
    COULD_NOT,
    Progress,
    detail,
    inform,
    render,
    say,
    say_problems,
    wants_color,
    write,
    write_bytes,
)
from zerograd.core.wording import counted
from zerograd.report.formats import FORMATS

if TYPE_CHECKING:
    from zerograd.check.check_session import CheckOptions, CheckOutcome
    from zerograd.core.finding import Report

_EXAMPLES = """\
examples:
  zerograd check src/ notebooks/          directories, files, notebooks
  zerograd check . --select ZG1,ZG201     by code, by name, or by the beginning of a code
  zerograd check . --ignore unscaled-window --exclude legacy/
  zerograd check . --format sarif --output zerograd.sarif
  git show HEAD:train.py | zerograd check - --stdin-filename train.py
  zerograd check src/ --loops             every training loop with its verdict
  zerograd check --why train.py:40        what was read of the loop at line 40, and what was assumed
  zerograd check . --diff                 show what --fix would change, and change nothing
  zerograd check . --fix                  apply the safe fixes
  zerograd check . --write-baseline known.json     remember the findings of today
  zerograd check . --baseline known.json           … and report only new ones
  zerograd check . --diff-base main                only findings in functions that this branch changes
  zerograd check . --diff-base main --fix          … and repair those
  zerograd check train.py --format agent  for a coding agent: terse, with the exact edits

to allow a finding, put a comment on its line, above the function, or at the top of the file:
  loss.backward()  # zerograd: allow[stale-gradient]

settings come from the nearest pyproject.toml above each file:
  [tool.zerograd]
  ignore = ["dropped-window"]
  exclude = ["legacy"]
  include-tests = true                    # default: false
  per-file-ignores = { "examples/*" = ["ZG3"] }
  severity = { ZG303 = "error", ZG304 = "off" }
  extend = "../policy/zerograd.toml"      # settings of another file, which this one overrides

exit: 0 no errors; 1 errors, or advice that was selected by its code or name (--fail-on changes this);
      2 something could not be checked. with --fix, only what is left counts; with --diff, the code is
      also 1 if something would change
"""


def add(parser: argparse.ArgumentParser) -> None:
    """The options of `check`."""
    parser.description = "Reads training code without running it, and reports gradient bugs."
    parser.epilog = _EXAMPLES
    parser.add_argument(
        "paths",
        nargs="*",
        metavar="PATH",
        help="a file, a directory, or - for standard input; default: this directory",
    )
    add_check_rules(parser.add_argument_group("rules"))
    old = parser.add_argument_group("old code")
    baseline = old.add_mutually_exclusive_group()
    baseline.add_argument(
        "--write-baseline", metavar="FILE", help="write all findings to a file, and exit with 0"
    )
    baseline.add_argument(
        "--baseline",
        metavar="FILE",
        help="hide the findings that this file lists, and only count them",
    )
    old.add_argument(
        "--diff-base",
        metavar="REV",
        help="only findings in functions that differ from the merge base of REV and HEAD",
    )
    fixes = parser.add_argument_group("fixes")
    fixes.add_argument("--fix", action="store_true", help="apply the safe fixes")
    fixes.add_argument(
        "--unsafe-fixes",
        action="store_true",
        help="like --fix, and apply fixes whose result you should review, too",
    )
    fixes.add_argument(
        "--diff", action="store_true", help="show what would change, and change nothing"
    )
    files = parser.add_argument_group("files")
    files.add_argument(
        "--exclude",
        action="append",
        metavar="PATTERN",
        help="skip these files; patterns as in .gitignore",
    )
    files.add_argument(
        "--include-tests",
        action="store_true",
        help="also check test files, which are skipped by default",
    )
    files.add_argument(
        "--stdin-filename",
        metavar="NAME",
        default="",
        help="the name of standard input in the report",
    )
    output = parser.add_argument_group("output")
    add_output(output)
    output.add_argument(
        "--statistics", action="store_true", help="show only how many findings each rule has"
    )
    output.add_argument(
        "--fail-on",
        choices=("error", "advice"),
        help="what fails the check; default: errors, and advice that was selected",
    )
    add_exit_zero(output)
    loops = parser.add_argument_group("training loops")
    loops.add_argument(
        "--loops",
        action="store_true",
        help="list all training loops: right, wrong, or not followed and why",
    )
    loops.add_argument(
        "--why",
        type=_line,
        metavar="FILE[:CELL]:LINE",
        help="explain the training loops at a line: what fills, uses and clears the gradients",
    )
    running = parser.add_argument_group("running")
    running.add_argument(
        "--jobs",
        type=number_of("processes"),
        metavar="N",
        default=0,
        help="number of processes; default: one per core",
    )
    running.add_argument(
        "--no-cache", action="store_true", help="do not use the cache of earlier checks"
    )


class Line(NamedTuple):
    """A line of a file, or of a cell of a notebook."""

    path: str
    cell: int | None
    line: int


def _line(text: str) -> Line:
    found = re.fullmatch(r"(.+?)(?::(\d+))?:(\d+)", text)
    if found is None:
        raise argparse.ArgumentTypeError(f"{text!r} is not FILE:LINE or FILE:CELL:LINE")
    path, cell, line = found.groups()
    return Line(path, int(cell) if cell else None, int(line))


def run(arguments: argparse.Namespace) -> int:
    """Run a check; the exit code."""
    if not arguments.paths:
        arguments.paths = [arguments.why.path if arguments.why else "."]
    # A check makes few reference cycles, and the process ends soon.
    gc.disable()
    from zerograd.check import check_session

    if arguments.statistics and not FORMATS[arguments.format].for_people:
        say(f"--statistics works with --format text, not with {arguments.format}")
        return COULD_NOT
    progress = Progress("checking: {done} of {total} files")
    try:
        outcome = check_session.run(_options(arguments), progress.show)
    finally:
        progress.end()
    for line in outcome.used:
        detail(line, arguments)
    if arguments.why:
        return _explain(outcome.report, arguments)
    if arguments.write_baseline is not None:
        return _baseline_written(outcome, arguments)
    outcome.report.lists_loops = arguments.loops
    if not _print(outcome, arguments):
        return COULD_NOT
    code = outcome.exit_code
    gc.freeze()
    return 0 if code == 1 and arguments.exit_zero else code


def _baseline_written(outcome: CheckOutcome, arguments: argparse.Namespace) -> int:
    """Say what the baseline knows; the exit code."""
    path = arguments.write_baseline
    say_problems(outcome.report)
    known = counted(len(outcome.report.findings), "finding")
    inform(f"{path} knows {known}; use it with --baseline {path}", arguments)
    return outcome.exit_code


def _explain(report: Report, arguments: argparse.Namespace) -> int:
    """Print the account of the training loops at a line; the exit code."""
    from zerograd.report import json, loop_text, text
    from zerograd.report.location import where

    wanted: Line = arguments.why
    path = os.path.abspath(wanted.path)
    here = [one for one in report.loops or () if os.path.abspath(one.loop.site.path) == path]
    found = [
        one
        for one in report.loops or ()
        if any(one.loop.holds(name, wanted.cell, wanted.line) for name in {wanted.path, path})
    ] or [one for one in here if one.loop.kind in ("module", "notebook")]
    if not found:
        say_problems(report)
        if report.errors and not here:
            return COULD_NOT
        distance = {where(one.loop.site): abs(one.loop.site.line - wanted.line) for one in here}
        nearest = min(distance, key=distance.__getitem__, default=None)
        there = f"the nearest is at {nearest}" if nearest else f"there is none in {wanted.path}"
        say(f"no training loop at line {wanted.line} of {wanted.path}: {there}")
        return COULD_NOT
    if arguments.format == "json":
        return 0 if write(json.explanation(report, found), arguments.output) else COULD_NOT
    paint = text.colored if wants_color(arguments) else text.plain
    account = loop_text.explanation(found, report.findings, paint)
    return 0 if write(account, arguments.output) else COULD_NOT


def _print(outcome: CheckOutcome, arguments: argparse.Namespace) -> bool:
    """Print the findings, or what would change; False if that failed."""
    from zerograd.report.text import remaining

    report = outcome.report
    asked = arguments.fix or arguments.unsafe_fixes
    if arguments.diff:
        written = write_bytes(outcome.diff, arguments.output)
        say_problems(report)
        inform(f"would fix {report.fixed}, {remaining(report)}", arguments)
        return written
    if asked and outcome.stdin is not None:
        # The repaired text goes to standard output, so the report goes elsewhere.
        written = write_bytes(outcome.stdin, None)
        text = render(report, arguments)
        if arguments.output is not None:
            return write(text, arguments.output) and written
        sys.stderr.write(text)
        return written
    if asked and arguments.format != "text":
        inform(f"{report.fixed} fixed, {remaining(report)}", arguments)
    return write(render(report, arguments), arguments.output)


def _options(arguments: argparse.Namespace) -> CheckOptions:
    from zerograd.check.check_session import CheckOptions

    select, ignore = rule_options(arguments)
    stdin = sys.stdin.buffer.read() if "-" in arguments.paths else None
    return CheckOptions(
        paths=tuple(arguments.paths),
        select=select,
        ignore=ignore,
        exclude=listed(arguments.exclude) or (),
        pedantic=arguments.pedantic,
        include_tests=arguments.include_tests,
        jobs=arguments.jobs,
        cache=not arguments.no_cache,
        stdin=stdin,
        stdin_filename=arguments.stdin_filename,
        repair=_repair(arguments),
        unsafe=arguments.unsafe_fixes,
        explain=arguments.why is not None,
        config=arguments.config,
        fail_on=arguments.fail_on or "",
        baseline=arguments.baseline,
        write_baseline=arguments.write_baseline,
        diff_base=arguments.diff_base,
        verbose=arguments.verbose,
    )


def _repair(arguments: argparse.Namespace) -> Literal["", "show", "diff", "fix"]:
    if arguments.diff:
        return "diff"
    if arguments.fix or arguments.unsafe_fixes:
        return "fix"
    return "show" if FORMATS[arguments.format].shows_fixes else ""
