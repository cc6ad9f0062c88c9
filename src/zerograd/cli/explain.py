"""`zerograd explain`: a rule's page, with a bad and a good example and the finding."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from zerograd.cli.options import add_color
from zerograd.cli.output import COULD_NOT, colored, say
from zerograd.learn.content import Code, Part, Say, Verdict

if TYPE_CHECKING:
    from zerograd.core.rule import Page
    from zerograd.learn.rule_pages import Explained


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
    from zerograd.learn.presenter import Terminal
    from zerograd.learn.rule_pages import explained
    from zerograd.rules.catalogue import PAGES
    from zerograd.rules.selection import UnknownRule, expand

    if arguments.rule is None:
        print(_table(PAGES))
        return 0
    try:
        codes = expand(arguments.rule, PAGES)
    except UnknownRule as error:
        say(str(error))
        return COULD_NOT
    chosen = [page for page in PAGES if page.code in codes]
    if len(chosen) > 1:
        print(_table(chosen))
        return 0
    shown = Terminal(sys.stdout, None, color=colored(arguments))
    shown.title(f"{chosen[0].code} {chosen[0].name} ({chosen[0].level})")
    for part in _parts(explained(chosen[0])):
        shown.show(part)
    return 0


def _parts(rule: Explained) -> Iterator[Part]:
    """A rule's page, in the same parts as lessons."""
    yield Say(f"*{rule.summary}*")
    yield from map(Say, rule.why)
    if rule.bad:
        yield Code(rule.bad, "bad")
        if rule.found is not None:
            yield Verdict(*rule.found)
        else:
            yield Say(
                "The finding is not shown here: only a run with torch, and for some rules with ranks, has it."
            )
        yield Code(rule.good, "good")
        for excuse in rule.page.excuses:
            yield Say(f"Not reported (`{excuse.value}`): {excuse.reason}.")
        yield Say(f"If the code is right as it is: `# zerograd: allow[{rule.page.name}]`")


def _table(pages: Sequence[Page]) -> str:
    width = max(len(page.name) for page in pages)
    return "\n".join(
        f"{page.code}  {page.name:<{width}}  {page.level:<6}  {page.summary}" for page in pages
    )
