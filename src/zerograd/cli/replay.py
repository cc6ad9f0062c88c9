"""`zerograd replay`: reads what `zerograd run --record` wrote, and judges it again."""

from __future__ import annotations

import argparse

from zerograd.cli.options import NoRules, add_output, add_rules, chosen
from zerograd.cli.output import COULD_NOT, Progress, render, say, write

_EXAMPLES = """\
examples:
  zerograd run --record run.jsonl train.py  make a recording
  zerograd replay run.jsonl                 judge it again, on any machine: torch is not needed
  zerograd replay run.jsonl --select ZG3    … by other rules

exit: 0 clean, 1 findings (advice counts where it was selected), 2 the recording could not be read,
or not to its end
"""


def add(parser: argparse.ArgumentParser) -> None:
    """The words that `replay` takes."""
    parser.description = "Reads what `zerograd run --record` wrote, and judges it again."
    parser.epilog = _EXAMPLES
    parser.add_argument("recording", metavar="FILE", help="a recording")
    add_rules(parser.add_argument_group("what counts"))
    output = parser.add_argument_group("how it is told")
    add_output(output)
    output.add_argument("--exit-zero", action="store_true", help="findings do not fail the replay")
    parser.set_defaults(statistics=False)


def run(arguments: argparse.Namespace) -> int:
    """Judge the recording that the words name; the exit code."""
    from zerograd.launch.replay import judged
    from zerograd.launch.run_session import Refused, fails
    from zerograd.rules.selection import UnknownRule

    progress = Progress("reading: {share} %")
    try:
        done = judged(arguments.recording, *chosen(arguments), progress=progress.tell)
    except (NoRules, Refused, UnknownRule) as error:
        say(str(error))
        return COULD_NOT
    finally:
        progress.end()
    report = done.report
    if not write(render(report, arguments), arguments.output):
        return COULD_NOT
    if report.errors:
        return COULD_NOT
    return int(fails(report, done.selection) and not arguments.exit_zero)
