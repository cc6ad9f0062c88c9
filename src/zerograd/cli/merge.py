"""`zerograd merge`: reads what the processes of a run have left, and tells it as one report."""

from __future__ import annotations

import argparse

from zerograd.cli.options import NoRules, add_output, add_rules, chosen
from zerograd.cli.output import COULD_NOT, render, say, write

_EXAMPLES = """\
examples:
  torchrun --nproc-per-node 8 -m zerograd run --ranks found/ train.py
  zerograd merge found/                     what all ranks have found, each place once
  zerograd merge node1/ node2/              … of machines that share no directory

a rank that was killed has left what it had found until then.

exit: 0 clean, 1 findings (advice counts where it was selected), 2 it could not be read
"""


def add(parser: argparse.ArgumentParser) -> None:
    """The words that `merge` takes."""
    parser.description = "Reads what the ranks of a run have found, and tells it as one report."
    parser.epilog = _EXAMPLES
    parser.add_argument(
        "directories", nargs="+", metavar="DIR", help="a directory of `zerograd run --ranks DIR`"
    )
    add_rules(parser.add_argument_group("what counts"))
    output = parser.add_argument_group("how it is told")
    add_output(output)
    output.add_argument("--exit-zero", action="store_true", help="findings do not fail the merge")
    parser.set_defaults(statistics=False)


def run(arguments: argparse.Namespace) -> int:
    """Merge what stands in the directories that the words name; the exit code."""
    from zerograd.launch.run_session import Refused, fails, merge
    from zerograd.rules.selection import UnknownRule

    try:
        report, selection = merge(arguments.directories, *chosen(arguments))
    except (NoRules, Refused, UnknownRule) as error:
        say(str(error))
        return COULD_NOT
    if not write(render(report, arguments), arguments.output):
        return COULD_NOT
    if report.errors:
        return COULD_NOT
    return int(fails(report, selection) and not arguments.exit_zero)
