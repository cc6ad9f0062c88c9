"""A variable that holds the result of a test asks what the test asks, until something changes."""

from __future__ import annotations

from support.event_sequences import at
from zerograd.core.events import Step
from zerograd.explore.flow import Alt, Block, Emit, Flow, Jump, Loop, Return, Seq, Set, walk
from zerograd.explore.logic import Const, Expr, Name, Op
from zerograd.explore.named_tests import spelled_out

AT, DUE, OTHER = Name("i"), Name("due"), Name("other")
IS_DUE = Op("==", (Op("%", (AT, Name("n"))), Const(0)))
STEP = Emit(Step(at(3)))
NOTHING = Seq(())


def when(test: Expr, then: Flow = STEP) -> Alt:
    return Alt(test, then, NOTHING, at(50))


def asked(*items: Flow) -> list[Expr]:
    """The tests of a flow, in the order of the source."""
    flow = spelled_out(Seq(items))
    return [part.test for part in reversed(list(walk(flow))) if isinstance(part, Alt)]


def test_a_named_test_is_the_test() -> None:
    assert asked(Set(DUE, IS_DUE), when(DUE)) == [IS_DUE]
    assert asked(Set(DUE, IS_DUE), when(Op("not", (DUE,)))) == [Op("not", (IS_DUE,))]


def test_a_name_of_a_name_is_the_test_too() -> None:
    named = Op("not", (DUE,))
    assert asked(Set(DUE, IS_DUE), Set(OTHER, named), when(OTHER)) == [Op("not", (IS_DUE,))]


def test_it_is_another_one_once_something_that_it_reads_is_assigned() -> None:
    assert asked(Set(DUE, IS_DUE), Set(AT, Const(1)), when(DUE)) == [DUE]
    assert asked(Set(DUE, IS_DUE), Set(DUE), when(DUE)) == [DUE]


def test_the_next_iteration_asks_for_what_the_one_before_has_stored() -> None:
    loop = Loop(Seq([when(DUE), Set(DUE, IS_DUE)]), 1, at(9), frozenset({AT}), AT)
    assert asked(Set(DUE, IS_DUE), loop, when(DUE)) == [DUE, DUE]
    inside = Loop(Seq([Set(DUE, IS_DUE), when(DUE)]), 1, at(9), frozenset({AT}), AT)
    assert asked(inside) == [IS_DUE]


def test_a_test_that_one_arm_has_stored_is_not_known_behind_both() -> None:
    assert asked(when(OTHER, Set(DUE, IS_DUE)), when(DUE)) == [OTHER, DUE]
    left = Block(Seq([when(OTHER, Jump(Return(1))), Set(DUE, IS_DUE)]), Return(1))
    assert asked(left, when(DUE)) == [OTHER, DUE]


def test_a_number_is_no_test() -> None:
    assert asked(Set(DUE, Op("+", (AT, Const(1)))), when(DUE)) == [DUE]
