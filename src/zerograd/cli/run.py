"""`zerograd run`: runs a script like python, and reports gradient bugs."""

from __future__ import annotations

import argparse
import contextlib
import os
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

from zerograd.cli.options import add_exit_zero, add_output, add_rules, number_of, rule_options
from zerograd.cli.output import COULD_NOT, render, say, silent, wants_color
from zerograd.core.usage_error import UsageError

if TYPE_CHECKING:
    from zerograd.launch.run_session import RunOptions, RunOutcome

_USAGE = """\
zerograd run [options] SCRIPT [ARGUMENTS…]
       zerograd run [options] -m MODULE [ARGUMENTS…]"""
_EXAMPLES = """\
options of zerograd come before the script; everything after it belongs to the script.

examples:
  zerograd run train.py --lr 0.1            like `python train.py --lr 0.1`, but watched
  zerograd run -m project.train             like `python -m project.train`
  zerograd run train.ipynb                  the cells of a notebook, from top to bottom
  zerograd run --on raise train.py          stop at the first error, with a traceback
  zerograd run --steps 200 train.py         watch 200 steps and report; the rest runs unwatched
  zerograd run --steps 200 --stop train.py  … and end the script there
  zerograd run --select ZG1 train.py        by code, by name, or by the beginning of a code
  zerograd run --format json --output found.json train.py
  zerograd run --html report.html train.py  make a web page: findings, timeline, norms
  zerograd run --record run.jsonl train.py  keep the events, for zerograd replay and report
  zerograd run --live train.py              show the state of the gradients while it runs
  torchrun --nproc-per-node 8 -m zerograd run train.py      every rank is watched, one report;
  zerograd run -m torch.distributed.run --nproc-per-node 8 train.py       the same from outside

findings are printed on standard error as they happen, with a summary at the end; standard output
belongs to the script. to allow what a rule finds in a part of the script:
  with zerograd.allow("stale-gradient"): …

exit: the script's own code if it is not 0; else 0 no findings, 1 findings (advice counts only if
selected), 2 the script could not be run or watched
"""
_VALUED = (
    "--on", "--select", "--ignore", "--format", "--output", "--record", "--html", "--color",
    "--check-ranks", "--ranks", "--steps",
)  # fmt: skip
"""The options of `run` that take a value."""


def add(parser: argparse.ArgumentParser) -> None:
    """The options of `run`, which come before the script."""
    parser.usage = _USAGE
    parser.description = "Runs a script like python, and reports gradient bugs."
    parser.epilog = _EXAMPLES
    parser.add_argument(
        "--on",
        choices=("warn", "raise"),
        default="warn",
        help="what a finding does; raise: stop at the first error",
    )
    parser.add_argument(
        "--steps",
        type=number_of("steps"),
        metavar="N",
        default=0,
        help="watch N steps, report, and let the script run on unwatched",
    )
    parser.add_argument("--stop", action="store_true", help="with --steps: end the script instead")
    add_rules(parser.add_argument_group("rules"))
    output = parser.add_argument_group("output")
    add_output(output)
    output.add_argument("--html", metavar="FILE", help="make a web page of the run")
    output.add_argument(
        "--record", metavar="FILE", help="record the events in a file, for replay and report"
    )
    output.add_argument(
        "--live",
        action="store_true",
        help="show the state of the gradients while the script runs, on a terminal",
    )
    add_exit_zero(output)
    ranks = parser.add_argument_group("ranks")
    ranks.add_argument(
        "--check-ranks",
        choices=("default", "every-step", "off"),
        default="default",
        help="how often ranks compare their parameters; default: once in 98 steps",
    )
    ranks.add_argument(
        "--ranks", metavar="DIR", help="where each rank writes its findings, for zerograd merge"
    )


def split(arguments: Sequence[str]) -> tuple[Sequence[str], Sequence[str]]:
    """The arguments of zerograd, and those of the program, which begin with its name."""
    at = 1
    while at < len(arguments) and arguments[at][:1] == "-" and arguments[at] not in ("-", "--"):
        if arguments[at].startswith("-m"):
            break
        at += 2 if arguments[at] in _VALUED else 1
    return arguments[:at], arguments[at + 1 if arguments[at : at + 1] == ["--"] else at :]


def run(arguments: argparse.Namespace) -> int:
    """Run a program; the exit code."""
    from zerograd.launch.run_session import run as watched

    pid = os.getpid()
    options = _options(arguments)
    for name, errors in arguments.strictness.items():
        getattr(sys, name).reconfigure(errors=errors)
    outcome = watched(options, lambda report: render(report, arguments))
    if arguments.html and outcome.leads and os.getpid() == pid:
        outcome = _page(arguments, options, outcome)
    if outcome.interrupted:
        # The report is printed: python now has to die of the signal, so that a shell stops, too.
        sys.excepthook = silent
        raise KeyboardInterrupt
    return outcome.code


def _page(arguments: argparse.Namespace, options: RunOptions, outcome: RunOutcome) -> RunOutcome:
    """Make the page of `--html`. Recordings are kept with `--record`, or if the page failed."""
    from zerograd.launch.html_report import make
    from zerograd.launch.run_session import RunOutcome

    assert options.record is not None
    page, whole = (os.path.join(options.home, one) for one in (arguments.html, options.record))
    try:
        make(outcome.recordings, page, options.select, options.ignore)
    except UsageError as error:
        _say(f"no page was made: {error}")
        return RunOutcome(outcome.code or COULD_NOT, outcome.interrupted)
    if not arguments.record:
        for recording in (whole, *outcome.recordings):
            with contextlib.suppress(FileNotFoundError):
                os.remove(recording)
    if not arguments.quiet:
        _say(f"{arguments.html} shows the run")
    return outcome


def _say(message: str) -> None:
    with contextlib.suppress(Exception):  # the program may have closed its standard error
        say(message)


def _options(arguments: argparse.Namespace) -> RunOptions:
    from zerograd.launch.launch import LaunchTarget
    from zerograd.launch.run_session import RunOptions

    if arguments.stop and not arguments.steps:
        raise UsageError("--stop ends the script after --steps N; name the number of steps")
    name, *rest = arguments.program or [""]
    module = name.startswith("-m")
    if module:
        name, *rest = [name[2:], *rest] if name != "-m" else rest or [""]
    if not name:
        what = "a MODULE" if module else "a SCRIPT, or -m MODULE"
        raise UsageError(f"run needs {what}; see zerograd run --help")
    select, ignore = rule_options(arguments)
    return RunOptions(
        LaunchTarget(name, tuple(rest), module),
        on=arguments.on,
        select=select,
        ignore=ignore,
        output=arguments.output,
        record=arguments.record or _beside(arguments.html),
        live=arguments.live,
        color=wants_color(arguments, sys.stderr),
        quiet=arguments.quiet,
        exit_zero=arguments.exit_zero,
        report_to_stdout=arguments.format != "text",
        check_ranks=arguments.check_ranks,
        ranks=arguments.ranks,
        steps=arguments.steps,
        ends=arguments.stop,
    )


def _beside(page: str | None) -> str | None:
    """The recording that a page is made from: a killed run leaves it there."""
    if page is None:
        return None
    if os.path.isdir(page):
        raise UsageError(f"{page} is a directory; name a file for the page")
    return f"{page}.jsonl"
