"""Rules are chosen by code, by name, by the beginning of a code; for an unknown name the nearest one is suggested."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from zerograd.rules.selection import Selection, UnknownRule, expand, resolve


@dataclass(frozen=True)
class Rule:
    code: str
    name: str


RULES = [
    Rule("ZG101", "stale-gradient"),
    Rule("ZG102", "discarded-gradient"),
    Rule("ZG201", "clip-before-unscale"),
    Rule("ZG301", "unscaled-window"),
]
ALL = frozenset(rule.code for rule in RULES)


@pytest.mark.parametrize(
    ("selector", "codes"),
    [
        ("ZG101", {"ZG101"}),
        ("zg101", {"ZG101"}),
        ("stale-gradient", {"ZG101"}),
        ("Stale-Gradient", {"ZG101"}),
        ("ZG1", {"ZG101", "ZG102"}),
        (" ZG20 ", {"ZG201"}),
        ("ZG", ALL),
        ("all", ALL),
    ],
)
def test_a_code_a_name_or_a_prefix_selects_rules(selector: str, codes: set[str]) -> None:
    assert expand(selector, RULES) == codes


@pytest.mark.parametrize(
    ("selector", "printed"),
    [
        ("stale-gradients", "did you mean stale-gradient (ZG101)"),
        ("clip", "clip-before-unscale"),
        ("ZG999", "unknown rule"),
        ("ZG01", "ZG101 (stale-gradient)"),
        ("E501", "unknown rule"),
        ("", "unknown rule"),
        ("Z", "unknown rule"),
    ],
)
def test_an_unknown_rule_gets_suggestions(selector: str, printed: str) -> None:
    with pytest.raises(UnknownRule, match=r"unknown rule") as caught:
        expand(selector, RULES)
    assert printed in str(caught.value)


def test_without_select_everything_counts_and_nothing_is_explicit() -> None:
    assert resolve(None, (), RULES) == Selection(ALL)


def test_ignore_is_stronger_than_select() -> None:
    selection = resolve(("ZG1",), ("stale-gradient",), RULES)
    assert selection == Selection(frozenset({"ZG102"}), frozenset({"ZG102"}))


def test_selecting_everything_asks_for_nothing_in_particular() -> None:
    assert resolve(("ALL", "ZG3"), (), RULES) == Selection(ALL, frozenset({"ZG301"}))
