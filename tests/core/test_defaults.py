"""Fields that are not given, and the names that other programs read: two laws, for every class of core."""

from __future__ import annotations

import inspect
import re
from enum import Enum
from types import ModuleType

import pytest

from zerograd.core import events, finding, lifecycle, rule, training_loop
from zerograd.core.events import Event
from zerograd.core.lifecycle import Grads, Scale
from zerograd.core.records import MISSING, Field, fields

MODULES = (events, finding, lifecycle, rule, training_loop)
GIVEN = {
    ("Finding", "certain"): True,
    ("Page", "level"): "error",
    ("Page", "only"): "both",
    ("Rule", "level"): "error",
    ("Rule", "most_decisions"): 2,
    ("Rule", "only"): "both",
    ("Site", "column"): 1,
    ("State", "grads"): Grads.UNKNOWN,
    ("State", "scale"): Scale.UNKNOWN,
    ("Step", "fed"): True,
    ("Violation", "reported"): True,
    ("Zero", "to_none"): True,
}
"""The fields that mean something if nobody gives them. A recording leaves out what is as usual."""


def classes(module: ModuleType) -> list[type]:
    found = [one for one in vars(module).values() if inspect.isclass(one)]
    return [one for one in found if one.__module__ == module.__name__]


def usual(one: Field) -> object:
    """What a field is if it is not given; MISSING if it has to be."""
    return one.default if one.default_factory is MISSING else one.default_factory()


def test_a_field_that_is_not_given_is_empty() -> None:
    said = {}
    for kind in (one for module in MODULES for one in classes(module)):
        if hasattr(kind, "__dataclass_fields__"):
            for one in fields(kind):
                if usual(one) is not MISSING and usual(one):
                    said[kind.__name__, one.name] = usual(one)
    assert said == GIVEN


def test_what_is_collected_is_not_shared() -> None:
    for kind in (finding.Report, finding.Watched):
        made = [kind(), kind()]
        for one in fields(kind):
            held = [getattr(record, one.name) for record in made]
            assert held[0] is not held[1] or not isinstance(held[0], (list, dict)), one.name


@pytest.mark.parametrize(
    "reasons", [events.Excuse, events.ReadBy, events.Reads, training_loop.NotFollowed]
)
def test_a_reason_is_written_as_it_is_called(reasons: type[Enum]) -> None:
    assert [one.value for one in reasons] == [one.name.lower().replace("_", "-") for one in reasons]


def test_an_event_is_written_as_its_class_is_called() -> None:
    kinds = [one for one in classes(events) if issubclass(one, Event) and "kind" in vars(one)]
    assert kinds
    for one in kinds:
        assert one.kind == re.sub(r"(?<!^)(?=[A-Z])", "-", one.__name__).lower()


def test_what_people_read_ends_as_a_sentence_does() -> None:
    said = [one.reason for one in (*events.Excuse, *training_loop.NotFollowed)]
    said += [one.value for one in (*rule.Feature, *rule.Windows)]
    assert not [text for text in said if text[-1].isupper()]
