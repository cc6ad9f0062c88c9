"""Recordings that an older zerograd wrote are read as it read them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from zerograd.core.events import Backward, Event, Excuse, New, Site, Step, Update, Zero
from zerograd.launch.replay import judged
from zerograd.recording.format_2 import converted
from zerograd.recording.json_codec import Damaged, parsed_event
from zerograd.recording.reader import replay

DATA = Path(__file__).parent / "data"
SITE = {"path": "train.py", "line": 3}


@pytest.mark.parametrize(
    ("name", "found"),
    [
        ("format_2_cleared_by_hand", ("ZG101", 16, 1, "expected |grad| 1.13788, got 2.48061")),
        ("format_2_mixed_precision", ("ZG201", 26, 30, "scaled")),
    ],
)
def test_a_recording_of_format_2_has_the_findings_that_it_had(
    name: str, found: tuple[str, int, int, str]
) -> None:
    path = DATA / f"{name}.jsonl"
    assert json.loads(path.read_text().splitlines()[0])["format"] == 2
    (finding,) = judged(str(path), None, ()).report.findings
    assert (finding.code, finding.site.line, finding.seen) == found[:3]
    assert found[3] in finding.message


def test_its_events_have_the_fields_of_their_kind() -> None:
    posted: list[Event] = []
    path = DATA / "format_2_cleared_by_hand.jsonl"
    played = replay(str(path), lambda _, event: posted.append(event))
    assert (played.problems, played.clean) == ([], True)
    assert {type(event) for event in posted} == {New, Backward, Step, Zero}
    clears = [event for event in posted if isinstance(event, Zero)]
    assert {event.excuse for event in clears} == {Excuse.UNSEEN}
    mixing = next(one for one in posted if isinstance(one, Backward) and one.leftover)
    assert mixing.measured is not None
    assert mixing.measured.names == ("weight", "bias")


def read(**fields: object) -> Event:
    return parsed_event(converted({"site": SITE, **fields}))


def test_a_field_of_another_kind_is_dropped() -> None:
    assert read(kind="update", scaled=True, subject="SGD") == Update(parsed_site())
    assert read(kind="step", scaled=True, inner=True) == Step(parsed_site(), scaled=True)
    of_some_kinds = (
        "foreign to_none bare fed idle_loss alone own_gradient bypasses divisor length last guard "
        "leftover measured orphan part inner again synced unsynced off volume diverged"
    )
    assert read(kind="update", **dict.fromkeys(of_some_kinds.split(), 1)) == Update(parsed_site())


def test_an_excuse_without_a_name_stays_an_excuse() -> None:
    assert read(kind="zero", inner=True) == Zero(parsed_site(), excuse=Excuse.UNRECORDED)
    assert read(kind="zero", inner=False) == Zero(parsed_site())


@pytest.mark.parametrize(
    "event", [3, {"kind": "leap", "site": SITE}, {"kind": "step", "site": SITE, "colour": 1}]
)
def test_what_format_2_did_not_have_is_damage(event: object) -> None:
    with pytest.raises(Damaged):
        parsed_event(converted(event))


def parsed_site() -> Site:
    return parsed_event({"kind": "new", "site": SITE}).site
