"""Records with some fields changed, and objects that are given their parts."""

from __future__ import annotations

import dataclasses
import pickle
from dataclasses import FrozenInstanceError
from functools import cached_property
from typing import Any, ClassVar

import pytest

from support.event_sequences import EVENTS
from zerograd.core.events import Event, Zero
from zerograd.core.records import Record, dataclass, field, replace
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


@dataclass(eq=False)
class Engine:
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
    with pytest.raises(TypeError, match=r"__init__\(\)"):
        Engine(*parts)


@dataclass
class Bag:
    name: str
    items: list[int] = field(default_factory=list)
    count: int = field(default=0, compare=False)


@dataclass(frozen=True)
class Leaf:
    first: int
    second: int = field(default=0, hash=False)


@dataclass(frozen=True)
class Twig(Leaf):
    third: int = 3


@dataclass(frozen=True, kw_only=True, eq=False)
class Labelled:
    name: str
    length: int = 0

    def __post_init__(self) -> None:
        object.__setattr__(self, "length", len(self.name))


@dataclass
class Own:
    x: int

    def __init__(self, given: int) -> None:
        self.x = given + 1

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Own) and abs(self.x - other.x) < 2

    def __hash__(self) -> int:
        return 7

    def __repr__(self) -> str:
        return "own"


def test_a_dataclass_is_made_of_its_fields_and_defaults() -> None:
    assert (Bag("a").items, Bag("b", [1], 2).items) == ([], [1])
    assert Bag("a").items is not Bag("a").items
    assert (Twig(1).second, Twig(1, third=4).third) == (0, 4)
    assert (Bag.count, Leaf.second, hasattr(Bag, "items")) == (0, 0, False)
    assert Labelled(name="four").length == 4
    with pytest.raises(TypeError, match="missing 1 required positional argument: 'first'"):
        Leaf()  # type: ignore[call-arg]
    with pytest.raises(TypeError, match="takes 1 positional argument but 2 were given"):
        Labelled("four")  # type: ignore[call-arg]


@dataclass(frozen=True, kw_only=True)
class Bough(Leaf):
    third: int
    fourth: int = 4


def test_fields_that_have_to_be_named_come_after_those_of_a_base() -> None:
    assert (Bough(1, third=3).second, Bough(1, 2, third=3, fourth=5).fourth) == (0, 5)
    with pytest.raises(TypeError, match="takes from 2 to 3 positional arguments but 4"):
        Bough(1, 2, 3)  # type: ignore[call-arg]


def test_a_variable_of_the_class_is_no_field() -> None:
    parts = {"__annotations__": {"x": int, "total": ClassVar[int]}, "total": 7}
    counted: Any = dataclass(type("Counted", (), parts))
    assert (counted(1).x, counted.total) == (1, 7)
    with pytest.raises(TypeError, match="unexpected keyword argument 'total'"):
        counted(1, total=2)


def test_dataclasses_are_equal_by_what_is_compared() -> None:
    assert Bag("a", [1], 2) == Bag("a", [1], 3) != Bag("a", [2], 2)
    assert Leaf(1) != Twig(1)
    assert Leaf(1) != (1, 0)  # type: ignore[comparison-overlap]
    assert Labelled(name="a") != Labelled(name="a")


def test_a_frozen_dataclass_has_a_hash_and_another_one_has_none() -> None:
    assert hash(Leaf(1, 2)) == hash(Leaf(1, 5)) == hash((1,))
    assert len({Twig(1), Twig(1), Twig(1, third=4)}) == 2
    with pytest.raises(TypeError, match="unhashable type: 'Bag'"):
        hash(Bag("a"))
    same = Labelled(name="a")
    assert hash(same) == object.__hash__(same)


def test_a_dataclass_keeps_its_own_methods() -> None:
    assert Own(1).x == 2
    assert Own(1) == Own(2) != Own(9)
    assert (hash(Own(1)), repr(Own(1))) == (7, "own")


def test_a_dataclass_is_shown_as_it_is_made() -> None:
    assert repr(Twig(1)) == "Twig(first=1, second=0, third=3)"


def test_what_is_compared_first_need_not_have_been_made_here() -> None:
    """A process that gets its records from another one calls no constructor."""

    @dataclass(frozen=True)
    class Local:
        x: int

    one, other = (object.__new__(Local) for _ in range(2))
    for local in (one, other):
        local.__dict__["x"] = 1
    assert one == other
    assert len({one, other}) == 1
    assert pickle.loads(pickle.dumps(Twig(1))) == Twig(1)


def test_the_standard_library_takes_it_for_a_dataclass() -> None:
    assert dataclasses.is_dataclass(Bag)
    assert dataclasses.asdict(Twig(1)) == {"first": 1, "second": 0, "third": 3}
    assert dataclasses.replace(Leaf(1), first=2) == Leaf(2)


def test_the_standard_library_sees_what_the_class_says_of_its_fields() -> None:
    @dataclass
    class Local:
        x: int = 3
        y: list[int] = field(default_factory=list, compare=False)

    x, y = dataclasses.fields(Local)
    assert (x.name, x.type, x.default) == ("x", "int", 3)
    assert (y.name, y.compare, y.default_factory) == ("y", False, list)
