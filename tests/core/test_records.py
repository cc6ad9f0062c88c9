"""Records with some fields changed."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import pytest

from support.event_sequences import EVENTS
from zerograd.core.events import Event, Zero
from zerograd.core.records import replace
from zerograd.explore.logic import Const, Name, Op, reads


@dataclass(frozen=True)
class Person:
    first: str
    last: str = "Lovelace"

    @cached_property
    def whole(self) -> str:
        return f"{self.first} {self.last}"


def test_only_what_is_asked_for_changes() -> None:
    record = Person("Ada")
    assert replace(record, first="Augusta") == Person("Augusta")
    assert record == Person("Ada")
    assert replace(record) == record


def test_what_a_record_has_computed_is_computed_anew() -> None:
    record = Person("Ada")
    assert record.whole == "Ada Lovelace"
    changed = replace(record, first="Augusta")
    assert changed.whole == "Augusta Lovelace"
    assert record.whole == "Ada Lovelace"


def test_an_expression_with_another_operand_reads_that_operand() -> None:
    """A literal N that gets a name is read from then on: it was not, once anybody had asked."""
    test = Op("==", (Name("count"), Const(4)))
    assert reads(test) == {Name("count")}
    named = replace(test, args=(Name("count"), Name("N")))
    assert reads(named) == {Name("count"), Name("N")}


def test_a_field_that_a_record_does_not_have_is_refused() -> None:
    with pytest.raises(TypeError, match="Person has no middle"):
        replace(Person("Ada"), middle="King")
    event: Event = Zero(EVENTS[0].site)
    with pytest.raises(TypeError, match="Zero has no scaled"):
        replace(event, scaled=True)
