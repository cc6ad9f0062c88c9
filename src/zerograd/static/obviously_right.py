"""Code that is obviously right: clear, backward and step in one block, in an order that cannot go wrong.

Most training code is. Recognising it from the facts of a function saves interpreting it: code that is
obviously right has no finding when it is interpreted, and all other code is interpreted. It saves 5 % of
the instructions of a check in 40 files of `bench/right`, and costs 0.6 % in 60 parsed files of 13 packages.
A check of eight right lines goes through 25 modules with it, and through 83 without it (`bench/walk.py`).
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from zerograd.core.records import dataclass
from zerograd.static.frameworks import registry
from zerograd.static.interp.call_graph import CallGraph
from zerograd.static.interp.interpreter import Program
from zerograd.static.read.file_index import Facts, GradientCall
from zerograd.static.read.module import Module
from zerograd.static.read.syntax_tree import (
    BLOCKS,
    FUNCTIONS,
    calls_in,
    children,
    first_name,
    may_leave,
    text_of,
)
from zerograd.static.read.values import Fn, Klass, Origin
from zerograd.static.written_loops import Methods, concerns_gradients, repeated_steps

_SCALED = ".scale("
"""Whether the step knows of the scale is not decided here."""
_PLAIN = (ast.Expr, ast.Assign)
_TOUCHING = registry.GRADIENT_NAMES | registry.CLIPS
_LEAVES = "leaves"
"""The kind of a statement that may leave its block."""


@dataclass(eq=False)
class ObviouslyRight:
    """Recognises functions that need not be interpreted."""

    program: Program

    @property
    def graph(self) -> CallGraph:
        """What functions reach."""
        return self.program.scout.graph

    def is_top_level(self, functions: list[Fn]) -> bool:
        """Whether the top level, and all that it calls that does anything to gradients, is right."""
        module = self.program.module
        touches = module.facts[module.tree].touches
        if any(touch.kind != "requires_grad" for touch in touches):
            if not is_plain(module.tree, module) or _jumps(module):
                return False
        for fn in functions:
            if self.graph.touches_gradients_here(fn) and not self.is_right(fn):
                return False
        for call in calls_in(*module.statements):
            name = first_name(text_of(call.func))
            if name in module.imports and self._is_of_project(name):
                return False
        return True

    def _is_of_project(self, name: str) -> bool:
        """Whether an imported name is a function, a class or a module of the project."""
        module = self.program.module
        if self.program.project.resolve(module, module.imports[name]) is None:
            return name in module.functions or name in module.classes
        value = self.program.scout.names.of_module(module, name)
        return isinstance(value, (Fn, Klass)) or (
            isinstance(value, Origin) and value.path is not None
        )

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
        if any(self.callees(fn)) or any(map(self.graph.hooks, calls_in(fn.node))):
            return True
        return any(
            self.graph.touches_gradients(inner) for inner, _ in self.graph.all_callees(fn, 0)
        )

    def callees(self, fn: Fn) -> Iterator[Fn]:
        """What a function calls in its own file that does something to gradients."""
        near = self.graph.near_callees(fn.module, fn.module.facts[fn.node], fn.klass)
        return (inner for inner in near if self.graph.touches_gradients_here(inner))


def is_silent(facts: Facts, methods: Methods) -> bool:
    """Whether a function does nothing to gradients itself."""
    return not facts.inner_touches and not any(
        concerns_gradients(touch, methods) for touch in facts.touches
    )


def is_plain(root: ast.AST, module: Module) -> bool:
    """Whether all that a function does to gradients is in blocks that are obviously right, and is repeated.

    Clearing last is right if no other function has left gradients: if only this one touches them.
    """
    facts, methods = module.facts[root], module.methods
    if facts.inner_touches or not facts.called.isdisjoint(registry.LOCAL):
        return False
    touches = [touch for touch in facts.touches if concerns_gradients(touch, methods)]
    stepped = {touch.what for touch in touches if touch.kind == "step"}
    alone = len(stepped) == 1
    late = alone and sum(bool(other.touches) for other in module.facts.values()) == 1
    written = 0
    rounds = []
    for block in _blocks(root):
        if acts := [touch for touch in block if concerns_gradients(touch, methods)]:
            rounds.append(acts)
            written += sum(touch.kind != _LEAVES for touch in acts)
    if not stepped or written != len(touches):
        return False  # a call inside another expression is in no block
    late = late and len(rounds) == 1
    for acts in rounds:
        if not _is_right(acts, alone, late):
            return False
    return repeated_steps(root, module) is not None


def _blocks(root: ast.AST) -> list[list[GradientCall]]:
    """What a function does to gradients in statements of their own, block by block, and where it may leave."""
    found = []
    todo = [root]
    for node in todo:  # it grows meanwhile
        if node is not root and isinstance(node, FUNCTIONS):
            continue
        for name in BLOCKS:
            inner = getattr(node, name, None)
            if isinstance(inner, list):
                todo += inner
                if block := _block(inner):
                    found.append(block)
    return found


def _block(statements: list[ast.stmt]) -> list[GradientCall]:
    """The statements of a block that are one plain call (`loss.backward()`) or that may leave the block."""
    block: list[GradientCall] = []
    for at, node in enumerate(statements):
        if node.__class__ not in _PLAIN or not isinstance(node.value, ast.Call):
            if block and may_leave([node]):
                block.append(GradientCall(_LEAVES, "", at))
            continue
        call = node.value
        if isinstance(call.func, ast.Name) and call.func.id in registry.CLIPS:
            block.append(GradientCall(call.func.id, "", at))
        elif isinstance(call.func, ast.Attribute) and call.func.attr in _TOUCHING:
            if call.func.attr in registry.CLIPS:
                block.append(GradientCall(call.func.attr, "", at))
            elif isinstance(node, ast.Expr) and not call.args:
                if any(keyword.arg == "gradient" for keyword in call.keywords):
                    continue  # the backward begins elsewhere
                block.append(GradientCall(call.func.attr, text_of(call.func.value), at))
    return block


def _jumps(module: Module) -> bool:
    """Whether something may leave a block of the module early: then a round need not be complete."""
    todo: list[ast.AST] = [module.tree]
    for node in todo:  # it grows meanwhile
        if isinstance(node, (ast.Continue, ast.Break, ast.Raise)):
            return True
        if not isinstance(node, ast.expr):
            todo += children(node)
    return False


def _is_right(block: list[GradientCall], alone: bool, late: bool) -> bool:
    """One round after the other: `zero x, backward, step x`; for one alone also with the zero last."""
    at = 0
    early = bool(block) and block[0].kind == "zero_grad"
    while at < len(block):
        if block[at].kind == _LEAVES:
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
    while at < len(block) and block[at].kind == _LEAVES:
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
