"""`zerograd check`: reads training code, never runs it, and says where gradients go wrong."""

from __future__ import annotations

import argparse
import gc
import sys
from typing import TYPE_CHECKING, Literal

from zerograd.cli.options import NoRules, add_output, add_rules, chosen, listed
from zerograd.cli.output import COULD_NOT, Progress, render, say, write, write_bytes
from zerograd.report.formats import FORMATS

if TYPE_CHECKING:
    from zerograd.check.check_session import Options, Outcome

_EXAMPLES = """\
examples:
  zerograd check src/ notebooks/          directories, files, notebooks
  zerograd check . --select ZG1,ZG201     by code, by name, or by the beginning of a code
  zerograd check . --ignore unscaled-window --exclude legacy/
  zerograd check . --format sarif --output zerograd.sarif
  git show HEAD:train.py | zerograd check - --stdin-filename train.py
  zerograd check . --diff                 what --fix would change; it changes nothing
  zerograd check . --fix                  repair what can be repaired safely

silence a finding that is meant that way, where it is, above the function, or atop the file:
  loss.backward()  # zerograd: allow[stale-gradient]

settings are read from the nearest pyproject.toml above each file:
  [tool.zerograd]
  ignore = ["dropped-window"]
  exclude = ["legacy"]
  include-tests = true                    # default: false
  per-file-ignores = { "examples/*" = ["ZG3"] }

exit: 0 clean or advice only, 1 errors found (or advice that was selected by its code or name),
      2 something could not be checked; after --fix: what is left counts; with --diff: 1 also where
      something would change
"""


def add(parser: argparse.ArgumentParser) -> None:
    """The words that `check` takes."""
    parser.description = "Reads training code, never runs it, and says where gradients go wrong."
    parser.epilog = _EXAMPLES
    parser.add_argument(
        "paths", nargs="+", metavar="PATH", help="file, directory, or - for standard input"
    )
    chosen = parser.add_argument_group("what counts")
    add_rules(chosen)
    chosen.add_argument(
        "--pedantic", action="store_true", help="also show findings that are possible, not certain"
    )
    fixes = parser.add_argument_group("what is repaired")
    fixes.add_argument("--fix", action="store_true", help="repair what can be repaired safely")
    fixes.add_argument(
        "--unsafe-fixes",
        action="store_true",
        help="repair also where a person should look at the result",
    )
    fixes.add_argument(
        "--diff", action="store_true", help="show what would change, and change nothing"
    )
    files = parser.add_argument_group("which files")
    files.add_argument(
        "--exclude", action="append", metavar="PATTERN", help="leave out, in .gitignore's manner"
    )
    files.add_argument(
        "--include-tests", action="store_true", help="check test files, too: left out by default"
    )
    files.add_argument(
        "--stdin-filename", metavar="NAME", default="", help="what standard input is called"
    )
    output = parser.add_argument_group("how it is told")
    add_output(output)
    output.add_argument("--statistics", action="store_true", help="count findings by rule")
    output.add_argument("--exit-zero", action="store_true", help="findings do not fail the check")
    running = parser.add_argument_group("how it runs")
    running.add_argument(
        "--jobs", type=_jobs, metavar="N", default=0, help="processes; default: one for each core"
    )
    running.add_argument("--no-cache", action="store_true", help="read every file again")


def _jobs(word: str) -> int:
    if not word.isdecimal() or int(word) < 1:
        raise argparse.ArgumentTypeError(f"{word!r} is not a number of processes: 1, 2, 3 …")
    return int(word)


def run(arguments: argparse.Namespace) -> int:
    """Check what the words name; the exit code."""
    # A check makes many objects and no cycles to speak of, and then the process ends.
    gc.disable()
    from zerograd.check import check_session
    from zerograd.rules.selection import UnknownRule

    if arguments.statistics and not FORMATS[arguments.format].for_people:
        say(f"--statistics goes with --format text, not with {arguments.format}")
        return COULD_NOT
    progress = Progress("checking: {done} of {total} files")
    try:
        outcome = check_session.run(_options(arguments), progress.tell)
    except (NoRules, UnknownRule) as error:
        say(str(error))
        return COULD_NOT
    finally:
        progress.end()
    if not _tell(outcome, arguments):
        return COULD_NOT
    code = outcome.exit_code
    gc.freeze()
    return 0 if code == 1 and arguments.exit_zero else code


def _tell(outcome: Outcome, arguments: argparse.Namespace) -> bool:
    """Print what was found, or what would change; False if that could not be written."""
    from zerograd.report.text import remaining

    report = outcome.report
    asked = arguments.fix or arguments.unsafe_fixes
    if arguments.diff:
        told = write_bytes(outcome.diff, arguments.output)
        for problem in report.errors:
            say(f"{problem.path} {problem.message}")
        say(f"would fix {report.fixed}, {remaining(report)}")
        return told
    if asked and outcome.stdin is not None:
        # What comes in goes out, repaired: the report has to stand elsewhere.
        told = write_bytes(outcome.stdin, None)
        text = render(report, arguments)
        if arguments.output is not None:
            return write(text, arguments.output) and told
        sys.stderr.write(text)
        return told
    if asked and arguments.format != "text":
        say(f"{report.fixed} fixed, {remaining(report)}")
    return write(render(report, arguments), arguments.output)


def _options(arguments: argparse.Namespace) -> Options:
    from zerograd.check.check_session import Options

    select, ignore = chosen(arguments)
    stdin = sys.stdin.buffer.read() if "-" in arguments.paths else None
    return Options(
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
    )


def _repair(arguments: argparse.Namespace) -> Literal["", "show", "diff", "fix"]:
    if arguments.diff:
        return "diff"
    if arguments.fix or arguments.unsafe_fixes:
        return "fix"
    return "show" if FORMATS[arguments.format].shows_fixes else ""
