"""`zerograd merge`: merges the findings of a run's processes into one report."""

from __future__ import annotations

import argparse

from zerograd.cli.options import add_exit_zero, add_output, add_rules, rule_options
from zerograd.cli.output import COULD_NOT, render, write

_EXAMPLES = """\
examples:
  torchrun --nproc-per-node 8 -m zerograd run --ranks found/ train.py
  zerograd merge found/                     the findings of all ranks, each once
  zerograd merge node1/ node2/              … of machines without a common directory

the findings of a rank that was killed are included.

exit: 0 no findings, 1 findings (advice counts only if selected), 2 a directory could not be read
"""


def add(parser: argparse.ArgumentParser) -> None:
    """The options of `merge`."""
    parser.description = "Merges the findings of a run's ranks into one report."
    parser.epilog = _EXAMPLES
    parser.add_argument(
        "directories",
        nargs="+",
        metavar="DIR",
        help="a directory written by `zerograd run --ranks DIR`",
    )
    add_rules(parser.add_argument_group("rules"))
    output = parser.add_argument_group("output")
    add_output(output)
    add_exit_zero(output)


def run(arguments: argparse.Namespace) -> int:
    """Merge the directories; the exit code."""
    from zerograd.launch.run_session import fails, merge

    report, selection = merge(arguments.directories, *rule_options(arguments))
    if not write(render(report, arguments), arguments.output) or report.errors:
        return COULD_NOT
    return int(fails(report, selection) and not arguments.exit_zero)
