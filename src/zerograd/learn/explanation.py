"""A rule's page as text, with a bad and a good example and the finding; or the list of the rules."""

from __future__ import annotations

import io
from collections.abc import Iterator, Sequence

from zerograd.core.rule import Page
from zerograd.learn.content import Code, CommandReport, Part, Say
from zerograd.learn.presenter import Terminal
from zerograd.learn.rule_pages import Explained, explained
from zerograd.rules.catalogue import PAGES
from zerograd.rules.selection import expand


def explanation(rule: str | None, *, color: bool = False) -> str:
    """The page of a rule, or a list if there are several or none is named. Raises `UsageError`."""
    if rule is None:
        return _table(PAGES)
    codes = expand(rule, PAGES)
    chosen = [page for page in PAGES if page.code in codes]
    if len(chosen) > 1:
        return _table(chosen)
    text = io.StringIO()
    shown = Terminal(text, None, color=color)
    shown.title(f"{chosen[0].code} {chosen[0].name} ({chosen[0].level})")
    for part in _parts(explained(chosen[0])):
        shown.show(part)
    return text.getvalue()


def _parts(rule: Explained) -> Iterator[Part]:
    """A rule's page, in the same parts as lessons."""
    yield Say(f"*{rule.page.summary}*")
    yield from map(Say, rule.why)
    if rule.bad:
        yield Code(rule.bad, "bad")
        if rule.found is not None:
            yield CommandReport(*rule.found)
        else:
            yield Say(
                "The finding is not shown here: it needs a run with torch, and for some rules with several ranks."
            )
        yield Code(rule.good, "good")
        for excuse in rule.page.excuses:
            yield Say(f"Not reported (`{excuse.value}`): {excuse.reason}.")
        yield Say(f"If the code is right as it is: `# zerograd: allow[{rule.page.name}]`")


def _table(pages: Sequence[Page]) -> str:
    width = max(len(page.name) for page in pages)
    return "".join(
        f"{page.code}  {page.name:<{width}}  {page.level:<6}  {page.summary}\n" for page in pages
    )
