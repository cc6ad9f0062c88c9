"""Replaces a variable that holds the result of a test by the test, until something that the test reads is assigned.

After `do_step = (i + 1) % n == 0`, or with an argument `update=(i + 1) % n == 0`, the test `if do_step:` is the
same as `if (i + 1) % n == 0:`. After `scaler = GradScaler() if amp else None`, `if scaler:` is the same as `if amp:`.
"""

from __future__ import annotations

from collections.abc import Set as AbstractSet

from zerograd.core.records import replace
from zerograd.explore import logic
from zerograd.explore.flow import (
    Alt,
    Block,
    Flow,
    Jump,
    Loop,
    Seq,
    Set,
    Try,
    assigned,
    leaves_by,
    walk,
)
from zerograd.explore.logic import Expr, Op, Variable

Tests = dict[Variable, Expr]


def spelled_out(flow: Flow) -> Flow:
    """The flow with tests instead of the variables that hold their results."""
    if not any(isinstance(part, Set) and _is_named(part) for part in walk(flow)):
        return flow
    return _spell(flow, {})


def _spell(flow: Flow, tests: Tests) -> Flow:
    """The flow with its tests spelled out. `tests` are the tests that variables hold; they are updated."""
    if isinstance(flow, Seq):
        return Seq([_spell(item, tests) for item in flow.items])
    if isinstance(flow, Set):
        held = tests.get(flow.value) if isinstance(flow.value, Variable) else None
        _forget(tests, {flow.variable})
        if held is not None and flow.variable not in logic.reads(held):
            tests[flow.variable] = held  # another name of the same
        elif _is_named(flow) and flow.value is not None:
            tests[flow.variable] = logic.substituted(flow.value, tests)
        return flow
    if isinstance(flow, Alt):
        test, before = logic.substituted(flow.test, tests), dict(tests)
        then, other = _spell(flow.then, tests), before
        orelse = _spell(flow.orelse, other)
        if leaves_by(then) is not None:
            tests.clear()
            tests.update(other)
        elif leaves_by(orelse) is None:
            for variable in [name for name in tests if other.get(name) != tests[name]]:
                del tests[variable]
        return replace(flow, test=test, then=then, orelse=orelse)
    if isinstance(flow, Loop):
        _forget(tests, assigned(flow))
        body = _spell(flow.body, dict(tests))
        ended = _spell(flow.orelse, dict(tests)) if flow.orelse is not None else None
        return replace(flow, body=body, orelse=ended)
    if isinstance(flow, Block):
        inside = dict(tests)
        body = _spell(flow.body, inside)
        if any(isinstance(part, Jump) and part.label == flow.label for part in walk(body)):
            _forget(tests, assigned(body))
        else:
            tests.clear()
            tests.update(inside)
        return Block(body, flow.label)
    if isinstance(flow, Try):
        body = _spell(flow.body, dict(tests))
        _forget(tests, assigned(flow))
        return replace(
            flow,
            body=body,
            handlers=[_spell(part, dict(tests)) for part in flow.handlers],
            orelse=_spell(flow.orelse, dict(tests)),
            final=_spell(flow.final, dict(tests)),
        )
    return flow


def _is_named(flow: Set) -> bool:
    """Whether a variable gets the result of a test that it does not change itself."""
    value = flow.value
    if not isinstance(value, Op) or not logic.stable(value):
        return False
    joins = value.op in ("and", "or") and any(map(logic.is_truth, value.args))
    if value.op != "if" and not joins and not logic.is_truth(value):
        return False
    return flow.variable not in value.reads


def _forget(tests: Tests, variables: AbstractSet[Variable]) -> None:
    """Drops the tests that these variables hold, or that read them."""
    for name in [n for n in tests if n in variables or logic.reads(tests[n]) & variables]:
        del tests[name]
