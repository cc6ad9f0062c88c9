"""What is true of which rules: the level, the reader, the feature that they apply to, and what they yield to."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from support.event_sequences import EVENTS
from zerograd.core.events import Excuse
from zerograd.core.rule import Feature, Rule, Windows
from zerograd.rules.catalogue import RULES

SCALER_RULES = {"ZG201", "ZG205", "ZG206", "ZG207", "ZG208"}
FACTS: dict[str, tuple[Callable[[Rule], bool], set[str]]] = {
    "advice": (
        lambda one: one.level == "advice",
        {"ZG111", "ZG112", "ZG301", "ZG302", "ZG303", "ZG304", "ZG403"},
    ),
    "for source only": (
        lambda one: one.only == "static",
        {"ZG107", "ZG301", "ZG501"},
    ),
    "for runs only": (
        lambda one: one.only == "runtime",
        {"ZG108", "ZG110", "ZG112", "ZG402", "ZG403"},
    ),
    "about what a window holds": (
        lambda one: one.windows is Windows.CONTENTS,
        {"ZG103", "ZG301"},
    ),
    "about the length of a window": (lambda one: one.windows is Windows.LENGTH, {"ZG302"}),
    "about the last window": (lambda one: one.windows is Windows.REMAINDER, {"ZG303", "ZG304"}),
    "for scalers": (lambda one: one.applies_to is Feature.SCALER, SCALER_RULES),
    "for several optimizers": (
        lambda one: one.applies_to is Feature.SEVERAL_OPTIMIZERS,
        {"ZG106"},
    ),
    "for gradients that ranks average": (
        lambda one: one.applies_to is Feature.SHARED_GRADIENTS,
        {"ZG401", "ZG403"},
    ),
    "for replicas": (lambda one: one.applies_to is Feature.REPLICAS, {"ZG402"}),
    "sure of every branch": (
        lambda one: one.most_decisions == 0,
        {"ZG103", "ZG302", "ZG303", "ZG304"},
    ),
    "possible after two decisions": (
        lambda one: one.most_decisions == 2,
        {one.code for one in RULES} - {"ZG103", "ZG302", "ZG303", "ZG304"},
    ),
    "reported after ten steps in a row": (lambda one: one.in_a_row == 10, {"ZG110"}),
    "reported at once": (
        lambda one: one.in_a_row == 0,
        {one.code for one in RULES} - {"ZG110"},
    ),
    "sought with windows of one micro-batch": (lambda one: one.single, {"ZG101"}),
    "about what an earlier call leaves": (lambda one: one.outlives_calls, {"ZG101", "ZG106"}),
    "kept by a backward that is not seen": (
        lambda one: one.misses_backward,
        {"ZG102", "ZG104", "ZG105", "ZG107"},
    ),
    "about the scale of a loss and of its step": (
        lambda one: one.pairs_scaling,
        {"ZG205", "ZG208"},
    ),
    "without a need": (lambda one: not one.needs, {"ZG108"}),
    "with a second need": (
        lambda one: len(one.needs) > 1,
        {"ZG101", "ZG102", "ZG201", "ZG202", "ZG203", "ZG204"},
    ),
}


@pytest.mark.parametrize("fact", FACTS)
def test_these_rules_and_no_others_are(fact: str) -> None:
    holds, codes = FACTS[fact]
    assert {one.code for one in RULES if holds(one)} == codes


def test_a_need_can_be_asked_of_every_event() -> None:
    for one in RULES:
        for need in one.needs:
            assert {need(event) for event in EVENTS} <= {True, False}


def test_a_rule_is_named_as_its_file() -> None:
    for one in RULES:
        assert one.check.__module__ == f"zerograd.rules.{one.name.replace('-', '_')}"


def test_a_rule_is_silent_where_another_says_more() -> None:
    yields = {one.code: one.yields_to.code for one in RULES if one.yields_to is not None}
    assert yields == {"ZG106": "ZG101", "ZG204": "ZG203", "ZG303": "ZG304"}


def test_these_reasons_excuse_what_looks_wrong() -> None:
    assert {one.code: one.excuses for one in RULES if one.excuses} == {
        "ZG102": (
            Excuse.IN_STEP,
            Excuse.WEIGHTS_MOVED,
            Excuse.UNSEEN,
            Excuse.ONE_MODULE,
            Excuse.CHOSEN,
            Excuse.NOT_FINITE,
        ),
        "ZG301": (Excuse.MAY_BE_WHOLE,),
        "ZG403": (Excuse.STATIC_GRAPH,),
        "ZG501": (Excuse.OTHER_ARM,),
    }
