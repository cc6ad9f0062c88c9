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


LISTS_THEM = "`zerograd explain` lists them"


@pytest.mark.parametrize(
    ("selector", "hint"),
    [
        ("stale-gradients", "stale-gradient (ZG101) or discarded-gradient (ZG102)"),
        ("clip", "clip-before-unscale (ZG201)"),
        (" Clip ", "clip-before-unscale (ZG201)"),
        ("gradient", "stale-gradient (ZG101) or discarded-gradient (ZG102)"),
        (
            "ZG01",
            "ZG301 (unscaled-window) or ZG201 (clip-before-unscale) or ZG101 (stale-gradient)",
        ),
        ("ZG999", ""),
        ("E501", ""),
        ("", ""),
        ("Z", ""),
    ],
)
def test_an_unknown_rule_gets_suggestions(selector: str, hint: str) -> None:
    with pytest.raises(UnknownRule) as caught:
        expand(selector, RULES)
    said = f"did you mean {hint}?" if hint else LISTS_THEM
    assert str(caught.value) == f"unknown rule {selector.strip()!r}; {said}"


def test_no_more_than_three_rules_are_suggested() -> None:
    rules = [Rule(f"ZG10{number}", f"some-rule-{end}") for number, end in enumerate("abcde")]
    with pytest.raises(UnknownRule) as caught:
        expand("some-rule-x", rules)
    assert str(caught.value).count("some-rule-") == 4


def test_without_select_everything_counts_and_nothing_is_explicit() -> None:
    assert resolve(None, (), RULES) == Selection(ALL)


def test_ignore_is_stronger_than_select() -> None:
    selection = resolve(("ZG1",), ("stale-gradient",), RULES)
    assert selection == Selection(frozenset({"ZG102"}), frozenset({"ZG102"}))


@pytest.mark.parametrize("everything", ["ALL", "ZG"])
def test_selecting_everything_asks_for_nothing_in_particular(everything: str) -> None:
    assert resolve((everything, "ZG3"), (), RULES) == Selection(ALL, frozenset({"ZG301"}))
