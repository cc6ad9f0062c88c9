"""Statements other than loops and `with` blocks: assignments, branches, jumps, definitions."""

from __future__ import annotations

import ast

from zerograd.core.records import dataclass
from zerograd.core.training_loop import NotFollowed
from zerograd.explore.flow import (
    RAISE,
    Alt,
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
from zerograd.explore.logic import Opaque
from zerograd.static.frameworks.table import Role
from zerograd.static.interp.assignments import Assignments
from zerograd.static.interp.conditions import Conditions, is_none_check
from zerograd.static.interp.effects import Effects
from zerograd.static.interp.emitter import Emitter
from zerograd.static.interp.environment import Environment, KnownObjects, Mode, Nesting
from zerograd.static.interp.evaluator import Evaluator, StatementHandlers
from zerograd.static.interp.expressions import Expressions
from zerograd.static.interp.gradient_calls import ParameterCalls
from zerograd.static.read.keys import Key
from zerograd.static.read.syntax_tree import Function, text_of
from zerograd.static.read.values import (
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


@dataclass(eq=False)
class Statements:
    """Interprets statements."""

    env: Environment
    emitter: Emitter
    known: KnownObjects
    nesting: Nesting
    mode: Mode
    evaluator: Evaluator
    conditions: Conditions
    effects: Effects
    parameters: ParameterCalls
    assignments: Assignments
    expressions: Expressions

    def handlers(self) -> StatementHandlers:
        """The method for each kind of statement."""
        handlers: StatementHandlers = {
            ast.Expr: self.expression,
            ast.Assign: self.assign,
            ast.AnnAssign: self.annotated,
            ast.AugAssign: self.augmented,
            ast.Delete: self.delete,
            ast.Return: self.return_,
            ast.Raise: self.raise_,
            ast.Break: self.break_,
            ast.Continue: self.continue_,
            ast.Assert: self.assertion,
            ast.FunctionDef: self.function,
            ast.AsyncFunctionDef: self.function,
            ast.ClassDef: self.class_,
            ast.If: self.branch,
            ast.Match: self.match,
            ast.Try: self.attempt,
        }
        if hasattr(ast, "TryStar"):
            handlers[ast.TryStar] = self.attempt
        return handlers

    def expression(self, node: ast.Expr) -> None:
        """An expression as a statement."""
        self.mode.statement = node.value
        self.evaluator.value(node.value)
        if isinstance(node.value, ast.Call) and isinstance(node.value.func, ast.Attribute):
            owner = self.env.name(node.value.func.value)
            if owner in self.conditions.counting:
                self.emitter.add(Set(owner))  # a method of it may count

    def assign(self, node: ast.Assign) -> None:
        """`a = b = value`."""
        if self.nesting.targets:
            module, stack = self.env.frame.module, self.nesting.stack
            facts = module.facts.get(stack[-1], module.top) if stack else module.top
            self.nesting.note_batch(node, facts.calls)
        value = self.evaluator.value(node.value)
        for target in node.targets:
            self.assignments.store(target, value, node.value, node)

    def annotated(self, node: ast.AnnAssign) -> None:
        """`a: type = value`."""
        if node.value is not None:
            value = self.evaluator.value(node.value)
            self.assignments.store(node.target, value, node.value, node)

    def augmented(self, node: ast.AugAssign) -> None:
        """`a += value`."""
        old = self.evaluator.peek(node.target)
        new = self.evaluator.value(node.value)
        if self.parameters.update_by_hand(node, old, new):
            return
        combined = ast.copy_location(ast.BinOp(_loaded(node.target), node.op, node.value), node)
        value: Value = self.expressions.arithmetic(combined, old, new)
        if isinstance(old, (Thing, Params)) and not isinstance(new, (Tensor, Params)):
            value = old
        if isinstance(old, Many) and isinstance(new, Many):
            value = Many(old.items + new.items)
        self.assignments.store(node.target, value, combined, node)

    def delete(self, node: ast.Delete) -> None:
        """`del p.grad`."""
        for target in node.targets:
            if isinstance(target, ast.Attribute) and target.attr == "grad":
                self.effects.clear(self.evaluator.peek(target.value), node, to_none=True)

    def return_(self, node: ast.Return) -> None:
        """`return value`."""
        value: Value = Lit(None)
        if node.value is not None:
            value = self.evaluator.value(node.value)
            self.known.hand_on(value)
        frame = self.env.frame
        frame.returns.append(value)
        if frame.answer is not None and node.value is not None:
            self.emitter.add(Set(frame.answer, self.conditions.expression(node.value)))
        self.emitter.add(Jump(Return(self.env.frame.call)))

    def raise_(self, node: ast.Raise) -> None:
        """`raise error`."""
        self.emitter.add(Jump(RAISE))

    def break_(self, node: ast.Break) -> None:
        """`break`."""
        self.emitter.add(Jump(Break(self.nesting.loop)))

    def continue_(self, node: ast.Continue) -> None:
        """`continue`."""
        self.emitter.add(Jump(Continue(self.nesting.loop)))

    def assertion(self, node: ast.Assert) -> None:
        """`assert test`."""
        self.evaluator.value(node.test)

    def function(self, node: Function) -> None:
        """`def name(): …`."""
        frame = self.env.frame
        fn = Fn(node, frame.module, node.name, None, frame)
        frame.env[node.name] = fn
        if frame is not self.env.top:
            self.env.closures.append(fn)

    def class_(self, node: ast.ClassDef) -> None:
        """`class Name: …`."""
        self.env.frame.env[node.name] = Klass(node, self.env.frame.module, node.name)

    def branch(self, node: ast.If) -> bool:
        """`if test: … else: …`; True if a literal decides, and its arm leaves."""
        checked = is_none_check(node.test)
        if checked is not None:
            self.none_check(node, checked)
            return False
        self.evaluator.value(node.test)
        constant = self.conditions.constant(node.test)
        if constant is not None:
            return self.evaluator.run(node.body if constant else node.orelse)
        # What it reads may be an attribute that the arms assign.
        test = self.conditions.expression(node.test)
        frame, mode = self.env.frame, self.mode
        some = mode.some
        if mode.in_parameters and not _asks_requires_grad(node.test):
            mode.some = True
        before, frame.env = frame.env, dict(frame.env)
        self.env.branches += 1
        then = self.evaluator.collect(node.body)
        after_then, frame.env = frame.env, dict(before)
        orelse = self.evaluator.collect(node.orelse)
        self.env.branches -= 1
        mode.some = some
        after_else, frame.env = frame.env, before
        self.effects.excuse_bypass(then, orelse)
        if self.effects.only_clips_by_hand(then, orelse):
            self.emitter.add(Seq((then, orelse)))
        elif _does_something(then) or _does_something(orelse):
            alt = Alt(test, then, orelse, self.emitter.site(node.test))
            alt.exists = self.conditions.exists_check(node.test)
            self.emitter.add(alt)
        frame.env = after_else
        late = self.conditions.made_late(node.test)
        if late in after_then:
            frame.env[late] = after_then[late]
        mixed = self.merge(after_then, leaves_by(then) is not None, leaves_by(orelse) is not None)
        for key in sorted(mixed, key=str):
            # Outside of loops only the origin of the object is unknown.
            gap = NotFollowed.UNCLEAR_OBJECT if self.nesting.loop else None
            self.effects.unknown(node.test, key, gap)
        return False

    def none_check(self, node: ast.If, present: bool) -> None:
        """`if p.grad is not None`: a gradient that is None has nothing to clear.

        Only the other arm counts.
        """
        unguarded, self.mode.unguarded = self.mode.unguarded, False
        self.evaluator.run(node.body if present else node.orelse)
        self.mode.unguarded = unguarded if present else False

    def merge(self, other: dict[str, Value], other_leaves: bool, this_leaves: bool) -> set[Key]:
        """Joins the variables of two arms; an arm that leaves does not count.

        Returns the keys of optimizers that are one or another object from here on.
        """
        if other_leaves:
            return set()
        if this_leaves:
            self.env.frame.env = other
            return set()
        env = self.env.frame.env
        mixed = set()
        for name, value in other.items():
            mine = env.get(name)
            if mine is value:
                continue
            if mine is None or mine == value:
                env[name] = value
                continue
            env[name] = joined = join([value, mine])
            if isinstance(joined, Thing) and joined.role is not Role.TAKEN:
                if any(isinstance(one, Thing) and one.role is Role.TAKEN for one in (value, mine)):
                    self.known.without_engine.add(joined.key)
            if isinstance(joined, Thing) and any(map(self.known.is_optimizer, (value, mine))):
                mixed.add(joined.key)
        return mixed

    def match(self, node: ast.Match) -> None:
        """`match subject: …`, as a chain of branches."""
        self.evaluator.value(node.subject)
        flow: Flow = EMPTY
        frame = self.env.frame
        before = dict(frame.env)
        for index, case in enumerate(reversed(node.cases)):
            frame.env = dict(before)
            body = self.evaluator.collect(case.body)
            text = f"{text_of(node.subject)} matches {ast.unparse(case.pattern)}"
            wild = isinstance(case.pattern, ast.MatchAs) and case.pattern.pattern is None
            if wild and case.guard is None and index == 0:
                flow = body
                continue
            test = Opaque(text, self.env.reads(node.subject), call=frame.call)
            flow = Alt(test, body, flow, self.emitter.site(case.pattern))
        self.emitter.add(flow)

    def attempt(self, node: ast.Try) -> None:
        """`try: … except: …`."""
        body = self.evaluator.collect(node.body)
        frame = self.env.frame
        after = frame.env
        handlers: list[Flow] = []
        self.env.branches += 1
        for handler in node.handlers:
            frame.env = dict(after)
            handlers.append(self.evaluator.collect(handler.body))
            caught, frame.env = frame.env, after
            self.merge(caught, leaves_by(handlers[-1]) is not None, False)
        self.env.branches -= 1
        orelse = self.evaluator.collect(node.orelse)
        final = self.evaluator.collect(node.finalbody)
        self.emitter.add(Try(body, handlers, orelse, final, self.emitter.site(node)))


def _does_something(flow: Flow) -> bool:
    return not isinstance(flow, Seq) or bool(flow.items)


def _asks_requires_grad(node: ast.expr) -> bool:
    return any(isinstance(n, ast.Attribute) and n.attr == "requires_grad" for n in ast.walk(node))


def _loaded(node: ast.expr) -> ast.expr:
    """A target as an expression that is read."""
    if isinstance(node, ast.Name):
        return ast.copy_location(ast.Name(node.id, ast.Load()), node)
    if isinstance(node, ast.Attribute):
        return ast.copy_location(ast.Attribute(node.value, node.attr, ast.Load()), node)
    return node
