"""`zerograd replay`: checks a recording of `zerograd run --record` again."""

from __future__ import annotations

import argparse

from zerograd.cli.options import add_exit_zero, add_output, add_rules, rule_options
from zerograd.cli.output import COULD_NOT, Progress, render, write

_EXAMPLES = """\
examples:
  zerograd run --record run.jsonl train.py  make a recording
  zerograd replay run.jsonl                 check it again, on any machine, without torch
  zerograd replay run.jsonl --select ZG3    … with other rules

exit: 0 no findings, 1 findings (advice counts only if selected), 2 the recording could not be read
to its end
"""


def add(parser: argparse.ArgumentParser) -> None:
    """The options of `replay`."""
    parser.description = "Checks a recording of `zerograd run --record` again."
    parser.epilog = _EXAMPLES
    parser.add_argument("recording", metavar="FILE", help="a recording")
    add_rules(parser.add_argument_group("rules"))
    output = parser.add_argument_group("output")
    add_output(output)
    add_exit_zero(output)


def run(arguments: argparse.Namespace) -> int:
    """Replay a recording; the exit code."""
    from zerograd.launch.replay import judged
    from zerograd.launch.run_session import fails

    progress = Progress("reading: {share} %")
    try:
        done = judged(arguments.recording, *rule_options(arguments), progress=progress.show)
    finally:
        progress.end()
    report = done.report
    if not write(render(report, arguments), arguments.output) or report.errors:
        return COULD_NOT
    return int(fails(report, done.selection) and not arguments.exit_zero)
