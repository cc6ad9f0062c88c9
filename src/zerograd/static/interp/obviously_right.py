"""Code that is obviously right: clear, backward and step in one block, in an order that cannot go wrong.

Most training code is. Recognising it from the facts of a function saves interpreting it: code that is
obviously right has no finding when it is interpreted, and all other code is interpreted. It saves 2 % of
the instructions of a check (40 files of `bench/ecosystem.txt` that are parsed); in 40 files of
`bench/right`, which are less usual, it costs 2 %.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping

from zerograd.static.frameworks import registry
from zerograd.static.frameworks.table import Role
from zerograd.static.frameworks.torch import NOT_AN_OPTIMIZER, SCHEDULER
from zerograd.static.interp.call_graph import CallGraph
from zerograd.static.read import vocabulary
from zerograd.static.read.file_index import (
    LEAVES,
    Facts,
    GradientCall,
    blocks,
    children,
    nodes,
    text_of,
)
from zerograd.static.read.module import Module
from zerograd.static.read.values import Fn

_SCALED = ".scale("
"""Whether the step knows of the scale is not decided here."""
_NONE: frozenset[str] = frozenset()
Methods = Mapping[str, frozenset[str]]
ForOrWhile = ast.For | ast.AsyncFor | ast.While
Repeated = tuple[ForOrWhile, list[ast.Call]]
"""A loop, and the steps that it repeats."""


class ObviouslyRight:
    """Recognises functions that need not be interpreted."""

    def __init__(self, graph: CallGraph) -> None:
        self.graph = graph

    def is_right(self, fn: Fn) -> bool:
        """Whether a function, and all it calls that does anything to gradients, is obviously right."""
        reached = self.graph.known.reached
        known = reached.get((fn.node, "right"))
        if known is None:
            reached[(fn.node, "right")] = False
            if is_silent(fn.module.facts[fn.node], fn.module.methods):
                known = all(self.is_right(inner) for inner in self.callees(fn))
            else:
                known = is_plain(fn.node, fn.module) and not self.has_help(fn)
            reached[(fn.node, "right")] = known
        return known

    def has_help(self, fn: Fn) -> bool:
        """Whether a function calls another one, of any file, that does something to gradients."""
        if any(self.callees(fn)):
            return True
        return any(
            self.graph.touches_gradients(inner) for inner, _ in self.graph.all_callees(fn, 0)
        )

    def callees(self, fn: Fn) -> Iterator[Fn]:
        """What a function calls in its own file that does something to gradients."""
        near = self.graph.near_callees(fn.module, fn.module.facts[fn.node], fn.klass)
        return (inner for inner in near if self.graph.touches_gradients_here(inner))


def repeated_steps(root: ast.AST, module: Module) -> list[Repeated] | None:
    """The steps of a function by the loops around them.

    None if a step is in no loop, or if something that gets the optimizer may step it, too: then only
    interpreting shows what repeats the step.
    """
    found: list[Repeated] = []
    others: list[ast.Call] = []
    stepped: set[str] = set()
    kinds: set[type[ast.expr]] = set()
    for loop, calls in written_steps(root, module, others).items():
        if loop is None:
            return None
        targets = [] if isinstance(loop, ast.While) else nodes(loop.target)
        bound = {node.id for node in targets if isinstance(node, ast.Name)}
        for call in calls:
            assert isinstance(call.func, ast.Attribute), "it is a call of `step`"
            owner = call.func.value
            if text_of(owner).split(".")[0] in bound:
                return None
            stepped.add(text_of(owner))
            kinds.add(type(owner))
        found.append((loop, calls))
    for call in others:
        for one in (*call.args, *[keyword.value for keyword in call.keywords]):
            if type(one) in kinds and text_of(one) in stepped:
                if not vocabulary.is_benign(text_of(call.func).rpartition(".")[2]):
                    return None
    return found


def written_steps(
    root: ast.AST, module: Module, others: list[ast.Call] | None = None
) -> dict[ForOrWhile | None, list[ast.Call]]:
    """The steps that a function contains, by the innermost loop around each; `others` gets all other calls."""
    found: dict[ForOrWhile | None, list[ast.Call]] = {}
    todo: list[tuple[ast.AST, ForOrWhile | None]] = [(root, None)]
    while todo:
        node, loop = todo.pop()
        if type(node) is ast.Name:
            continue  # nothing is in it
        if type(node) is ast.Call:
            func = node.func
            if (
                isinstance(func, ast.Attribute)
                and func.attr == "step"
                and _counts(GradientCall("step", text_of(func.value)), module.methods)
            ):
                found.setdefault(loop, []).append(node)
            elif others is not None:
                others.append(node)
        elif node is not root and isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            continue
        inside = node if isinstance(node, (ast.For, ast.AsyncFor, ast.While)) else loop
        todo += [(inner, inside) for inner in reversed(children(node))]
    return found


def is_silent(facts: Facts, methods: Methods) -> bool:
    """Whether a function does nothing to gradients itself."""
    return not facts.inner_touches and not any(_counts(touch, methods) for touch in facts.touches)


def is_plain(root: ast.AST, module: Module) -> bool:
    """Whether all that a function does to gradients is in blocks that are obviously right, and is repeated.

    Clearing last is right if no other function has left gradients: if only this one touches them.
    """
    facts, methods = module.facts[root], module.methods
    if facts.inner_touches or not facts.called.isdisjoint(registry.LOCAL):
        return False
    touches = [touch for touch in facts.touches if _counts(touch, methods)]
    stepped = {touch.what for touch in touches if touch.kind == "step"}
    alone = len(stepped) == 1
    late = alone and sum(bool(other.touches) for other in module.facts.values()) == 1
    written = 0
    rounds = []
    for block in blocks(root):
        if acts := [touch for touch in block if _counts(touch, methods)]:
            rounds.append(acts)
            written += sum(touch.kind != LEAVES for touch in acts)
    if not stepped or written != len(touches):
        return False  # a call inside another expression is in no block
    late = late and len(rounds) == 1
    for acts in rounds:
        if not _is_right(acts, alone, late):
            return False
    return repeated_steps(root, module) is not None


def _counts(touch: GradientCall, methods: Methods) -> bool:
    """Whether an act concerns gradients: environments and schedulers have a `step`, too."""
    if (
        touch.kind != "step"
        or vocabulary.role_of_use(touch.what, methods.get(touch.what, _NONE)) is Role.OPTIMIZER
    ):
        return True
    last = touch.what.rpartition(".")[2]
    return not (SCHEDULER.search(last) or NOT_AN_OPTIMIZER.search(last))


def _is_right(block: list[GradientCall], alone: bool, late: bool) -> bool:
    """One round after the other: `zero x, backward, step x`; for one alone also with the zero last."""
    at = 0
    early = bool(block) and block[0].kind == "zero_grad"
    while at < len(block):
        if block[at].kind == LEAVES:
            at += 1
            continue
        if (block[at].kind == "zero_grad") is not early:
            return False  # what one round leaves, the other would add to
        end = _round(block, at, alone, late)
        if end is None:
            return False
        at = end
    return True


def _round(block: list[GradientCall], at: int, alone: bool, late: bool) -> int | None:
    """Where a round that begins here ends."""
    first = block[at]
    early = first.kind == "zero_grad"
    at += early
    while at < len(block) and block[at].kind == LEAVES:
        at += 1  # no gradient waits for a step yet
    if at >= len(block) or block[at].kind != "backward" or _SCALED in block[at].what:
        return None
    at += 1
    while alone and at < len(block) and block[at].kind in registry.CLIPS:
        at += 1
    if at >= len(block) or block[at].kind != "step":
        return None
    step = block[at]
    if early:
        return at + 1 if step.what == first.what else None
    # The zero comes last: nothing may leave the block between the step and it.
    clear = block[at + 1] if at + 1 < len(block) else None
    if not late or clear is None or clear != GradientCall("zero_grad", step.what, step.at + 1):
        return None
    return at + 2
