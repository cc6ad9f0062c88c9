"""Folding a word gives what exploring it gives, for every subject, however little is remembered."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from words import at, shared_words, words
from zerograd import ledger
from zerograd.events import Event, Kind
from zerograd.explore import explore
from zerograd.flow import Emit, Seq
from zerograd.ledger import ANY, Ledger
from zerograd.lifecycle import NEW, START, Grads, State
from zerograd.rule import Violation
from zerograd.rules import RULES

Found = set[tuple[str, Violation]]

many = settings(max_examples=1000, derandomize=True, deadline=None)


def folded(word: list[Event], subject: str = ANY, *, start: State = START) -> Found:
    book = Ledger(RULES, start=start)
    verdicts = [verdict for event in word for verdict in book.post(event)]
    return {(v.rule.code, v.violation) for v in verdicts if v.subject == subject}


def explored(word: list[Event], *, start: State = START) -> Found:
    result = explore(Seq([Emit(event) for event in word]), RULES, start=start)
    assert not result.cut
    return {(found.rule.code, found.violation) for found in result.outcomes}


@many
@given(words, st.sampled_from([START, NEW]))
def test_a_word_gets_the_verdicts_of_its_straight_line_flow(
    word: list[Event], start: State
) -> None:
    assert folded(word, start=start) == explored(word, start=start)


def as_seen_by(subject: str, word: list[Event]) -> list[Event]:
    """A subject's own events, and the steps of others as foreign ones."""
    seen = []
    for event in word:
        if event.subject in (subject, ANY):
            seen.append(event)
        elif event.kind is Kind.STEP and not event.foreign:
            seen.append(replace(event, foreign=True))
    return seen


@many
@given(shared_words("ab"))
def test_every_subject_is_judged_by_its_own_view_of_the_word(word: list[Event]) -> None:
    for subject in "ab":
        assert folded(word, subject) == explored(as_seen_by(subject, word))


@many
@given(shared_words(" ab"))
def test_an_event_of_no_subject_concerns_each(word: list[Event]) -> None:
    both = [Event(Kind.UNKNOWN, at(1), subject=subject) for subject in "ab"]
    for subject in "ab":
        assert folded([*both, *word], subject) == explored(as_seen_by(subject, word))


@many
@given(shared_words("ab"))
def test_forgetting_edges_changes_no_verdict(word: list[Event]) -> None:
    usual = Ledger(RULES)
    forgetful = Ledger(RULES)
    for event in word * 2:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(ledger, "MOST_EDGES", 1)
            told = forgetful.post(event)
        assert told == usual.post(event)
    assert {s: usual.state(s) for s in "ab"} == {s: forgetful.state(s) for s in "ab"}


def test_a_verdict_names_the_rule_the_place_and_the_subject() -> None:
    book = Ledger(RULES)
    backward = Event(Kind.BACKWARD, at(3), subject="adam")
    step = Event(Kind.STEP, at(4), subject="adam")
    assert [v for event in (backward, step, backward) for v in book.post(event)] == []
    (verdict,) = book.post(step)
    assert (verdict.rule.code, verdict.violation.site, verdict.subject) == ("ZG101", at(3), "adam")


def test_a_rule_sees_the_state_before_the_event() -> None:
    seen = []

    def check(before: State, event: Event) -> None:
        seen.append(before.grads)

    book = Ledger([replace(RULES[0], check=check)])
    for kind in (Kind.ZERO, Kind.BACKWARD, Kind.STEP):
        book.post(Event(kind, at(1)))
    assert seen == [Grads.UNKNOWN, Grads.NONE, Grads.LIVE]
    assert book.state().grads is Grads.SPENT


def test_a_subject_begins_where_events_of_no_subject_have_led() -> None:
    book = Ledger(RULES)
    book.post(Event(Kind.NEW, at(1)))
    assert not book.subjects
    book.post(Event(Kind.BACKWARD, at(2), subject="sgd"))
    assert book.subjects == ("sgd",)
    assert (book.state("sgd").grads, book.state("other").grads) == (Grads.LIVE, Grads.NONE)


def test_the_other_subjects_hear_of_a_step_and_of_nothing_else() -> None:
    book = Ledger(RULES)
    for subject in ("generator", "discriminator"):
        book.post(Event(Kind.BACKWARD, at(2), subject=subject))
    for kind in (Kind.BACKWARD, Kind.CLIP, Kind.ZERO, Kind.UNSCALE):
        before = book.state("discriminator")
        book.post(Event(kind, at(3), subject="generator"))
        assert book.state("discriminator") is before
    book.post(Event(Kind.STEP, at(4), subject="generator"))
    assert book.state("discriminator").lent is not None


def test_an_edge_is_checked_once_and_remembered() -> None:
    calls = []
    book = Ledger([replace(RULES[0], check=lambda before, event: calls.append((before, event)))])
    word = [Event(kind, at(1)) for kind in (Kind.ZERO, Kind.BACKWARD, Kind.STEP)]
    for event in word * 100:
        book.post(event)
    assert len(calls) == 4  # the first clear finds the gradients unknown, the others spent


def test_a_long_run_does_not_grow() -> None:
    book = Ledger(RULES)
    for number in range(5000):
        for kind in (Kind.ZERO, Kind.BACKWARD, Kind.STEP):
            book.post(Event(kind, replace(at(1), iteration=number)))
    assert len(book._edges) <= ledger.MOST_EDGES
    assert len(book._states) <= ledger.MOST_EDGES + len(book._now)
