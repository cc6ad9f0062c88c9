"""A comment that allows nothing is reported, with what to do; one for a rule that only a run can break is not."""

from __future__ import annotations

import pytest

from zerograd.core.events import Site
from zerograd.core.finding import Finding
from zerograd.core.suppressions import Allow
from zerograd.rules import unused_allow

SITE = Site("train.py", 3)


def allow(name: str, *, known: bool = True, used: bool = False) -> Allow:
    return Allow(name, SITE, 3, 3, known, used)


@pytest.mark.parametrize(
    ("comment", "message", "advice"),
    [
        (
            allow("stale-gradient"),
            "allow[stale-gradient] allows nothing here",
            "remove the comment",
        ),
        (allow("colour", known=False), "allow[colour] names no rule", "zerograd explain lists the rules"),
        (
            allow("", known=False),
            "allow names no rule",
            "name the rule: # zerograd: allow[stale-gradient]",
        ),
    ],
)  # fmt: skip
def test_a_comment_that_allows_nothing_is_reported(
    comment: Allow, message: str, advice: str
) -> None:
    assert unused_allow.check([comment]) == [
        Finding("ZG001", "unused-allow", "advice", message, SITE, help=advice)
    ]


def test_a_comment_that_was_needed_is_not_reported_and_the_next_one_is() -> None:
    found = unused_allow.check([allow("a", used=True), allow("b"), allow("c")])
    assert [one.message.partition(" ")[0] for one in found] == ["allow[b]", "allow[c]"]


def test_a_comment_for_a_rule_that_only_a_run_can_break_is_not_reported() -> None:
    unseen = ["diverged-ranks"]
    assert unused_allow.check([allow("diverged-ranks")], unseen) == []
    assert len(unused_allow.check([allow("stale-gradient")], unseen)) == 1
    assert len(unused_allow.check([allow("diverged-ranks", known=False)], unseen)) == 1


def test_only_source_has_comments() -> None:
    assert unused_allow.PAGE.only == "static"
