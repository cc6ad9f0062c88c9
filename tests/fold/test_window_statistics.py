"""What only repetition shows: observations of windows, and the findings that rules make of them."""

from __future__ import annotations

from dataclasses import replace

import pytest

from support.event_sequences import at
from zerograd.core.events import (
    Backward,
    CutWindows,
    Event,
    Excuse,
    LongWindow,
    Observation,
    OddWindow,
    PartialWindow,
    Step,
    Zero,
)
from zerograd.core.lifecycle import START
from zerograd.core.rule import Rule
from zerograd.fold.judge import Judge
from zerograd.rules.catalogue import RULES

ZERO, BACKWARD, STEP = Zero(at(1)), Backward(at(2)), Step(at(3))
CODES = {LongWindow: "ZG304", OddWindow: "ZG302", PartialWindow: "ZG303", CutWindows: "ZG103"}


def window(length: int, step: Event = STEP) -> list[Event]:
    return [ZERO, *[BACKWARD] * length, step]


def windows(*lengths: int) -> list[Event]:
    return [event for length in lengths for event in window(length)]


def observed(events: list[Event], *, clean: bool = True) -> list[Observation]:
    """What is seen in a run, as the rules get it."""
    seen: list[Observation] = []

    def check(before: object, event: Event) -> None:
        if isinstance(event, Observation) and event not in seen:
            seen.append(event)

    judge = Judge([replace(RULES[0], check=check)])
    track = judge.track("SGD")
    for event in events:
        judge.post(track, event)
    judge.end(clean=clean)
    return seen


@pytest.mark.parametrize("kind", CODES, ids=lambda kind: kind.__name__)
def test_each_observation_breaks_one_rule_in_any_state(kind: type[Observation]) -> None:
    made: dict[type[Observation], Observation] = {
        LongWindow: LongWindow(at(3), window=5),
        OddWindow: OddWindow(at(3), window=3, meant=4, backward=at(2)),
        PartialWindow: PartialWindow(at(3), backward=at(2), cleared=at(1)),
        CutWindows: CutWindows(at(1), backward=at(2), step=at(3)),
    }
    broken: list[Rule] = [rule for rule in RULES if rule.check(START, made[kind]) is not None]
    assert [rule.code for rule in broken] == [CODES[kind]]


def test_windows_of_one_length_show_nothing() -> None:
    assert observed(windows(*[4] * 20)) == []
    assert observed(windows(*[1] * 20)) == []


def test_a_longer_window_carries_on_what_was_left() -> None:
    assert observed(windows(4, 4, 4, 5)) == [LongWindow(at(3), window=5)]


def test_windows_of_all_lengths_carry_nothing_on() -> None:
    assert observed(windows(4, 2, 4, 4, 5)) == []


def test_a_part_of_a_window_that_a_clear_drops() -> None:
    dropped = [*windows(4, 4, 4), ZERO, BACKWARD, *windows(4)]
    assert observed(dropped) == [PartialWindow(at(3), backward=at(2), cleared=at(1))]


def test_a_clear_with_an_excuse_drops_no_part() -> None:
    for excuse in Excuse:
        dropped = [*windows(4, 4, 4), ZERO, BACKWARD, Zero(at(1), excuse=excuse)]
        assert observed(dropped) == []


def test_a_part_that_is_left_when_the_run_ends() -> None:
    left = [*windows(4, 4, 4), ZERO, BACKWARD]
    assert observed(left) == [PartialWindow(at(3), backward=at(2))]
    assert observed(left, clean=False) == [], "a run that was stopped left it for that reason"


def test_a_first_window_that_was_shorter_than_the_next_ones() -> None:
    assert observed(windows(1, 4, 4)) == [OddWindow(at(3), window=1, backward=at(2))]


def test_a_declared_length_that_most_windows_do_not_have() -> None:
    declared = Step(at(3), length=4)
    events = [event for _ in range(8) for event in window(3, declared)]
    assert observed(events) == [OddWindow(at(3), window=3, meant=4, backward=at(2))]
    assert observed(events[:-1], clean=False) == []


def test_a_clear_that_drops_the_same_part_of_eight_windows() -> None:
    cut = [ZERO, BACKWARD, ZERO, BACKWARD, ZERO, BACKWARD, STEP]
    assert observed(cut * 7) == []
    assert observed(cut * 8) == [CutWindows(at(1), backward=at(2), step=at(3))]


def test_an_observation_allows_what_the_event_allowed() -> None:
    silent = replace(STEP, allowed=("ZG304",))
    carried = [*windows(4, 4, 4), *window(5, silent)]
    assert [one.allowed for one in observed(carried)] == [("ZG304",)]


def test_an_observation_is_no_step_and_no_window() -> None:
    judge = Judge(RULES)
    track = judge.track("SGD")
    for event in windows(4, 4, 4, 5):
        judge.post(track, event)
    assert [finding.code for finding in judge.report.findings] == ["ZG304"]
    assert (track.steps, track.windows.counts) == (4, {4: 3, 5: 1})
