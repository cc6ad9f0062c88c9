"""`zerograd explain`: a rule's page, with a bad and a good example and the finding."""

from __future__ import annotations

import argparse
import sys

from zerograd.cli.options import add_color
from zerograd.cli.output import wants_color


def add(parser: argparse.ArgumentParser) -> None:
    """The options of `explain`."""
    parser.description = (
        "Explains a rule with a bad and a good example. Without a rule: lists all rules."
    )
    parser.add_argument(
        "rule", nargs="?", metavar="RULE", help="a code, a name, or ZG1 for all of ZG1xx"
    )
    add_color(parser)


def run(arguments: argparse.Namespace) -> int:
    """Print the page of a rule, or the list of all rules; the exit code."""
    from zerograd.learn.explanation import explanation

    sys.stdout.write(explanation(arguments.rule, color=wants_color(arguments)))
    return 0
