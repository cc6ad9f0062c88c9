"""What a flow may still ask for, at each of its parts: what nothing asks for any more is forgotten.

Configurations that differ only in what is forgotten are one, so that a flow with many tests in a row
has few of them.
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
from zerograd.explore.logic import Expr, Fact, LastIteration, Variable

Keys = frozenset[Variable | Fact]
_NONE: Keys = frozenset()


class Needs:
    """For each branch, loop and block: what it and all that follows it may ask for."""

    def __init__(self, flow: Flow) -> None:
        self.before: dict[int, Keys] = {}
        self.again: dict[int, Keys] = {}
        """For each loop: what is asked for from the end of an iteration on."""
        self.flow = flow
        """Kept, so that the ids stay its own."""
        self.visit(flow, _NONE, {}, _NONE)

    def visit(self, flow: Flow, after: Keys, labels: Mapping[Label, Keys], always: Keys) -> Keys:
        """What is asked for from here on. `always`: by handlers that may run at any time."""
        if isinstance(flow, Seq):
            for item in reversed(flow.items):
                after = self.visit(item, after, labels, always)
            return after
        if isinstance(flow, Emit):
            return after.union(_asked(flow.divisor), always, (LastIteration(flow.event.loop),))
        if isinstance(flow, Set):
            needed = flow.variable in after
            asked = _asked(flow.value) if needed else _NONE
            return _without(after, {flow.variable}) | asked | always
        if isinstance(flow, Jump):
            return labels.get(flow.label, _NONE) | always
        if isinstance(flow, Alt):
            arms = [self.visit(arm, after, labels, always) for arm in (flow.then, flow.orelse)]
            before = arms[0] | arms[1] | _asked(flow.test) | {LastIteration(flow.counts)}
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
        out = after
        if loop.orelse is not None:
            out = self.visit(loop.orelse, after, labels, always)
        # What one iteration asks for the last one may have to know, but for what each gets anew.
        given: set[Variable] = {*loop.targets, LastIteration(loop.ident)}
        if loop.counter is not None:
            given.add(loop.counter)
        asked = _NONE.union(*map(_asked_by, walk(loop.body)))
        again = out | _asked(loop.test) | _without(asked, given)
        inner = {**labels, Break(loop.ident): after, Continue(loop.ident): again}
        again |= _without(self.visit(loop.body, again, inner, always), given)
        self.again[id(loop)] = again
        return again | _asked(loop.trips) | _asked(loop.first)


@lru_cache(maxsize=8)
def needs(flow: Flow) -> Needs:
    """What the parts of a flow ask for; the same flow is explored once for each group of rules."""
    return Needs(flow)


def _asked_by(part: Flow) -> Keys:
    """What a part asks for itself."""
    if isinstance(part, Alt):
        return _asked(part.test) | {LastIteration(part.counts)}
    if isinstance(part, Loop):
        return _asked(part.test) | _asked(part.trips) | _asked(part.first)
    if isinstance(part, Emit):
        return _asked(part.divisor) | {LastIteration(part.event.loop)}
    return _asked(part.value) if isinstance(part, Set) else _NONE


def _asked(expr: Expr | None) -> Keys:
    if expr is None or isinstance(expr, logic.Const):
        return _NONE
    return _keys(expr)


@lru_cache(maxsize=512)
def _keys(expr: Expr) -> Keys:
    found: set[Variable | Fact] = set()
    for part in logic.parts(expr):
        if isinstance(part, Variable):
            found.add(part)
        if not isinstance(part, logic.Const):
            found.add(logic.fact_of(part))
    return frozenset(found)


def _without(keys: Keys, variables: set[Variable]) -> Keys:
    """What is left when variables get new values."""
    gone = [
        key
        for key in keys
        if (not variables.isdisjoint(key.reads) if isinstance(key, Fact) else key in variables)
    ]
    return keys.difference(gone) if gone else keys
