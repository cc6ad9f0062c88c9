"""A function that is called again and again, as a loop that counts its calls."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence
from itertools import chain

from zerograd.core.events import Site, Step, Unknown, Update, Zero
from zerograd.explore import logic
from zerograd.explore.flow import (
    Alt,
    Block,
    Emit,
    Flow,
    Loop,
    Seq,
    Set,
    children,
    find,
    has_step,
    leaves_by,
    rebuild,
    relooped,
)
from zerograd.explore.logic import Const, Name
from zerograd.static.accumulation import Counting
from zerograd.static.interp.emitter import Act
from zerograd.static.read.syntax_tree import nodes, text_of
from zerograd.static.roots import Root
from zerograd.static.unread_guards import trains_in_a_loop


def counts_calls(flow: Flow) -> bool:
    """Whether a flow has no training loop, and a step in it depends on how often it was called."""
    return not trains_in_a_loop(flow) and any(True for _ in _guards(flow))


def _guards(flow: Flow) -> Iterator[Alt]:
    """The tests on a count that decide about a step: of a count that is handed in, or that is kept."""
    counting = Counting.of(flow)
    for alt, decided in _tests(flow):
        if (logic.remainders(alt.test) or counting.closes(alt)) and any(map(has_step, decided)):
            yield alt


def _tests(flow: Flow, after: Sequence[Sequence[Flow]] = ()) -> Iterator[tuple[Alt, list[Flow]]]:
    """The tests of a flow, each with what it decides about: its arms, and what comes after if one of them leaves."""
    if isinstance(flow, Seq):
        for index, item in enumerate(flow.items):
            if not isinstance(item, (Emit, Set)):
                yield from _tests(item, (flow.items[index + 1 :], *after))
    elif isinstance(flow, Alt):
        rest = after if leaves_by(flow.then) is not None else ()
        yield flow, [flow.then, flow.orelse, *chain.from_iterable(rest)]
        yield from _tests(flow.then, after)
        yield from _tests(flow.orelse, after)
    else:
        for part in children(flow):
            yield from _tests(part)


def repeated(flow: Flow, per_batch: bool) -> Flow:
    """A function that is called once per batch, as a loop that counts what its guards read.

    Unless it is a framework that calls it, the caller may do what the function leaves undone.
    """
    counted = Counting.of(flow).counters
    counter = None
    for alt in _guards(flow):
        for count, _ in (op.args for op in logic.remainders(alt.test)):
            if not logic.reads(count) & counted:
                counter = next(iter(sorted(logic.reads(count), key=str)), counter)
    site = next((p.event.site for p in find(flow, Emit)), Site("", 1))
    targets = frozenset({counter}) if counter else frozenset()
    fetched = list(_fetched(flow))
    left = [] if per_batch else _left_to_the_caller(flow, site)
    body = relooped(Seq([_without(flow, fetched), *left]), 0, -1)
    return Seq([*fetched, Loop(body, -1, site, targets, counter)])


def first_counts(root: Root, flow: Flow) -> list[Set]:
    """What the counters that guards read begin with, if the object counts them itself; none if one is unclear.

    Its constructor sets each of them to a number, and no method counts them but those that were read.
    """
    fn = root.fn
    if fn is None or fn.klass is None:
        return []
    counting = Counting.of(flow)
    read = (counting.roots(alt.test) for alt in _guards(flow))
    lineage = root.interpreter.classes.lineage(fn.klass)
    followed = root.interpreter.nesting.inlined | {fn.node}
    begun = []
    for counter in sorted(frozenset().union(*read) & counting.counters, key=str):
        attr = counter.text.removeprefix("self.") if isinstance(counter, Name) else ""
        assigned = [
            one for base in lineage for one in base.module.attributes_of(base.node).get(attr, ())
        ]
        made = {
            _number(value)
            for method, value, _ in assigned
            if method is not None and method.name == "__init__"
        }
        again = {_number(value) for method, value, _ in assigned if method not in followed}
        others = (
            method
            for base in lineage
            for method in base.module.methods_of(base.node).values()
            if method not in followed
        )
        if (
            len(made) != 1
            or None in made
            or again != made
            or any(_counts(method, f"self.{attr}") for method in others)
        ):
            return []
        begun.append(Set(counter, Const(made.pop())))
    return begun


def _number(node: ast.expr) -> int | None:
    value = node.value if isinstance(node, ast.Constant) else None
    return value if type(value) is int else None


def _counts(method: ast.AST, name: str) -> bool:
    """Whether a method changes a count."""
    return any(
        isinstance(node, ast.AugAssign) and text_of(node.target) == name for node in nodes(method)
    )


def _left_to_the_caller(flow: Flow, site: Site) -> list[Act]:
    """What the caller may do after the function: update the scaler, and clear gradients that were stepped."""
    acts = find(flow, Act)
    cleared = {key for act in acts if isinstance(act.event, Zero) for key in act.whose}
    stepped = {key for act in acts if isinstance(act.event, Step) for key in act.whose}
    left = [Act(Unknown(site), whose=frozenset(stepped - cleared))] if not cleared else []
    if not any(isinstance(act.event, Update) for act in acts):
        left.append(Act(Update(site), anyone=True))
    return left


def _fetched(flow: Flow) -> Iterator[Emit]:
    """The objects that a function looks up first: each call looks up the same ones."""
    for part in children(flow) if isinstance(flow, (Seq, Block)) else (flow,):
        if isinstance(part, (Seq, Block)):
            yield from _fetched(part)
            return
        if isinstance(part, Emit) and isinstance(part.event, Unknown) and not part.event.call:
            yield part
        elif isinstance(part, Emit) and not isinstance(part.event, Unknown):
            return


def _without(flow: Flow, parts: list[Emit]) -> Flow:
    if isinstance(flow, Emit):
        return Seq(()) if flow in parts else flow
    return rebuild(flow, lambda part: _without(part, parts)) if parts else flow
