"""The judge: one function moves a subject, counts, and hands on what happened."""

from __future__ import annotations

import ast
from functools import cache
from pathlib import Path

import pytest
from hypothesis import given

import zerograd
from support import tiers
from support.event_sequences import at, sequences
from zerograd.core.events import (
    Backward,
    Diverged,
    Event,
    Observation,
    Step,
    Sync,
    Zero,
)
from zerograd.core.finding import Finding
from zerograd.core.lifecycle import Grads
from zerograd.fold.judge import Judge, Track
from zerograd.rules.catalogue import RULES

ZERO, BACKWARD, STEP = Zero(at(1)), Backward(at(2)), Step(at(3))
many = tiers.random(300)


class Recorded:
    """A recorder that keeps what it gets, and where the subject was then."""

    def __init__(self, track: Track) -> None:
        self.track = track
        self.events: list[Event] = []
        self.states: list[Grads] = []

    def write(self, subject: str, event: Event) -> None:
        assert subject == self.track.name
        self.events.append(event)
        self.states.append(self.track.node.grads)


def judged(events: list[Event]) -> tuple[Judge, Track]:
    judge = Judge(RULES)
    track = judge.track("SGD")
    for event in events:
        judge.post(track, event)
    return judge, track


def summary(judge: Judge, track: Track) -> object:
    windows = track.windows
    return judge.report.findings, track.steps, windows.open, windows.counts, track.node.state


@many
@given(sequences)
def test_a_known_edge_does_what_its_event_does(events: list[Event]) -> None:
    """A loop that repeats hands on edges instead of events."""
    posted, followed = Judge(RULES), Judge(RULES)
    track, other = posted.track("SGD"), followed.track("SGD")
    for event in events * 2:
        before = track.node
        posted.post(track, event)
        followed.follow(other, before.edges[id(event)])
    assert summary(followed, other) == summary(posted, track)


@many
@given(sequences)
def test_a_recorder_gets_what_happened_before_the_state_moves(events: list[Event]) -> None:
    judge = Judge(RULES)
    track = judge.track("SGD")
    judge.recorder = recorded = Recorded(track)
    states = []
    for event in events:
        if not isinstance(event, Observation):
            states.append(track.node.grads)
        judge.post(track, event)
    assert recorded.events == [one for one in events if not isinstance(one, Observation)]
    assert recorded.states == states


@many
@given(sequences)
def test_what_was_recorded_gives_the_same_when_it_is_judged_again(events: list[Event]) -> None:
    """What the judge sees by itself is not recorded, or it would count twice."""
    judge = Judge(RULES)
    track = judge.track("SGD")
    judge.recorder = recorded = Recorded(track)
    happened = [one for one in events if not isinstance(one, Observation)] * 3
    for event in happened:
        judge.post(track, event)
    again, other = judged(recorded.events)
    judge.end()
    again.end()
    assert summary(again, other) == summary(judge, track)


def test_steps_and_windows_are_counted() -> None:
    judge, track = judged([ZERO, BACKWARD, STEP] * 5 + [ZERO, BACKWARD, BACKWARD, STEP, ZERO])
    assert (judge.steps, track.steps) == (6, 6)
    assert judge.windows == {1: 5, 2: 1}
    assert track.windows.open == 0


def test_rounds_of_a_loop_count_as_the_windows_that_they_repeat() -> None:
    """Before the loop is left, and after."""
    judge, track = judged([ZERO, BACKWARD, BACKWARD, STEP] * 5)
    track.rounds += 3
    assert (judge.steps, track.steps, judge.windows) == (8, 8, {2: 8})
    judge.end_rounds(track)
    judge.end_rounds(track)
    assert (judge.steps, track.steps, judge.windows) == (8, 8, {2: 8})
    assert track.windows.counts == {2: 8}


def test_what_a_forgotten_subject_did_counts_and_what_it_left_open_does_not() -> None:
    judge, _ = judged([ZERO, BACKWARD, BACKWARD, STEP, ZERO] * 5 + [BACKWARD])
    judge.forget("SGD")
    judge.end()
    assert (judge.steps, judge.windows, judge.tracks) == (5, {2: 5}, [])
    assert judge.report.findings == []


