"""An allow comment allows nothing.

`# zerograd: allow[name]` silences a rule where the code is right as it is. A comment that silences
nothing may hide a real bug later. Either the code was repaired and the comment forgotten, or the name of
the rule is misspelt.

Remove the comment, or name the right rule: `zerograd explain` lists them. A comment behind code applies
to that statement; alone on a line, to the statement or function below; before the first statement, to
the whole file.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable

from zerograd.core.finding import Finding
from zerograd.core.rule import Page
from zerograd.core.suppressions import Allow

PAGE = Page(code="ZG001", name="unused-allow", doc=__doc__, level="advice", only="static")


def check(allows: Iterable[Allow], unseen: Collection[str] = ()) -> list[Finding]:
    """A finding for each comment that allows nothing; only a run can see the `unseen` rules."""
    found = []
    for allow in allows:
        if allow.used or (allow.known and allow.name in unseen):
            continue
        if not allow.name:
            message = "allow names no rule"
            advice = "name the rule: # zerograd: allow[stale-gradient]"
        elif allow.known:
            message = f"allow[{allow.name}] allows nothing here"
            advice = "remove the comment"
        else:
            message = f"allow[{allow.name}] names no rule"
            advice = "zerograd explain lists the rules"
        found.append(Finding(PAGE.code, PAGE.name, PAGE.level, message, allow.site, help=advice))
    return found
