"""Folding a sequence gives what exploring it gives, however little is remembered."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from support import tiers
from support.event_sequences import at, sequences
from zerograd.core import automaton
from zerograd.core.automaton import Automaton
from zerograd.core.events import Backward, Event, Step, Zero
from zerograd.core.lifecycle import NEW, START, Grads, State
from zerograd.core.rule import Violation
from zerograd.explore.explore import explore
from zerograd.explore.flow import Emit, Seq
from zerograd.rules.catalogue import RULES

Found = set[tuple[str, Violation]]

many = tiers.random(1000)


def fold(machine: Automaton, sequence: list[Event], *, start: State = START) -> tuple[Found, State]:
    node, found = machine.node(start), set()
    for event in sequence:
        edge = machine.take(node, event)
        found |= {(rule.code, violation) for rule, violation in edge.broken}
        node = edge.node
    return found, node.state


def explored(sequence: list[Event], *, start: State = START) -> Found:
    result = explore(Seq([Emit(event) for event in sequence]), RULES, start=start)
    assert not result.cut
    return {(found.rule.code, found.violation) for found in result.outcomes}


@many
@given(sequences, st.sampled_from([START, NEW]))
def test_a_sequence_gets_the_verdicts_of_its_straight_line_flow(
    sequence: list[Event], start: State
) -> None:
    assert fold(Automaton(RULES), sequence, start=start)[0] == explored(sequence, start=start)


@many
@given(sequences)
def test_forgetting_edges_changes_no_verdict(sequence: list[Event]) -> None:
    usual = fold(Automaton(RULES), sequence * 2)
    assert fold(Automaton(RULES, most_edges=1), sequence * 2) == usual


def test_every_subject_begins_with_the_same_node() -> None:
    machine = Automaton(RULES)
    first = machine.node()
    assert machine.node() is first is machine.node(START)


def test_a_violation_names_the_rule_and_the_place() -> None:
    backward, step = Backward(at(3)), Step(at(4))
    machine = Automaton(RULES)
    assert fold(machine, [backward, step, backward])[0] == set()
    ((code, violation),) = fold(machine, [backward, step, backward, step])[0]
    assert (code, violation.site) == ("ZG101", at(3))


def test_a_rule_sees_the_state_before_the_event() -> None:
    seen = []

    def check(before: State, event: Event) -> None:
        seen.append(before.grads)

    sequence = [Zero(at(1)), Backward(at(1)), Step(at(1))]
    _, state = fold(Automaton([replace(RULES[0], check=check)]), sequence)
    assert seen == [Grads.UNKNOWN, Grads.NONE, Grads.LIVE]
    assert state.grads is Grads.SPENT


def test_an_edge_is_checked_once_and_remembered() -> None:
    calls = []
    machine = Automaton(
        [replace(RULES[0], check=lambda before, event: calls.append((before, event)))]
    )
    sequence = [Zero(at(1)), Backward(at(1)), Step(at(1))]
    fold(machine, sequence * 100)
    assert len(calls) == 4  # the first clear finds the gradients unknown, the others spent


@pytest.mark.parametrize("most_edges", tiers.sample([automaton.MOST_EDGES, 100], [100]))
def test_a_long_run_does_not_grow(most_edges: int) -> None:
    machine = Automaton(RULES, most_edges=most_edges)
    node = machine.node()
    for number in range(most_edges + 1000):
        site = replace(at(1), iteration=number)
        for event in (Zero(site), Backward(site), Step(site)):
            node = machine.take(node, event).node
    assert len(machine._nodes) <= most_edges + 1
    assert sum(len(node.edges) for node in machine._nodes.values()) <= most_edges
