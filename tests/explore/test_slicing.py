"""A slice keeps what decides about events that some rules ask for, and nothing else."""

from __future__ import annotations

from support.event_sequences import at
from zerograd.core.events import Backward, Clip, Step, Zero
from zerograd.explore.flow import (
    Alt,
    Block,
    Continue,
    Emit,
    Flow,
    Jump,
    Loop,
    Return,
    Seq,
    Set,
    Try,
    walk,
)
from zerograd.explore.logic import Const, Name, Op
from zerograd.explore.slicing import sliced as sliced_for
from zerograd.rules.catalogue import RULES

ZERO, BACKWARD, STEP, CLIP = (
    Emit(event) for event in (Zero(at(1)), Backward(at(2)), Step(at(3)), Clip(at(4)))
)
X, Y = Name("x"), Name("y")
NOTHING = Seq(())
STALE = tuple(rule for rule in RULES if rule.code == "ZG101")


def sliced(flow: Flow) -> Flow:
    """A flow without clips: they make no difference to ZG101."""
    return sliced_for(flow, STALE)


def test_a_branch_without_events_is_gone_and_with_it_what_only_it_reads() -> None:
    flow = Seq([Set(X, Const(1)), Set(Y, X), Alt(Y, CLIP, NOTHING, at(9)), STEP])
    assert sliced(flow) is STEP


def test_what_a_kept_test_depends_on_is_kept() -> None:
    double = Op("+", (X, X))
    flow = Seq([Set(X, Const(1)), Set(Y, double), Alt(Y, STEP, NOTHING, at(9)), CLIP])
    kept = sliced(flow)
    assert [part.variable for part in walk(kept) if isinstance(part, Set)] == [Y, X]


def test_an_assignment_under_a_test_keeps_the_test_and_what_that_reads() -> None:
    flag = Alt(X, Set(Y, Const(True)), NOTHING, at(8))
    flow = Seq([Set(X, Const(1)), flag, Alt(Y, STEP, NOTHING, at(9))])
    assert sliced(flow) is flow


def test_a_jump_to_the_end_of_its_own_block_is_gone() -> None:
    leaves = Alt(X, Jump(Return(1)), NOTHING, at(9))
    assert sliced(Block(Seq([STEP, leaves, CLIP]), Return(1))) is STEP
    skips = Alt(X, Jump(Continue(1)), NOTHING, at(9))
    loop = Loop(Seq([STEP, skips, CLIP]), 1, at(9))
    kept = sliced(loop)
    assert isinstance(kept, Loop)
    assert kept.body is STEP


def test_a_jump_over_an_event_stays() -> None:
    leaves = Alt(X, Jump(Return(1)), NOTHING, at(9))
    flow = Block(Seq([leaves, STEP]), Return(1))
    assert sliced(flow) is flow


def test_an_exception_may_still_skip_what_follows_it_in_the_try() -> None:
    flow = Try(Seq([CLIP, STEP]), [NOTHING], NOTHING, NOTHING, at(9))
    kept = sliced(flow)
    assert isinstance(kept, Try)
    assert kept.body is STEP
    assert sliced(Try(CLIP, [NOTHING], NOTHING, ZERO, at(9))) is ZERO


def test_a_flow_that_is_needed_as_a_whole_is_given_back() -> None:
    flow = Loop(Seq([ZERO, BACKWARD, STEP]), 1, at(9))
    assert sliced(flow) is flow


def test_what_a_rule_is_broken_by_stays() -> None:
    clips = tuple(rule for rule in RULES if rule.code == "ZG201")
    flow = Seq([CLIP, STEP])
    assert sliced_for(flow, clips) is flow


def test_a_count_that_ends_no_loop_is_gone_where_the_loop_is_executed() -> None:
    def counts(bound: Const | Name) -> list[Flow]:
        goes_on = Set(X, Op("+", (X, Const(1)), "x + 1"))
        loop = Loop(Seq([STEP, goes_on]), 1, at(9), test=Op("<", (X, bound)))
        kept = sliced_for(Seq([Set(X, Const(0)), loop]), STALE, frozenset({Name("n")}))
        return [part for part in walk(kept) if isinstance(part, Set)]

    assert not counts(Const(1e6))
    assert not counts(Y)
    assert len(counts(Const(8))) == 2
    assert len(counts(Name("n"))) == 2
