"""A flow without the parts that make no difference to some rules: fewer tests to decide, less to explore.

Events that change nothing that the rules read and break none of them are left out, then the assignments that nobody reads, branches
whose arms are both empty, and jumps that lead to where the flow goes anyway.
"""

from __future__ import annotations

from functools import lru_cache

from zerograd.core.events import Event
from zerograd.core.lifecycle import NARROW
from zerograd.core.records import dataclass, field, replace
from zerograd.core.rule import Rule
from zerograd.explore import logic
from zerograd.explore.flow import (
    Alt,
    Block,
    Continue,
    Emit,
    Flow,
    Jump,
    Label,
    Loop,
    Seq,
    Set,
    Try,
    walk,
)
from zerograd.explore.logic import Const, Expr, Name, Op, Variable

EMPTY = Seq(())
_NOWHERE: frozenset[Label] = frozenset()


# The same flow is explored with windows of several lengths.
@lru_cache(maxsize=16)
def sliced(flow: Flow, rules: tuple[Rule, ...], lengths: frozenset[Variable] | None = None) -> Flow:
    """The flow as far as it makes a difference to these rules; where it is executed, with what it calls N."""
    reads = frozenset[str]().union(*(rule.reads for rule in rules))
    asked = tuple({kind for rule in rules for kind in rule.at})
    idle = tuple(kind for kind in NARROW if NARROW[kind].isdisjoint(reads) and kind not in asked)
    endless = _endless(flow, lengths) if lengths is not None else frozenset()
    read: frozenset[Variable] = frozenset()
    while True:
        kept = _Slice(idle, read).of(flow, _NOWHERE) or EMPTY
        more = frozenset[Variable]().union(*(_read_by(part, endless) for part in walk(kept)))
        if more <= read:
            return kept
        read |= more


FAR = 1_000_000
"""No count comes so far: an exploration ends before."""


def _endless(flow: Flow, lengths: frozenset[Variable]) -> frozenset[Expr]:
    """The tests of loops that end none where the flow is executed: `while step < 1e6`, `while step < args.steps`."""
    sets: dict[Variable, list[Expr | None]] = {}
    counters: set[Variable | None] = {*lengths}
    tests: set[Expr] = set()
    for part in walk(flow):
        if isinstance(part, Set):
            sets.setdefault(part.variable, []).append(part.value)
        elif isinstance(part, Loop):
            counters.update((part.counter, *part.targets))
            if isinstance(part.test, Op) and part.test.op in ("<", "<=") and not part.forever:
                tests.add(part.test)

    def is_far(bound: Expr) -> bool:
        """Whether the value of a bound is never known, or far away."""
        if isinstance(bound, Name) and bound not in counters:
            values = sets.get(bound, [])
            return all(
                value is None or (isinstance(value, Const) and is_far(value)) for value in values
            )
        return (
            isinstance(bound, Const)
            and isinstance(bound.value, (int, float))
            and bound.value >= FAR
        )

    def counts_on(counter: Expr) -> bool:
        """Whether a variable is small at first, and grows by one."""
        return (
            isinstance(counter, Name)
            and counter not in counters
            and all(
                value
                in (
                    None,
                    Const(0),
                    Const(1),
                    Op("+", (counter, Const(1)), getattr(value, "text", "")),
                )
                for value in sets.get(counter, [])
            )
        )

    return frozenset(
        test
        for test in tests
        if isinstance(test, Op) and is_far(test.args[1]) and counts_on(test.args[0])
    )


def _read_by(part: Flow, endless: frozenset[Expr]) -> frozenset[Variable]:
    """The variables that a part reads itself."""
    exprs: tuple[Expr | None, ...] = ()
    if isinstance(part, Alt):
        exprs = (part.test,)
    elif isinstance(part, Loop):
        exprs = (None if part.test in endless else part.test, part.trips, part.first)
    elif isinstance(part, Set):
        exprs = (part.value,)
    elif isinstance(part, Emit):
        exprs = (part.divisor,)
    return frozenset().union(*(logic.reads(expr) for expr in exprs if expr is not None))


@dataclass
class _Slice:
    idle: tuple[type[Event], ...]
    """The kinds of event that make no difference."""
    read: frozenset[Variable]
    """The variables whose assignments are kept."""
    jumps: set[Label] = field(default_factory=set)
    """The labels of the jumps that are kept."""

    def of(self, flow: Flow, ends: frozenset[Label]) -> Flow | None:
        """What is left of a flow; a jump to one of `ends` goes where the end of the flow leads."""
        if isinstance(flow, Emit):
            return None if isinstance(flow.event, self.idle) else flow
        if isinstance(flow, Set):
            return flow if flow.variable in self.read else None
        if isinstance(flow, Jump):
            if flow.label in ends:
                return None
            self.jumps.add(flow.label)
            return flow
        if isinstance(flow, Seq):
            return self.sequence(flow, ends)
        if isinstance(flow, Alt):
            return self.branch(flow, ends)
        if isinstance(flow, Block):
            return self.block(flow, ends)
        if isinstance(flow, Loop):
            return self.loop(flow, ends)
        return self.attempt(flow)

    def sequence(self, flow: Seq, ends: frozenset[Label]) -> Flow | None:
        items: list[Flow] = []
        for item in reversed(flow.items):
            part = self.of(item, _NOWHERE if items else ends)
            if part is not None:
                items.append(part)
        items.reverse()
        if not items:
            return None
        if len(items) == len(flow.items) and all(map(_same, items, flow.items)):
            return flow
        return items[0] if len(items) == 1 else Seq(items)

    def branch(self, alt: Alt, ends: frozenset[Label]) -> Flow | None:
        then, orelse = self.of(alt.then, ends), self.of(alt.orelse, ends)
        if then is None and orelse is None:
            return None
        then, orelse = then or EMPTY, orelse or EMPTY
        if _same(then, alt.then) and _same(orelse, alt.orelse):
            return alt
        return replace(alt, then=then, orelse=orelse)

    def block(self, flow: Block, ends: frozenset[Label]) -> Flow | None:
        around, self.jumps = self.jumps, set()
        body = self.of(flow.body, ends | {flow.label})
        caught = flow.label in self.jumps
        self.jumps = around | (self.jumps - {flow.label})
        if body is None or body is flow.body:
            return flow if body is not None else None
        return Block(body, flow.label) if caught else body

    def loop(self, loop: Loop, ends: frozenset[Label]) -> Flow | None:
        orelse = self.of(loop.orelse, ends) if loop.orelse is not None else None
        body = self.of(loop.body, frozenset({Continue(loop.ident)}))
        if body is None and not loop.forever:
            return orelse
        if body is loop.body and orelse is loop.orelse:
            return loop
        return replace(loop, body=body or EMPTY, orelse=orelse)

    def attempt(self, flow: Try) -> Flow | None:
        body, orelse, final = (
            self.of(part, _NOWHERE) for part in (flow.body, flow.orelse, flow.final)
        )
        handlers = [self.of(part, _NOWHERE) for part in flow.handlers]
        if body is None and orelse is None and not any(handlers):
            return final
        return replace(
            flow,
            body=body or EMPTY,
            handlers=[part or EMPTY for part in handlers],
            orelse=orelse or EMPTY,
            final=final or EMPTY,
        )


def _same(one: Flow, other: Flow) -> bool:
    return one is other or (one is EMPTY and isinstance(other, Seq) and not other.items)
