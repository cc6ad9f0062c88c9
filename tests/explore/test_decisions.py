"""Of the paths to a configuration the smallest are kept, and they say the same as all of them."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from support import tiers
from zerograd.core.automaton import Automaton, Node
from zerograd.core.lifecycle import START, Grads, State
from zerograd.explore.decisions import (
    FREE,
    MOST_DECISIONS,
    Configurations,
    Decision,
    Decisions,
    Numbering,
    Path,
    add,
    decide,
    join,
    merge,
    opposite,
    smallest,
    weight,
)

many = tiers.random(400)

TESTS = "abcd"
NUMBERING = Numbering()
NOTHING, KNOWS, X_TRUE, X_FALSE = 0, 1, 2, 4
HERE: Node = Automaton([]).node(START)
THERE: Node = Automaton([]).node(State(grads=Grads.LIVE))


def taken(text: str) -> Decisions:
    """`a !b` is the path on which a was true and b false; `b2` weighs two."""
    found = set()
    for part in text.split():
        outcome, name = not part.startswith("!"), part.removeprefix("!")
        found.add(Decision(name[0], outcome, int(name[1:] or 1)))
    return frozenset(found)


def paths(*texts: str) -> set[Path]:
    return numbered({taken(text) for text in texts})


def numbered(found: Iterable[Decisions]) -> set[Path]:
    return set(map(NUMBERING.bits, found))


def decided(before: set[Path], *decisions: Decision) -> set[Path]:
    for one in decisions:
        before = decide(before, NUMBERING.bits([one]))
    return before


plain = st.builds(Decision, st.sampled_from(TESTS), st.booleans())
weighted = st.builds(Decision, st.sampled_from(TESTS), st.booleans(), st.integers(1, 2))
some_paths = st.sets(st.frozensets(plain, max_size=3), min_size=1, max_size=8)
weighted_paths = st.sets(st.frozensets(weighted, max_size=3), min_size=1, max_size=8)


def leads_here(found: Iterable[Decisions], outcomes: dict[str, bool]) -> bool:
    """Whether a run in which the tests come out so goes along one of the paths."""
    return any(all(outcomes[d.test] is d.outcome for d in one) for one in found)


def runs() -> list[dict[str, bool]]:
    return [
        dict(zip(TESTS, values, strict=True))
        for values in product((False, True), repeat=len(TESTS))
    ]


# Decisions


@pytest.mark.parametrize(
    ("decision", "text"),
    [
        (Decision("args.clear", True), "args.clear"),
        (Decision("args.clear", False), "not (args.clear)"),
        (Decision("a or b", False, weight=2), "not (a or b)"),
        (Decision("isnan(loss)", True, scope=(3,)), "isnan(loss)"),
    ],
)
def test_a_decision_reads_as_source_whatever_it_weighs_and_wherever_it_is(
    decision: Decision, text: str
) -> None:
    assert str(decision) == text


@many
@given(weighted)
def test_the_opposite_of_the_opposite_is_the_decision(decision: Decision) -> None:
    assert opposite(opposite(decision)) == decision
    assert opposite(decision).outcome is not decision.outcome
    assert opposite(decision).weight == decision.weight


@many
@given(weighted)
def test_without_their_weight_two_decisions_about_a_test_are_the_same(decision: Decision) -> None:
    assert decision.unweighted.weight == 1
    assert decision.unweighted == decision._replace(weight=2).unweighted
    assert opposite(decision).unweighted != decision.unweighted


@pytest.mark.parametrize(
    ("text", "weighs"), [("", 0), ("a", 1), ("a !b", 2), ("a2", 2), ("a2 b", 3)]
)
def test_the_weights_of_a_path_add_up(text: str, weighs: int) -> None:
    assert weight(taken(text)) == weighs
    assert NUMBERING.bits(taken(text)).bit_count() == weighs


@many
@given(st.frozensets(weighted, max_size=3))
def test_a_number_says_which_decisions_it_has_each_with_its_greatest_weight(one: Decisions) -> None:
    heaviest = {
        decision
        for decision in one
        if decision.weight == 2 or decision._replace(weight=2) not in one
    }
    assert NUMBERING.decisions(NUMBERING.bits(one)) == heaviest


# One more decision


def test_a_path_takes_one_more_decision() -> None:
    assert decided(paths("", "a"), Decision("b", False)) == paths("!b", "a !b")


def test_a_path_that_would_weigh_too_much_is_given_up() -> None:
    full = paths("a b c", "a b2", "a")
    assert decided(full, Decision("d", True)) == paths("a d")
    assert decided(paths("a b"), Decision("c", True, weight=2)) == set()


def test_the_same_decision_counts_once() -> None:
    assert decided(paths("a b c"), Decision("a", True)) == paths("a b c")


@pytest.mark.parametrize(("first", "second"), [(1, 2), (2, 1), (2, 2)])
def test_the_same_decision_counts_as_its_heaviest(first: int, second: int) -> None:
    (once,) = decided({FREE}, Decision("a", False, first))
    assert decided({once}, Decision("a", False, second)) == paths("!a2")


def test_both_outcomes_of_a_test_that_changes_are_two_decisions() -> None:
    assert decided(paths("a"), Decision("a", False)) == paths("a !a")


def test_the_same_text_in_another_scope_is_another_decision() -> None:
    here, there = Decision("ready(p)", True, scope=(3,)), Decision("ready(p)", True, scope=(5,))
    (both,) = decided({FREE}, here, there)
    assert both.bit_count() == 2


@many
@given(weighted_paths, weighted)
def test_every_decided_path_contains_the_decision_and_is_light_enough(
    before: set[Decisions], decision: Decision
) -> None:
    for one in map(NUMBERING.decisions, decided(numbered(before), decision)):
        assert weight(one) <= MOST_DECISIONS
        assert decision.unweighted in {other.unweighted for other in one}


# Paths to one configuration


def added(*steps: set[Path]) -> set[Path]:
    """The paths that are left when these are added one after the other."""
    into: Configurations = {}
    for step in steps:
        add(into, (HERE, NOTHING), step)
    return into[HERE, NOTHING]


def test_a_path_that_contains_another_is_dropped() -> None:
    assert added(paths("a"), paths("a b")) == paths("a")
    assert added(paths("a b"), paths("a")) == paths("a")


def test_what_needs_no_decision_needs_no_other_path() -> None:
    assert added(paths("a"), {FREE}) == {FREE}
    assert added({FREE}, paths("a", "!b")) == {FREE}


def test_a_test_both_of_whose_arms_lead_here_does_not_matter() -> None:
    assert added(paths("a"), paths("!a")) == {FREE}
    assert added(paths("a b"), paths("!a b")) == paths("b")
    assert added(paths("a b"), paths("!a c")) == paths("a b", "!a c")


def test_arms_of_different_weight_do_not_cancel() -> None:
    assert added(paths("a"), paths("!a2")) == paths("a", "!a2")


def test_only_new_paths_are_given_back() -> None:
    into: Configurations = {}
    key = (HERE, NOTHING)
    assert add(into, key, paths("a b")) == paths("a b")
    assert add(into, key, paths("a b", "a b c")) == set()
    assert add(into, key, paths("a !b")) == paths("a")
    assert add(into, key, {FREE}) == {FREE}
    assert add(into, key, paths("d")) == set()


@many
@given(st.lists(some_paths, min_size=1, max_size=3))
def test_the_kept_paths_lead_here_in_the_same_runs_as_all_of_them(
    steps: list[set[Decisions]],
) -> None:
    kept = set(map(NUMBERING.decisions, added(*map(numbered, steps))))
    whole = set().union(*steps)
    for outcomes in runs():
        assert leads_here(kept, outcomes) is leads_here(whole, outcomes)


@many
@given(weighted_paths)
def test_the_smallest_paths_contain_none_of_each_other_and_come_lightest_first(
    found: set[Decisions],
) -> None:
    kept = smallest(found)
    assert not any(one < other for one in kept for other in kept)
    assert [weight(one) for one in kept] == sorted(weight(one) for one in kept)
    assert kept == smallest(set(kept))


@many
@given(some_paths)
def test_the_smallest_paths_say_the_same(found: set[Decisions]) -> None:
    before = set(found)
    kept = smallest(found)
    assert found == before
    for outcomes in runs():
        assert leads_here(kept, outcomes) is leads_here(found, outcomes)


# Configurations


def test_merging_keeps_states_and_what_is_known_apart() -> None:
    into: Configurations = {(HERE, NOTHING): paths("a")}
    merge(into, {(HERE, NOTHING): paths("b"), (THERE, NOTHING): paths("c"), (HERE, KNOWS): {FREE}})
    assert into == {
        (HERE, NOTHING): paths("a", "b"),
        (THERE, NOTHING): paths("c"),
        (HERE, KNOWS): {FREE},
    }


def test_the_outcome_of_a_test_is_forgotten_where_both_arms_end_in_one_state() -> None:
    then: Configurations = {(HERE, KNOWS | X_TRUE): paths("x")}
    orelse: Configurations = {(HERE, KNOWS | X_FALSE): paths("!x")}
    out = join(then, X_TRUE, orelse, X_FALSE)
    assert out == {(HERE, KNOWS): {FREE}}


def test_the_outcome_of_a_test_is_known_where_the_arms_end_in_different_states() -> None:
    then: Configurations = {(HERE, X_TRUE): paths("x")}
    orelse: Configurations = {(THERE, X_FALSE): paths("!x")}
    out = join(then, X_TRUE, orelse, X_FALSE)
    assert out == {**then, **orelse}


def test_one_arm_alone_keeps_the_outcome_of_the_test() -> None:
    then: Configurations = {(HERE, X_TRUE): paths("x")}
    assert join(then, X_TRUE, {}, X_FALSE) == then
