"""Every named excuse belongs to a rule."""

from __future__ import annotations

from zerograd.core.events import Excuse
from zerograd.rules.catalogue import RULES


def test_every_excuse_is_one_of_a_rule() -> None:
    """One is for old recordings, which do not say the reason."""
    assert {excuse for rule in RULES for excuse in rule.excuses} == {*Excuse} - {Excuse.UNRECORDED}
