"""Records with some fields changed, and objects that are given their parts."""

from __future__ import annotations

from dataclasses import FrozenInstanceError, dataclass
from functools import cached_property

import pytest

from support.event_sequences import EVENTS
from zerograd.core.events import Event, Zero
from zerograd.core.records import Composed, Record, replace
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


class Point(Record):
    x: int
    y: int = 2


class Named(Point, kw_only=True):
    name: str


def test_a_record_is_made_of_its_fields_and_defaults() -> None:
    point = Point(1)
    assert (point.x, point.y) == (1, 2)
    assert Point(x=1, y=3) == Point(1, 3)
    assert Named(1, name="a") == Named(x=1, y=2, name="a")


@pytest.mark.parametrize(
    ("values", "named"),
    [((), {}), ((1, 2, 3), {}), ((1,), {"z": 1}), ((), {"y": 1})],
)
def test_a_record_of_other_fields_is_refused(
    values: tuple[int, ...], named: dict[str, int]
) -> None:
    with pytest.raises(TypeError) as raised:
        Point(*values, **named)
    assert str(raised.value) == f"wrong fields for Point: {values}, {named}"


def test_a_field_that_has_to_be_named_is_not_taken_by_place() -> None:
    with pytest.raises(TypeError, match="wrong fields for Named"):
        Named(1, 2, "a")  # type: ignore[call-arg]


def test_a_record_does_not_change() -> None:
    point = Point(1)
    with pytest.raises(FrozenInstanceError, match="cannot assign to field 'x'"):
        point.x = 2  # type: ignore[misc]
    with pytest.raises(FrozenInstanceError, match="cannot delete field 'x'"):
        del point.x
    assert point == Point(1)


def test_records_are_equal_if_they_are_of_one_kind_and_have_equal_fields() -> None:
    assert Point(1) == Point(1)
    assert hash(Point(1)) == hash(Point(1))
    assert Point(1) != Point(2)
    assert Point(1) != (1, 2)

    class Other(Record):
        x: int
        y: int = 2

    assert Point(1) != Other(1)
    assert len({Point(1), Point(1, 2), Point(2), Other(1)}) == 3


def test_equal_records_have_one_hash_in_whatever_order_their_fields_are_named() -> None:
    one, other = Named(x=1, y=2, name="a"), Named(name="a", y=2, x=1)
    assert one == other
    assert hash(one) == hash(other)
    assert repr(one) == repr(other)


def test_a_record_shows_what_is_not_usual() -> None:
    assert repr(Point(1)) == "Point(x=1)"
    assert repr(Named(2, 3, name="a")) == "Named(x=2, y=3, name='a')"


def test_a_changed_record_keeps_its_kind_and_the_other_fields() -> None:
    changed = replace(Named(1, name="a"), y=5)
    assert changed == Named(1, 5, name="a")
    assert type(changed) is Named
    with pytest.raises(TypeError, match="Point has no a, b"):
        replace(Point(1), b=1, a=2)


class Engine(Composed):
    cylinders: int
    fuel: str
    running = False

    @cached_property
    def shown(self) -> str:
        return f"{self.cylinders} cylinders, {self.fuel}"


def test_an_object_has_the_parts_that_its_class_annotates_in_order() -> None:
    one, other = Engine(4, "petrol"), Engine(2, "diesel")
    one.running = True
    assert (one.shown, one.running) == ("4 cylinders, petrol", True)
    assert (other.shown, other.running) == ("2 cylinders, diesel", False)
    assert one != Engine(4, "petrol")


@pytest.mark.parametrize("parts", [(4,), (4, "petrol", "red")])
def test_an_object_without_all_of_its_parts_is_refused(parts: tuple[int, str]) -> None:
    with pytest.raises(ValueError, match=r"zip\(\) argument 2 is"):
        Engine(*parts)
