"""Goes from a node to the part of the interpreter that knows its kind.

Expressions hold calls, calls run functions, functions hold statements, statements hold expressions. This
is the one place where that circle closes: a part gets the evaluator, and knows no part above it.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Sequence
from typing import Any

from zerograd.explore.flow import Flow, Seq
from zerograd.static.interp.emitter import Emitter
from zerograd.static.interp.environment import Environment
from zerograd.static.read.budget import EXPRESSION, Budget
from zerograd.static.read.syntax_tree import children
from zerograd.static.read.values import NOTHING, Frame, Value, mix

_LEAVES = frozenset({ast.Return, ast.Raise, ast.Break, ast.Continue})
"""What follows one of these in its block is never reached."""

ExpressionHandlers = dict[type[ast.AST], Callable[[Any], Value]]
StatementHandlers = dict[type[ast.AST], Callable[[Any], bool | None]]


class Evaluator:
    """Evaluates expressions and statements by their kind; `add_handlers` fills its two tables."""

    def __init__(
        self,
        budget: Budget,
        env: Environment,
        emitter: Emitter,
        add_handlers: Callable[[], None],
    ) -> None:
        self.budget = budget
        self.env = env
        self.emitter = emitter
        self.expressions: ExpressionHandlers = {}
        self.statements: StatementHandlers = {}
        self._add_handlers: Callable[[], None] | None = add_handlers
        self._peeked: set[ast.expr] = set()

    def complete(self) -> None:
        """Fill the tables, if they are empty."""
        if self._add_handlers is not None:
            add, self._add_handlers = self._add_handlers, None
            add()

    def forget(self) -> None:
        """Lets go of the parts, which hold this."""
        self._add_handlers = None
        self.expressions.clear()
        self.statements.clear()

    def value(self, node: ast.expr) -> Value:
        """The value of an expression; its acts are emitted in order of evaluation."""
        self.budget.spend(EXPRESSION)
        handler = self.expressions.get(node.__class__)
        if handler is not None:
            return handler(node)
        return mix([self.value(child) for child in children(node) if isinstance(child, ast.expr)])

    def arguments(self, node: ast.Call) -> list[Value]:
        """The values that a call is handed, keywords last."""
        positional = [self.value(arg) for arg in node.args]
        return positional + [self.value(keyword.value) for keyword in node.keywords]

    def peek(self, node: ast.expr) -> Value:
        """The value of an expression, without its effects."""
        if node.__class__ is ast.Name:
            return self.expressions[ast.Name](node)
        before = self.emitter.silence()
        try:
            return self.value(node)
        finally:
            self.emitter.resume(before)

    def peek_in(self, frame: Frame, node: ast.expr) -> Value:
        """The value of an expression in another frame, without its effects.

        Nothing is known of one that leads to itself: `def parameters(self): return self.inner.parameters()`.
        """
        if node in self._peeked:
            return NOTHING
        self.complete()
        self._peeked.add(node)
        here, self.env.frame = self.env.frame, frame
        try:
            return self.peek(node)
        finally:
            self.env.frame = here
            self._peeked.discard(node)

    def run(self, body: Sequence[ast.stmt]) -> bool:
        """Interprets statements in order; True if what follows them is never reached."""
        for node in body:
            handler = self.statements.get(node.__class__)
            left = handler(node) if handler is not None else None
            if left or node.__class__ in _LEAVES:
                return True
        return False

    def collect(self, body: Sequence[ast.stmt]) -> Flow:
        """The flow of some statements."""
        out = self.emitter.divert()
        try:
            self.run(body)
            return Seq(tuple(self.emitter.out))
        finally:
            self.emitter.restore(out)
