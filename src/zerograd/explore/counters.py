"""The tests of a loop's counter: their outcomes in the first iteration, and in all later ones."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Iterator

from zerograd.explore import logic
from zerograd.explore.flow import Alt, Flow, Loop, Set, walk
from zerograd.explore.logic import NOTHING, Const, Expr, Fact, Known, Op, Variable

_COMPARE: dict[str, Callable[[float, float], bool]] = {
    "==": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}


def first_and_later(loop: Loop) -> tuple[Known, Known]:
    """What is known of a counter that tests read: in the first iteration of its loop, and in all others."""
    counter, first = loop.counter, loop.first
    if counter is None or first not in (Const(0), Const(1)):
        return NOTHING, NOTHING
    start = int(first == Const(1))
    read = [test for test in _tests(loop.body) if counter in logic.reads(test)]
    later: set[tuple[Variable | Fact, logic.Value]] = set()
    for part in {part for test in read for part in logic.parts(test)}:
        truth = _from(part, counter, start + 1)
        if truth is not None:
            later.update(logic.facts(part, truth))
    return (frozenset({(counter, start)}) if read else NOTHING), frozenset(later)


def _tests(flow: Flow) -> Iterator[Expr]:
    """The tests of branches, and what variables are given."""
    for part in walk(flow):
        if isinstance(part, Alt):
            yield part.test
        elif isinstance(part, Set) and part.value is not None:
            yield part.value


def _from(part: Expr, counter: Variable, least: int) -> bool | None:
    """Whether a part of a test is true for every count from a number on; None where that changes."""
    if part == counter:
        return True
    if not isinstance(part, Op) or part.op not in _COMPARE:
        return None
    compare, (left, right) = _COMPARE[part.op], part.args
    number = right if left == counter else left
    if counter not in part.args or not isinstance(number, Const) or type(number.value) is not int:
        return None
    if number.value >= least and part.op in ("==", "!="):
        return None
    at_first, at_last = (
        compare(count, number.value) if left == counter else compare(number.value, count)
        for count in (least, math.inf)
    )
    return at_first if at_first == at_last else None
