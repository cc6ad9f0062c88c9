"""Events: a class for each kind, cheap to hash, equal only to events of their kind."""

from __future__ import annotations

from dataclasses import FrozenInstanceError, fields, replace

import pytest

from support.event_sequences import EVENTS, at
from zerograd.core.events import KINDS, Event, Excuse, Observation, Step, Zero
from zerograd.core.records import NamedReason
from zerograd.core.training_loop import NotFollowed


def classes(base: type[Event] = Event) -> list[type[Event]]:
    below = base.__subclasses__()
    return [base, *(one for kind in below for one in classes(kind))]


@pytest.mark.parametrize("kind", classes(), ids=lambda kind: kind.__name__)
def test_every_kind_has_the_fast_hash_and_the_fast_comparison(kind: type[Event]) -> None:
    """A dataclass that compares by itself makes a hash of all its fields, and nobody notices."""
    assert kind.__hash__ is Event.__hash__
    assert kind.__eq__ is Event.__eq__


def test_a_hash_does_not_look_at_what_differs_between_variants() -> None:
    event = Step(at(3), call="opt.step()")
    assert hash(event) == hash(replace(event, scaled=True, guard=at(9), allowed=("ZG101",)))


@pytest.mark.parametrize("reasons", [Excuse, NotFollowed])
def test_no_two_reasons_have_the_same_name(reasons: type[NamedReason]) -> None:
    assert [one.name for one in reasons] == list(reasons.__members__)
    assert all(one.value and one.reason for one in reasons)


def test_every_kind_is_in_the_events_that_random_tests_draw() -> None:
    drawn = {type(event) for event in EVENTS}
    assert drawn == {kind for kind in classes() if kind not in (Event, Observation)}
    assert set(KINDS.values()) == {kind for kind in drawn if not issubclass(kind, Observation)}


def test_every_field_of_every_kind_is_in_the_events_that_random_tests_draw() -> None:
    """With another value than its default: what a run sets is drawn as well as what source shows."""
    varied = {
        (type(event), field.name)
        for event in EVENTS
        for field in fields(event)
        if getattr(event, field.name) != field.default
    }
    drawn_elsewhere = {"call", "allowed", "may", "loop"}
    wanted = {
        (kind, field.name)
        for kind in {type(event) for event in EVENTS}
        for field in fields(kind)
        if field.name not in drawn_elsewhere
    }
    assert wanted <= varied


def test_events_of_two_kinds_differ_where_all_their_fields_agree() -> None:
    alike = [kind(at(3)) for kind in KINDS.values()]
    assert len({hash(event) for event in alike}) == 1
    for number, event in enumerate(alike):
        assert [event == other for other in alike].count(True) == 1
        assert alike.index(event) == number
    assert alike[0] != "zero"


def test_a_kind_of_event_is_named_as_its_class() -> None:
    for name, kind in KINDS.items():
        assert name.title().replace("-", "") == kind.__name__


def test_an_event_does_not_change() -> None:
    event = Zero(at(3))
    with pytest.raises(FrozenInstanceError):
        event.to_none = False  # type: ignore[misc]


def test_every_excuse_has_a_name_and_a_reason() -> None:
    assert len({one.value for one in Excuse}) == len(Excuse)
    assert len({one.reason for one in Excuse}) == len(Excuse)
    assert all(one.reason for one in Excuse)
