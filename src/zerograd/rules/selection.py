"""Selects rules: `select` and `ignore`, by code, by name, or by the beginning of a code.

Advice fails a check only if its rule was selected; `ignore` is stronger than `select`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Protocol

from zerograd.core.records import dataclass
from zerograd.core.usage_error import UsageError

EVERYTHING = ("ALL", "ZG")


class Named(Protocol):
    """The part of a rule that is needed to select it."""

    @property
    def code(self) -> str:
        """`ZG101`."""
        ...

    @property
    def name(self) -> str:
        """`stale-gradient`."""
        ...


@dataclass(frozen=True)
class Selection:
    """The selected codes, and those among them that were selected by their code, name or prefix."""

    codes: frozenset[str]
    explicit: frozenset[str] = frozenset()


class UnknownRule(UsageError, ValueError):
    """A name that matches no rule; the message suggests similar ones."""


def expand(selector: str, rules: Sequence[Named]) -> frozenset[str]:
    """The codes that one item of `select` or `ignore` matches."""
    upper = selector.strip().upper()
    if upper in EVERYTHING:
        return frozenset(rule.code for rule in rules)
    codes = frozenset(
        rule.code
        for rule in rules
        if rule.name.upper() == upper or (upper.startswith("ZG") and rule.code.startswith(upper))
    )
    if not codes:
        raise UnknownRule(f"unknown rule {selector.strip()!r}{_hint(selector, rules)}")
    return codes


def _hint(selector: str, rules: Sequence[Named]) -> str:
    from difflib import get_close_matches

    names = {rule.name: f"{rule.name} ({rule.code})" for rule in rules}
    names.update({rule.code: f"{rule.code} ({rule.name})" for rule in rules})
    lower, upper = selector.strip().lower(), selector.strip().upper()
    close = [name for name in names if lower in name.split("-")]
    close = close or get_close_matches(lower, names, 3, 0.6) or get_close_matches(upper, names)
    if close:
        return f"; did you mean {' or '.join(names[name] for name in close)}?"
    return "; `zerograd explain` lists them"


def resolve(
    select: Iterable[str] | None, ignore: Iterable[str], rules: Sequence[Named]
) -> Selection:
    """The selection for `select` and `ignore`; without `select`, all rules."""
    if select is None:
        codes = frozenset(rule.code for rule in rules)
        explicit: frozenset[str] = frozenset()
    else:
        selectors = tuple(select)
        codes = frozenset().union(*(expand(selector, rules) for selector in selectors))
        single = (selector for selector in selectors if selector.strip().upper() not in EVERYTHING)
        explicit = frozenset().union(*(expand(selector, rules) for selector in single))
    ignored = frozenset().union(*(expand(selector, rules) for selector in ignore))
    return Selection(codes - ignored, explicit - ignored)
