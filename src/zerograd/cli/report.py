"""`zerograd report`: makes a web page of recordings of `zerograd run --record`."""

from __future__ import annotations

import argparse

from zerograd.cli.options import add_exit_zero, add_rules, rule_options
from zerograd.cli.output import COULD_NOT, Progress, inform, say

_EXAMPLES = """\
examples:
  zerograd run --html report.html train.py  run a script, and make the page at once
  zerograd run --record run.jsonl train.py  make a recording
  zerograd report run.jsonl -o report.html  make a page of it, on any machine, without torch
  zerograd report ranks/ -o report.html     several recordings: the ranks of a run, side by side

the page is one file that needs no network: open it in a browser, send it to a colleague.

exit: 0 no findings, 1 findings (advice counts only if selected), 2 the page could not be made, or a
recording could not be read to its end; the page then shows what could be read
"""


def add(parser: argparse.ArgumentParser) -> None:
    """The options of `report`."""
    parser.description = "Makes a web page of a recorded run: findings, timeline, gradient norms."
    parser.epilog = _EXAMPLES
    parser.add_argument(
        "recordings", nargs="+", metavar="RECORDING", help="a recording, or a directory of them"
    )
    parser.add_argument(
        "-o", "--output", metavar="FILE", default="report.html", help="default: report.html"
    )
    add_rules(parser.add_argument_group("rules"))
    add_exit_zero(parser)


def run(arguments: argparse.Namespace) -> int:
    """Make the page; the exit code."""
    from zerograd.launch.html_report import make

    progress = Progress("reading: {share} %")
    try:
        failed, problems = make(
            arguments.recordings, arguments.output, *rule_options(arguments), progress.show
        )
    finally:
        progress.end()
    for problem in problems:
        line = "" if problem.line is None else f":{problem.line}"
        say(f"{problem.path}{line}: {problem.message}")
    inform(f"{arguments.output} is written", arguments)
    if problems:
        return COULD_NOT
    return int(failed and not arguments.exit_zero)
