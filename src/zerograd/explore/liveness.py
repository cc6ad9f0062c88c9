"""What the rest of a flow may still read, at each of its parts: the live variables and facts.

A path forgets what is not live, so that configurations which differ only in that become one. Otherwise a test
whose outcome is not read any more would still count as a decision, and mistakes after several such tests would
not be reported.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache

from zerograd.explore import logic
from zerograd.explore.flow import (
    Alt,
    Block,
    Break,
    Continue,
    Emit,
    Flow,
    Jump,
    Label,
    Loop,
    Seq,
    Set,
    walk,
)
from zerograd.explore.knowledge import Keys
from zerograd.explore.logic import Expr, Fact, LastIteration, Variable

_NONE: Keys = frozenset()


class Liveness:
    """What is live in a flow."""

    def __init__(self, flow: Flow) -> None:
        self.before: dict[int, Keys] = {}
        """By the identity of a branch, loop, block or `try`: what is live before it."""
        self.again: dict[int, Keys] = {}
        """By the identity of a loop: what is live at the end of an iteration."""
        self.visit(flow, _NONE, {}, _NONE)

    def visit(self, flow: Flow, after: Keys, labels: Mapping[Label, Keys], always: Keys) -> Keys:
        """What is live before a flow. `always` is what handlers read, which may run at any time."""
        if isinstance(flow, Seq):
            for item in reversed(flow.items):
                after = self.visit(item, after, labels, always)
            return after
        if isinstance(flow, Emit):
            return after.union(_read(flow.divisor), always, (LastIteration(flow.event.loop),))
        if isinstance(flow, Set):
            needed = flow.variable in after
            read = read_by(flow) if needed else _NONE
            return _without(after, {flow.variable}) | read | always
        if isinstance(flow, Jump):
            return labels.get(flow.label, _NONE) | always
        if isinstance(flow, Alt):
            arms = [self.visit(arm, after, labels, always) for arm in (flow.then, flow.orelse)]
            before = arms[0] | arms[1] | _read(flow.test) | {LastIteration(flow.counts)}
        elif isinstance(flow, Loop):
            before = self.loop(flow, after, labels, always)
        elif isinstance(flow, Block):
            before = self.visit(flow.body, after, {**labels, flow.label: after}, always)
        else:
            final = self.visit(flow.final, after, labels, always)
            passing = {label: keys | final for label, keys in labels.items()}
            always = always | final
            handlers = [self.visit(part, final, passing, always) for part in flow.handlers]
            orelse = self.visit(flow.orelse, final, passing, always)
            before = self.visit(flow.body, orelse, passing, always.union(*handlers))
        self.before[id(flow)] = before
        return before

    def loop(self, loop: Loop, after: Keys, labels: Mapping[Label, Keys], always: Keys) -> Keys:
        """What is live before a loop."""
        out = after
        if loop.orelse is not None:
            out = self.visit(loop.orelse, after, labels, always)
        # An iteration hands on what a later one reads, except for what each iteration assigns first.
        given: set[Variable] = {*loop.targets, LastIteration(loop.ident)}
        if loop.counter is not None:
            given.add(loop.counter)
        read = _NONE.union(*map(read_by, walk(loop.body)))
        again = out | _read(loop.test) | _without(read, given)
        inner = {**labels, Break(loop.ident): after, Continue(loop.ident): again}
        again |= _without(self.visit(loop.body, again, inner, always), given)
        self.again[id(loop)] = again
        return again | _read(loop.trips) | _read(loop.first)


def read_by(part: Flow) -> Keys:
    """What a part reads itself."""
    if isinstance(part, Alt):
        return _read(part.test) | {LastIteration(part.counts)}
    if isinstance(part, Loop):
        return _read(part.test) | _read(part.trips) | _read(part.first)
    if isinstance(part, Emit):
        return _read(part.divisor) | {LastIteration(part.event.loop)}
    if isinstance(part, Set):
        return _read(part.value)
    return _NONE


def _read(expr: Expr | None) -> Keys:
    if expr is None or isinstance(expr, logic.Const):
        return _NONE
    return _keys(expr)


@lru_cache(maxsize=512)
def _keys(expr: Expr) -> Keys:
    """What an expression reads. To remember it saves 1 % of a check of the programs of `tests/cases`."""
    found: set[Variable | Fact] = set()
    for part in logic.parts(expr):
        if isinstance(part, Variable):
            found.add(part)
        if not isinstance(part, logic.Const):
            found.add(logic.fact_of(part))
        if isinstance(part, logic.Op) and part.op in ("and", "or"):
            found.update(one.fact for one in logic.shorter(part))
    return frozenset(found)


def _without(keys: Keys, variables: set[Variable]) -> Keys:
    """What is still live before these variables are assigned."""
    gone = [
        key
        for key in keys
        if (not variables.isdisjoint(key.reads) if isinstance(key, Fact) else key in variables)
    ]
    return keys.difference(gone) if gone else keys
