"""`zerograd report`: makes a page of what `zerograd run --record` wrote."""

from __future__ import annotations

import argparse

from zerograd.cli.options import NoRules, add_rules, chosen
from zerograd.cli.output import COULD_NOT, Progress, say

_EXAMPLES = """\
examples:
  zerograd run --html report.html train.py  run, and make the page at once
  zerograd run --record run.jsonl train.py  make a recording
  zerograd report run.jsonl -o report.html  make a page of it, on any machine: torch is not needed
  zerograd report ranks/ -o report.html     several recordings: the ranks of a run, side by side

the page is one file that loads nothing: open it in a browser, send it to a colleague.

exit: 0 clean, 1 findings (advice counts where it was selected), 2 there is no page, or a recording
could not be read to its end; what stands before is shown all the same
"""


def add(parser: argparse.ArgumentParser) -> None:
    """The words that `report` takes."""
    parser.description = "Makes a page of a recorded run: verdict, findings, timeline, norms."
    parser.epilog = _EXAMPLES
    parser.add_argument(
        "recordings", nargs="+", metavar="RECORDING", help="a recording, or a directory of them"
    )
    parser.add_argument(
        "-o", "--output", metavar="FILE", default="report.html", help="default: report.html"
    )
    add_rules(parser.add_argument_group("what counts"))
    parser.add_argument("--exit-zero", action="store_true", help="findings do not fail the command")


def run(arguments: argparse.Namespace) -> int:
    """Make the page that the words ask for; the exit code."""
    from zerograd.launch.html_report import make
    from zerograd.launch.run_session import Refused
    from zerograd.rules.selection import UnknownRule

    progress = Progress("reading: {share} %")
    try:
        failed, problems = make(
            arguments.recordings, arguments.output, *chosen(arguments), progress.tell
        )
    except (NoRules, Refused, UnknownRule) as error:
        say(str(error))
        return COULD_NOT
    finally:
        progress.end()
    for problem in problems:
        line = "" if problem.line is None else f":{problem.line}"
        say(f"{problem.path}{line}: {problem.message}")
    say(f"{arguments.output} is written")
    if problems:
        return COULD_NOT
    return int(failed and not arguments.exit_zero)
