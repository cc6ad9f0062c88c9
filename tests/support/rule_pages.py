"""Rules and their examples as parameters of tests."""

from __future__ import annotations

import pytest

from zerograd.core.rule import Rule
from zerograd.learn.rule_pages import LAYOUT
from zerograd.rules.catalogue import RULES


def rules_for(reader: str) -> pytest.MarkDecorator:
    chosen = [rule for rule in RULES if rule.only in ("both", reader)]
    return pytest.mark.parametrize("rule", chosen, ids=lambda rule: rule.code)


by_rule = pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.code)


def example(rule: Rule, which: str) -> str:
    page = LAYOUT.fullmatch(rule.doc)
    assert page is not None
    return page[which]