def test_a_forked_process_counts_from_nothing() -> None:
    judge, track = judged([ZERO, BACKWARD, STEP] * 3)
    judge.forked()
    assert (judge.steps, judge.windows) == (0, {})
    for event in (ZERO, BACKWARD, STEP):
        judge.post(track, event)
    assert (judge.steps, judge.windows) == (1, {1: 1})


def test_a_place_is_one_finding_however_often_it_is_seen() -> None:
    printed: list[Finding] = []
    judge = Judge(RULES, printed.append)
    track = judge.track("SGD")
    for event in [BACKWARD, STEP] * 4:
        judge.post(track, event)
    assert {one.place for one in printed} == {("ZG101", at(2).path, 2, None)}
    assert [one.seen for one in printed] == [1, 2, 3]
    assert judge.report.findings == [printed[-1]]
    assert printed[-1].site.iteration == 2, "the step at which it was first seen"


def test_an_event_silences_the_rules_that_it_allows() -> None:
    allowed = Step(at(3), allowed=("ZG101",))
    assert judged([BACKWARD, STEP, BACKWARD, allowed])[0].report.findings == []
    assert judged([BACKWARD, STEP, BACKWARD, STEP])[0].report.findings != []


def test_a_comparison_of_ranks_says_itself_of_which_step_it_is() -> None:
    seen = Sync(at(9), diverged=Diverged("parameters", 98, (1,), 0))
    (finding,) = judged([seen])[0].report.findings
    assert finding.site.iteration == 98


@pytest.mark.parametrize(
    ("attribute", "home"),
    [
        ("node", {"fold/judge.py"}),
        ("posted_steps", {"fold/judge.py"}),
        ("rounds", {"fold/judge.py", "runtime/steady_loop.py"}),
    ],
)
def test_nothing_else_moves_a_track(attribute: str, home: set[str]) -> None:
    """Live, replayed and in a loop that repeats: whoever moves a subject goes through the judge.

    A loop that repeats only counts its rounds.
    """
    homes = {
        where
        for where, target in assigned()
        if isinstance(target, ast.Attribute)
        and target.attr == attribute
        and isinstance(target.value, (ast.Name, ast.Attribute))
        and (target.value.id if isinstance(target.value, ast.Name) else target.value.attr)
        == "track"
    }
    assert homes == home


def test_rules_are_checked_and_states_are_made_in_one_place() -> None:
    """Nobody forges a state, nobody calls a rule by hand."""
    checks, states = set(), set()
    for where, call in calls():
        if isinstance(call.func, ast.Attribute) and call.func.attr == "check":
            if isinstance(call.func.value, ast.Name) and call.func.value.id == "rule":
                checks.add(where)
        if isinstance(call.func, ast.Name) and call.func.id == "State":
            states.add(where)
    assert checks == {"core/automaton.py"}
    assert states == {"core/automaton.py", "core/lifecycle.py"}


@cache
def trees() -> list[tuple[str, ast.Module]]:
    source = Path(zerograd.__file__).parent
    return [
        (path.relative_to(source).as_posix(), ast.parse(path.read_text(encoding="utf-8")))
        for path in sorted(source.rglob("*.py"))
    ]


def calls() -> list[tuple[str, ast.Call]]:
    return [
        (where, node)
        for where, tree in trees()
        for node in ast.walk(tree)
        if isinstance(node, ast.Call)
    ]


def assigned() -> list[tuple[str, ast.expr]]:
    found: list[tuple[str, ast.expr]] = []
    for where, tree in trees():
        for node in ast.walk(tree):
            targets = node.targets if isinstance(node, ast.Assign) else []
            if isinstance(node, (ast.AugAssign, ast.AnnAssign)):
                targets = [node.target]
            for target in targets:
                parts = target.elts if isinstance(target, ast.Tuple) else [target]
                found += [(where, part) for part in parts]
    return found
