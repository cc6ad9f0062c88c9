"""From a syntax tree to a flow of acts: statements and inlined calls. Nothing is executed.

What cannot be seen stays unknown; whoever reads the flow may excuse by it, and must not accuse by it.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any

from zerograd.core.events import Event, Kind, Site
from zerograd.core.records import replace
from zerograd.explore.flow import (
    RAISE,
    Alt,
    Block,
    Break,
    Continue,
    Flow,
    Jump,
    Return,
    Seq,
    Set,
    Try,
    leaves_by,
)
from zerograd.explore.logic import Const, Expr, Name, Opaque
from zerograd.static.interp import conditions
from zerograd.static.interp.effects import BLANK, Act, clear, excuse_bypass
from zerograd.static.interp.environment import Frame
from zerograd.static.interp.gradient_calls import updates_by_hand
from zerograd.static.interp.library_calls import open_context
from zerograd.static.interp.loops import Loops
from zerograd.static.interp.unused_loss import idle_loss
from zerograd.static.read.file_index import Function, parameters, text_of
from zerograd.static.read.values import (
    NOTHING,
    OPTIMIZER,
    Fn,
    Klass,
    Lit,
    Many,
    Params,
    Tensor,
    Thing,
    Value,
    join,
)

EMPTY = Seq(())


class Lower(Loops):
    """Lowers one root (a module's top level or a function) and all that it calls."""

    def module_body(self) -> Flow:
        """The module's top level as a flow."""
        return self.collect(self.frame.module.tree.body)

    def function(self, fn: Fn) -> Flow:
        """A function as a flow, its parameters unknown."""
        values = {}
        node = fn.node
        for arg in parameters(node):
            values[arg.arg] = self.unknown_argument(arg)
        if isinstance(fn.owner, Thing) and node.args.args:
            values[node.args.args[0].arg] = fn.owner
        out, self.out = self.out, []
        self.enter(fn, values, {})
        flow, self.out = self.out, out
        return Seq(tuple(flow))

    def unknown_argument(self, arg: ast.arg) -> Value:
        note = text_of(arg.annotation) if arg.annotation is not None else ""
        role = OPTIMIZER if "Optimizer" in note and "List" not in note and "[" not in note else ""
        return Thing(arg.arg, role)

    def idle_loss(self, step: Event) -> Site | None:
        """Where the function of a step, or its loop, computes a loss that it hands to nothing."""
        path, loop, _ = self.idle.get(step.loop, ("", None, 0))
        around = [(path, loop)] if loop is not None else []
        if path != step.site.path or not _holds(loop, step.site.line):
            own = [node for node in self.inlined if _holds(node, step.site.line)]
            own.sort(key=lambda node: getattr(node, "lineno", 0))
            around[:0] = [(step.site.path, node) for node in own[-1:]]
        for path, node in around:
            found = idle_loss(node)
            if found is not None:
                return replace(self.site(found), path=path)
        return None

    def around(self) -> tuple[ast.AST, ...]:
        """The innermost loop, and the functions that were called from there to here."""
        if self.loops[-1] not in self.idle:
            return tuple(self.stack[-1:])
        _, loop, depth = self.idle[self.loops[-1]]
        return (loop, *self.stack[depth:])

    def collect(self, body: Sequence[ast.stmt]) -> Flow:
        """The flow of some statements."""
        out, self.out = self.out, []
        try:
            self.statements(body)
            return Seq(tuple(self.out))
        finally:
            self.out = out

    def statements(self, body: Sequence[ast.stmt]) -> None:
        for node in body:
            handler = _HANDLERS.get(node.__class__)
            if handler is not None:
                handler(self, node)

    def do_Expr(self, node: ast.Expr) -> None:
        self.value(node.value)

    def do_Assign(self, node: ast.Assign) -> None:
        value = self.value(node.value)
        for target in node.targets:
            self.store(target, value, node.value, node)

    def do_AnnAssign(self, node: ast.AnnAssign) -> None:
        if node.value is not None:
            self.store(node.target, self.value(node.value), node.value, node)

    def do_AugAssign(self, node: ast.AugAssign) -> None:
        old = self.peek(node.target)
        new = self.value(node.value)
        if updates_by_hand(self, node.target, old, new, node):
            return
        combined = ast.copy_location(ast.BinOp(_loaded(node.target), node.op, node.value), node)
        value: Value = self.arithmetic(combined, old, new)
        if isinstance(old, (Thing, Params)) and not isinstance(new, Tensor):
            value = old
        if isinstance(old, Many) and isinstance(new, Many):
            value = Many(old.items + new.items)
        self.store(node.target, value, combined, node)

    def do_Delete(self, node: ast.Delete) -> None:
        for target in node.targets:
            if isinstance(target, ast.Attribute) and target.attr == "grad":
                clear(self, self.peek(target.value), node, to_none=True)

    def do_Return(self, node: ast.Return) -> None:
        value: Value = Lit(None)
        if node.value is not None:
            value = self.value(node.value)
            self.hand_on(value)
        self.frame.returns.append(value)
        self.out.append(Jump(Return(self.frame.call)))

    def do_Raise(self, node: ast.Raise) -> None:
        self.out.append(Jump(RAISE))

    def do_Break(self, node: ast.Break) -> None:
        self.out.append(Jump(Break(self.loops[-1])))

    def do_Continue(self, node: ast.Continue) -> None:
        self.out.append(Jump(Continue(self.loops[-1])))

    def do_Assert(self, node: ast.Assert) -> None:
        self.value(node.test)

    def do_FunctionDef(self, node: Function) -> None:
        fn = Fn(node, self.frame.module, node.name, None, self.frame)
        self.frame.env[node.name] = fn
        if self.frame is not self.top:
            self.closures.append(fn)

    do_AsyncFunctionDef = do_FunctionDef

    def do_ClassDef(self, node: ast.ClassDef) -> None:
        self.frame.env[node.name] = Klass(node, self.frame.module, node.name)

    def do_If(self, node: ast.If) -> None:
        checked = conditions.is_none_check(node.test)
        if checked is not None:
            self.under_none_check(node, checked)
            return
        self.value(node.test)
        constant = conditions.constant(self, node.test)
        if constant is not None:
            self.statements(node.body if constant else node.orelse)
            return
        partial = self.some
        if self.some is not True and self.in_parameters and not _asks_requires_grad(node.test):
            self.some = True
        before, self.frame.env = self.frame.env, dict(self.frame.env)
        then = self.collect(node.body)
        after_then, self.frame.env = self.frame.env, dict(before)
        orelse = self.collect(node.orelse)
        self.some = partial
        after_else, self.frame.env = self.frame.env, before
        excuse_bypass(self, then, orelse)
        if _does_something(then) or _does_something(orelse):
            # The test is asked where the arms have not assigned anything yet.
            test = conditions.expression(self, node.test)
            alt = Alt(test, then, orelse, self.site(node.test))
            alt.exists = conditions.exists_check(self, node.test)
            self.out.append(alt)
        self.frame.env = after_else
        mixed = self.merge(after_then, leaves_by(then) is not None, leaves_by(orelse) is not None)
        for key in sorted(mixed):
            self.emit(Kind.UNKNOWN, node.test, Act(BLANK, whose=frozenset({key})))

    def under_none_check(self, node: ast.If, present: bool) -> None:
        """A gradient that is None has nothing to clear: only the other arm counts."""
        unguarded, self.unguarded = self.unguarded, False
        self.statements(node.body if present else node.orelse)
        self.unguarded = unguarded if present else False

    def merge(self, other: dict[str, Value], other_leaves: bool, this_leaves: bool) -> set[str]:
        """Joins the variables of two arms, of which one that leaves does not count.

        Gives back the keys of optimizers that are one or another object from here on.
        """
        if other_leaves:
            return set()
        if this_leaves:
            self.frame.env = other
            return set()
        env = self.frame.env
        mixed = set()
        for name, value in other.items():
            mine = env.get(name)
            if mine is value:
                continue
            if mine is None or mine == value:
                env[name] = value
                continue
            env[name] = joined = join([value, mine])
            if isinstance(joined, Thing) and any(map(self.is_optimizer, (value, mine))):
                mixed.add(joined.key)
        return mixed

    def do_Match(self, node: ast.Match) -> None:
        self.value(node.subject)
        flow: Flow = EMPTY
        before = dict(self.frame.env)
        for index, case in enumerate(reversed(node.cases)):
            self.frame.env = dict(before)
            body = self.collect(case.body)
            text = f"{text_of(node.subject)} matches {ast.unparse(case.pattern)}"
            wild = isinstance(case.pattern, ast.MatchAs) and case.pattern.pattern is None
            if wild and case.guard is None and index == 0:
                flow = body
                continue
            test = Opaque(self.frame.prefix + text, self.reads(node.subject))
            flow = Alt(test, body, flow, self.site(case.pattern))
        self.out.append(flow)

    def do_With(self, node: ast.With) -> None:
        no_grad, frozen = self.no_grad, self.accumulating
        after: list[Flow] = []
        for item in node.items:
            open_context(self, item, after)
        self.statements(node.body)
        self.no_grad, self.accumulating = no_grad, frozen
        self.out.extend(after)

    do_AsyncWith = do_With

    def do_Try(self, node: ast.Try) -> None:
        body = self.collect(node.body)
        env = dict(self.frame.env)
        handlers = [self.collect(handler.body) for handler in node.handlers]
        self.frame.env = env
        orelse = self.collect(node.orelse)
        final = self.collect(node.finalbody)
        self.out.append(Try(body, handlers, orelse, final, self.site(node)))

    do_TryStar = do_Try

    def enter(
        self,
        fn: Fn,
        values: dict[str, Value],
        aliases: dict[str, str],
        tests: Mapping[str, Expr] = MappingProxyType({}),
    ) -> Value:
        """Runs through a function's body in a frame of its own; gives back what it returns.

        `tests` are the arguments that are tests themselves: `update=(i + 1) % n == 0`.
        """
        self.count += 1
        node = fn.node
        caller = self.frame
        prefix = "" if caller is self.top and not self.stack and not self.out else f"{self.count}#"
        frame = Frame(
            fn.module,
            prefix,
            fn.frame,
            dict(values),
            aliases,
            self.locals_of(fn) | frozenset(values),
            fn.owner,
            fn.klass,
            call=self.count,
        )
        for name in self.locals_of(fn):
            frame.aliases.pop(name, None)
        self.frame = frame
        self.project.frames.append(frame)
        self.stack.append(node)
        self.inlined.add(node)
        state = (self.in_parameters, self.some, self.unguarded, self.no_grad)
        self.in_parameters, self.some, self.unguarded = False, False, True
        if not isinstance(node, ast.Lambda) and any(
            text_of(d).rstrip("()").endswith(("no_grad", "inference_mode"))
            for d in node.decorator_list
        ):
            self.no_grad += 1
        try:
            if isinstance(node, ast.Lambda):
                return self.value(node.body)
            for name, value in values.items():
                if isinstance(value, Lit):
                    self.out.append(Set(Name(frame.prefix + name), Const(value.value)))
            for name, test in tests.items():
                self.out.append(Set(Name(frame.prefix + name), test))
            body = self.collect(node.body)
            self.out.append(Block(body, Return(frame.call)))
            return join(frame.returns) if frame.returns else Lit(None)
        finally:
            self.in_parameters, self.some, self.unguarded, self.no_grad = state
            self.stack.pop()
            self.frame = caller

    def returned(self, fn: Fn, owner: Thing) -> Value:
        """What a method gives back, without its effects."""
        if fn.node in self.stack or not fn.node.args.args:
            return NOTHING
        out, self.out = self.out, []
        acts = self.acts
        self.quiet += 1
        try:
            return self.enter(fn, {fn.node.args.args[0].arg: owner}, {})
        finally:
            self.out, self.acts = out, acts
            self.quiet -= 1


_HANDLERS: dict[type[ast.AST], Callable[[Lower, Any], None]] = {
    getattr(ast, name[3:]): getattr(Lower, name)
    for name in dir(Lower)
    if name[:3] == "do_" and hasattr(ast, name[3:])
}


def _holds(node: ast.AST | None, line: int) -> bool:
    return getattr(node, "lineno", line + 1) <= line <= (getattr(node, "end_lineno", 0) or 0)


def _does_something(flow: Flow) -> bool:
    return not isinstance(flow, Seq) or bool(flow.items)


def _asks_requires_grad(node: ast.expr) -> bool:
    return any(isinstance(n, ast.Attribute) and n.attr == "requires_grad" for n in ast.walk(node))


def _loaded(node: ast.expr) -> ast.expr:
    if isinstance(node, ast.Name):
        return ast.copy_location(ast.Name(node.id, ast.Load()), node)
    if isinstance(node, ast.Attribute):
        return ast.copy_location(ast.Attribute(node.value, node.attr, ast.Load()), node)
    return node
