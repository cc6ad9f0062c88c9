"""Timelines: what is drawn is what happened, and a long run takes no more room than a short one."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from support.event_sequences import EVENTS, is_foreign
from zerograd.core.events import Backward, Event, Site, Step, Zero
from zerograd.core.lifecycle import START, State, advance
from zerograd.report import timeline
from zerograd.report.timeline import STATES, Norms, Runs, Timeline

SURE = [one for one in EVENTS if not one.may and not is_foreign(one)]
Events = list[tuple[str, Event]]
SEQUENCES: st.SearchStrategy[Events] = st.lists(
    st.tuples(st.sampled_from(["SGD", "Adam"]), st.sampled_from(SURE)), max_size=40
)


def drawn(events: Sequence[tuple[str, Event]]) -> tuple[Timeline, list[tuple[str, str, int, str]]]:
    """A timeline of some events, and what it should hold: who, what, where, what is left there."""
    line, right = Timeline(), []
    states: dict[str, State] = {}
    for who, event in events:
        states[who] = advance(states.get(who, START), event)
        line.add(who, event, states[who].grads)
        held = states[who].grads.value
        state = "empty" if held in ("none", "zero") else held
        right.append((who, event.kind, event.site.line, state))
    line.close()
    return line, right


def motifs(runs: Runs) -> list[int]:
    return [one for one, times in zip(runs.motifs, runs.counts, strict=True) for _ in range(times)]


@pytest.mark.parametrize("most", [timeline.MOST_RUNS, 8])
def test_a_finding_about_all_steps_from_one_on_marks_each(
    most: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(timeline, "MOST_RUNS", most)
    sequence: Events = []
    for number in range(20):
        sequence += [("SGD", Backward(Site("train.py", 1))), ("SGD", Step(Site("train.py", 2)))]
        if number % 2:
            sequence.append(("Adam", Step(Site("train.py", 3))))
    line, _ = drawn(sequence)
    line.mark_steps("SGD", 13, 5)
    marked = []
    for number in motifs(line.runs):
        last = line.marks[line.motifs[number].marks[-1][0]]
        marked += [last.findings] * line.runs.each if last.lane == 0 else []
        assert last.lane == 0 or not last.findings
    first = marked.index((5,)) + 1
    assert set(marked[first - 1 :]) == {(5,)}
    assert abs(first - 13) < line.runs.each


@given(SEQUENCES)
def test_a_timeline_holds_every_event_and_what_it_leaves(sequence: Events) -> None:
    line, right = drawn(sequence)
    read, last = [], [0] * len(line.lanes)
    for number in motifs(line.runs):
        motif = line.motifs[number]
        assert list(motif.starts) == last[: len(motif.starts)]
        for at, times in motif.marks:
            mark = line.marks[at]
            place = line.sites[mark.site]
            who = line.lanes[mark.lane].name
            read += [(who, mark.kind, place[1], STATES[mark.state])] * times
            last[mark.lane] = mark.state
    assert read == right
    assert line.runs.ticks == len(motifs(line.runs))
    for lane in line.lanes:
        steps = [event for who, event in sequence if who == lane.name and isinstance(event, Step)]
        assert lane.steps == len(steps)


def test_what_another_may_have_done_is_not_drawn() -> None:
    backward = Backward(Site("a.py", 1))
    line = Timeline()
    for event in (replace(backward, may=True), Step(Site("a.py", 2), foreign=True)):
        line.add("SGD", event, START.grads)
    line.close()
    assert not line.runs.ticks


def test_a_regular_run_takes_no_more_room_when_it_is_longer() -> None:
    line = Timeline()
    site = Site("a.py", 1)
    sequence = [Zero(site), Backward(site), Step(site)]
    for _ in range(50_000):
        for event in sequence:
            line.add("SGD", event, START.grads)
    line.close()
    assert (line.runs.ticks, len(line.runs.motifs), len(line.motifs)) == (50_000, 1, 1)


@given(st.lists(st.integers(0, 3), max_size=300), st.integers(2, 20))
def test_an_irregular_run_is_kept_coarser_and_its_worst_is_kept(
    ticks: list[int], most: int
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(timeline, "MOST_RUNS", most)
        runs = Runs()
        for motif in ticks:
            runs.add(motif, worth=motif)
        runs.close()
    assert runs.ticks == len(ticks)
    assert len(runs.motifs) <= most + 1
    groups = [ticks[at : at + runs.each] for at in range(0, len(ticks), runs.each)]
    assert motifs(runs) == [max(group) for group in groups]


def test_many_different_ticks_are_bounded_and_findings_survive() -> None:
    line = Timeline()
    for number in range(30_000):
        found = (0,) if number == 29_999 else ()
        line.add("SGD", Backward(Site("a.py", number)), START.grads)
        line.add("SGD", Step(Site("a.py", number)), START.grads, found)
    line.close()
    assert line.runs.ticks == 30_000
    assert len(line.motifs) <= 2 * timeline.MOST_MOTIFS
    assert len(line.marks) <= 2 * timeline.MOST_MARKS
    last = line.motifs[line.runs.motifs[-1]]
    assert any(line.marks[at].findings == (0,) for at, _ in last.marks)


def test_a_window_without_end_is_bounded() -> None:
    line = Timeline()
    for number in range(50_000):
        line.add("SGD", Backward(Site("a.py", number % 2)), START.grads)
    line.add("SGD", Step(Site("a.py", 9)), START.grads)
    line.close()
    (motif,) = line.motifs
    assert len(motif.marks) <= timeline.LONGEST_MOTIF
    assert sum(times for _, times in motif.marks) == 50_001, "what is left out is counted"


def test_more_optimizers_than_lanes_are_counted_not_drawn() -> None:
    line = Timeline()
    for number in range(timeline.MOST_LANES + 5):
        line.add(f"SGD#{number}", Step(Site("a.py", 1)), START.grads)
    line.close()
    assert len(line.lanes) == timeline.MOST_LANES
    assert len(line.left_out) == 5


@given(st.lists(st.floats(0, 1e6, width=32), min_size=1, max_size=200), st.integers(1, 64))
def test_norms_are_kept_and_of_too_many_the_largest(used: list[float], most: int) -> None:
    norms = Norms(most)
    half = len(used) // 2
    norms.add(1, 1, used[:half], [None] * half)
    norms.add(half + 1, 1, used[half:], [None] * (len(used) - half))
    assert len(norms.used) <= most
    groups = [used[at : at + norms.each] for at in range(0, len(used), norms.each)]
    assert list(norms.used) == [max(group) for group in groups]
    assert all(math.isnan(one) for one in norms.right)


def test_the_right_norm_stays_with_the_one_that_was_used() -> None:
    norms = Norms(2)
    norms.add(1, 1, [1.0, 8.0, 2.0, math.inf], [None, 5.0, None, 3.0])
    assert (list(norms.used), list(norms.right)) == ([8.0, math.inf], [5.0, 3.0])
