"""The parts of a file that are interpreted: the top level, and each function that no part before it calls."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import NamedTuple

from zerograd.explore.flow import Flow, Seq
from zerograd.static.frameworks import registry
from zerograd.static.frameworks.table import Role
from zerograd.static.interp.interpreter import Interpreter, Program
from zerograd.static.interp.obviously_right import Repeated, is_plain, repeated_steps
from zerograd.static.read import vocabulary
from zerograd.static.read.budget import Cut
from zerograd.static.read.file_index import Facts, blocks, nodes, text_of
from zerograd.static.read.keys import SELF
from zerograd.static.read.module import Module
from zerograd.static.read.values import Fn, Klass, Thing


class Root(NamedTuple):
    """A part of a file that nothing is seen to call, as a flow."""

    name: str
    flow: Flow
    interpreter: Interpreter
    """What has made the flow, and knows the objects in it."""
    fn: Fn | None = None
    """The function; None for the top level."""
    per_batch: bool = False
    """A framework calls it once for each batch."""


class Roots:
    """Interprets the roots of a file, one after the other."""

    def __init__(self, program: Program, cut: dict[str, None]) -> None:
        self.program = program
        self.module = program.module
        self.cut = cut
        """What was left out, and why; here, the roots that were too large."""
        self.current = "the top level"
        """The name of the root that was interpreted last."""
        self.plain: list[tuple[str, list[Repeated]]] = []
        """The loops of functions that are obviously right, and were not interpreted."""
        self.unread: list[Fn | None] = []
        """The roots that were too large."""
        self._inlined: set[ast.AST] = set()
        """The functions that some root has called."""

    def __iter__(self) -> Iterator[Root]:
        module = self.module
        # Only this one is asked what functions reach: what it knows depends on no root.
        scout = self.program.interpreter()
        functions = list(_functions(module))
        own = any(map(module.methods_named, ("zero_grad", "step", "backward")))
        managed = own or not registry.MANAGING.isdisjoint(module.packages)
        if scout.graph.may_step(None) or _feeds(module.top):
            if managed or not self._is_obviously_right(functions, scout):
                yield self._interpret(None, self.program.interpreter())
            else:
                self._note_plain(module.tree, None)
        whole = module.facts[module.tree]
        called = {name.rpartition(".")[2] for name in whole.calls}
        functions.sort(key=lambda fn: fn.name in called)
        for fn in functions:
            if fn.node in self._inlined or _is_optimizer_method(fn):
                continue
            here = scout.graph.touches_gradients_here(fn)
            # A file that does nothing to gradients itself may still repeat what others do.
            if whole.mentions and not here:
                continue
            if here and not managed and scout.obviously_right.is_right(fn):
                self._note_plain(fn.node, fn)
                continue
            if not scout.graph.touches_gradients(fn):
                continue
            if scout.graph.may_step(fn) or _feeds(module.facts[fn.node]):
                interpreter = self.program.interpreter()
                per_batch = fn.name in registry.PER_BATCH
                yield self._interpret(fn, interpreter, per_batch=per_batch)
                for inner in interpreter.env.closures:
                    if inner.node not in self._inlined and scout.graph.touches_gradients(inner):
                        yield self._interpret(inner, interpreter)

    def _interpret(
        self, fn: Fn | None, interpreter: Interpreter, *, per_batch: bool = False
    ) -> Root:
        self.current = f"{fn.name}()" if fn is not None else "the top level"
        budget = self.program.project.budget
        budget.begin_root()
        try:
            flow = interpreter.function(fn) if fn is not None else interpreter.top_level()
        except Cut:
            if budget.file < 0:
                raise
            self.cut[f"{self.current} is too large to be followed"] = None
            self.unread.append(fn)
            flow = Seq(())
        self._inlined |= interpreter.nesting.inlined
        return Root(self.current, flow, interpreter, fn, per_batch)

    def left_out(self) -> list[Fn | None]:
        """What was not interpreted, if there was too much in the file."""
        functions = (fn for fn in _functions(self.module) if fn.node not in self._inlined)
        return [None, *functions]

    def _note_plain(self, node: ast.AST, fn: Fn | None) -> None:
        if loops := repeated_steps(node, self.module):
            self.plain.append((qualified_name(fn), loops))

    def _is_obviously_right(self, functions: list[Fn], scout: Interpreter) -> bool:
        """Whether the top level, and all that it calls that does anything to gradients, is right."""
        module = self.module
        top = module.facts[module.tree]
        if any(touch.kind != "requires_grad" for touch in top.touches):
            only = sum(bool(facts.touches) for facts in module.facts.values()) == 1
            if not is_plain(top, blocks(module.tree), module.methods, only) or _jumps(module):
                return False
            if repeated_steps(module.tree, module) is None:
                return False
        if not all(
            scout.obviously_right.is_right(fn)
            for fn in functions
            if scout.graph.touches_gradients_here(fn)
        ):
            return False
        names_called = {
            text_of(call.func).split(".")[0]
            for node in module.tree.body
            if not isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef))
            for call in ast.walk(node)
            if isinstance(call, ast.Call)
        }
        imported = (
            scout.names.of_module(module, name) for name in names_called & module.imports.keys()
        )
        return not any(isinstance(value, (Fn, Klass)) for value in imported)


def qualified_name(fn: Fn | None) -> str:
    """`Trainer.fit`, or `<module>` for the top level."""
    if fn is None:
        return "<module>"
    return f"{fn.klass.node.name}.{fn.name}" if fn.klass is not None else fn.name


def _functions(module: Module) -> Iterator[Fn]:
    """The functions of a module and the methods of its classes."""
    for node in module.functions.values():
        yield Fn(node, module, node.name)
    for klass in module.classes.values():
        owner = Klass(klass, module, klass.name)
        for method in klass.body:
            if isinstance(method, (ast.FunctionDef, ast.AsyncFunctionDef)):
                static = any(getattr(d, "id", "") == "staticmethod" for d in method.decorator_list)
                me = None if static else Thing(SELF, klass=owner)
                yield Fn(method, module, method.name, me, None, owner)


def _jumps(module: Module) -> bool:
    """Whether something may leave a block of the module early: then a round need not be complete."""
    return any(
        isinstance(node, (ast.Continue, ast.Break, ast.Raise)) for node in nodes(module.tree)
    )


def _feeds(facts: Facts) -> bool:
    """Whether some code clears and runs backward, though it never steps."""
    return {"zero_grad", "backward"} <= facts.called


def _is_optimizer_method(fn: Fn) -> bool:
    """Whether a function is part of an optimizer: no rule is about what an optimizer does inside."""
    bases = fn.klass.node.bases if fn.klass is not None else []
    return any(vocabulary.role_of_call(text_of(base)) is Role.OPTIMIZER for base in bases)
