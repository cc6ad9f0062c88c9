"""`zerograd explain`: what a rule is about, with a bad and a good example."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import TYPE_CHECKING

from zerograd.commands.output import COULD_NOT, say

if TYPE_CHECKING:
    from zerograd.check import Page


def add(parser: argparse.ArgumentParser) -> None:
    """The words that `explain` takes."""
    parser.description = "What a rule is about, with a bad and a good example. Alone: all rules."
    parser.add_argument("rule", nargs="?", metavar="RULE", help="code or name")


def run(arguments: argparse.Namespace) -> int:
    """Print the page that the words name, or the list of all rules; the exit code."""
    from zerograd.check import catalogue
    from zerograd.selection import UnknownRule, expand

    pages = catalogue()
    if arguments.rule is None:
        print(_table(pages))
        return 0
    try:
        codes = expand(arguments.rule, pages)
    except UnknownRule as error:
        say(str(error))
        return COULD_NOT
    chosen = [page for page in pages if page.code in codes]
    if len(chosen) > 1:
        print(_table(chosen))
        return 0
    page = chosen[0]
    print(f"{page.code} {page.name} ({page.level})\n\n{page.doc.strip()}")
    return 0


def _table(pages: Sequence[Page]) -> str:
    width = max(len(page.name) for page in pages)
    return "\n".join(
        f"{page.code}  {page.name:<{width}}  {page.level:<6}  {page.doc.strip().splitlines()[0]}"
        for page in pages
    )
