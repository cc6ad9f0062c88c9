"""Loops: over data they repeat, over parameters and known objects they are written out."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence

from zerograd.explore.flow import (
    Block,
    Break,
    Continue,
    Flow,
    Loop,
    Seq,
    relabelled,
    relooped,
)
from zerograd.explore.logic import (
    Const,
    Expr,
    LastIteration,
    Name,
    Op,
    Variable,
    WindowLength,
)
from zerograd.static.interp import conditions
from zerograd.static.interp.expressions import Evaluate
from zerograd.static.read import vocabulary
from zerograd.static.read.file_index import nodes, stripped, text_of
from zerograd.static.read.project import assigned_names
from zerograd.static.read.values import (
    NOTHING,
    Lit,
    Many,
    Params,
    Table,
    Tensor,
    Thing,
    Value,
    is_object,
)


class Loops(Evaluate):
    """Lowers loops."""

    def do_While(self, node: ast.While) -> None:
        self.value(node.test)
        test = conditions.expression(self.reader, node.test)
        forever = isinstance(test, Const) and bool(test.value)
        self.loop(node, frozenset(), None, None if isinstance(test, Const) else test, forever)

    def do_For(self, node: ast.For) -> None:
        self.iterate(node.target, node.iter, node)

    do_AsyncFor = do_For

    def iterate(
        self, target: ast.expr, iterable: ast.expr, node: ast.For | ast.AsyncFor | ast.comprehension
    ) -> None:
        """A loop over known items is written out; one over parameters is one act for all of them."""
        plain = self.iterated(iterable)
        value = self.value(plain)
        items = self.items(value)
        if items is None and isinstance(value, Many) and _looks_up(node):
            items = list(value.items)
        if items is not None:
            self.written_out(target, items, node)
            return
        element = self.element(value, plain)
        if element is not None:
            outer, self.in_parameters = self.in_parameters, True
            self.written_out(target, [element], node)
            self.in_parameters = outer
            return
        if isinstance(node, (ast.For, ast.AsyncFor)):
            counter, first, trips = self.counting(target, plain)
            targets = frozenset(self.bind_targets(target, value, plain))
            if trips == Const(1):
                self.written_out(target, [Tensor()], node)
                return
            self.loop(node, targets, counter, None, False, first, trips)
            return
        list(self.bind_targets(target, value, plain))

    def iterated(self, node: ast.expr) -> ast.expr:
        """What is gone through, without progress bars and under its own name."""
        node = stripped(node)
        if isinstance(node, ast.Name):
            return self.frame.iterables.get(node.id, node)
        return node

    def items(self, value: Value) -> list[Value] | None:
        """The items of a short collection of objects, to be gone through one by one."""
        if isinstance(value, Many) and 0 < len(value.items) <= 8:
            named = value.items[0] == Lit("name")  # as `named_parameters` gives them
            if not named and any(is_object(item) for item in value.items):
                return list(value.items)
        if isinstance(value, Table) and 0 < len(value.items) <= 8:
            keys: list[Value] = [
                Lit(key) if isinstance(key, (str, int)) else NOTHING for key, _ in value.items
            ]
            return keys
        return None

    def element(self, value: Value, node: ast.expr) -> Value | None:
        """One parameter, group or optimizer that stands for all of a collection."""
        if isinstance(value, Params):
            return value
        if isinstance(value, Many) and value.items and isinstance(value.items[-1], Params):
            return value
        if isinstance(value, Thing):
            text = text_of(node)
            if "optim" in text.lower() or text.lower().endswith(("opts", "opt")):
                return Thing(value.key + "[*]", self.role(value, node))
        return None

    def written_out(
        self, target: ast.expr, items: list[Value], node: ast.For | ast.AsyncFor | ast.comprehension
    ) -> None:
        if not isinstance(node, (ast.For, ast.AsyncFor)):
            self.store(target, items[0] if items else NOTHING, None, target)
            return
        self.count += 1
        label = self.count
        outer = self.loops[-1]
        rounds: list[Flow] = []
        for item in items:
            self.store(target, item, None, node)
            # break and continue belong to this loop, events to the one around it.
            body = relabelled(self.collect(node.body), outer, label)
            rounds.append(Block(body, Continue(label)))
        self.out.append(Block(Seq(tuple(rounds)), Break(label)))
        self.statements(node.orelse)

    def counting(
        self, target: ast.expr, iterable: ast.expr
    ) -> tuple[Variable | None, Expr, Expr | None]:
        """The counter of a loop, where it starts, and how often it runs."""
        first: Expr = Const(0)
        if not isinstance(iterable, ast.Call):
            return None, first, None
        name = text_of(iterable.func).rsplit(".", 1)[-1]
        if name == "enumerate" and iterable.args and isinstance(target, ast.Tuple):
            start = [kw.value for kw in iterable.keywords if kw.arg == "start"] + iterable.args[1:2]
            if start:
                first = conditions.expression(self.reader, start[0])
            return self.named(target.elts[0]), first, None
        if name in ("range", "trange") and iterable.args and isinstance(target, ast.Name):
            bounds = [conditions.expression(self.reader, arg) for arg in iterable.args]
            if len(bounds) > 1:
                first = bounds[0]
            trips: Expr = bounds[0] if len(bounds) == 1 else Op("-", (bounds[1], bounds[0]))
            length = text_of(iterable.args[0])
            if isinstance(trips, Const) and trips.value != 1 and vocabulary.WINDOW.search(length):
                trips = WindowLength(text=length)  # whatever number it holds, it is N
            return self.named(target), first, trips
        return None, first, None

    def named(self, node: ast.expr) -> Variable | None:
        variable = self.variable(node)
        return Name(variable) if variable is not None else None

    def bind_targets(
        self, target: ast.expr, value: Value, iterable: ast.expr
    ) -> Iterator[Variable]:
        """Gives the targets of a loop values of which nothing is known but that they are data."""
        for node in ast.walk(target):
            if isinstance(node, ast.Name):
                self.frame.env[node.id] = Tensor()
                variable = self.variable(node)
                if variable:
                    yield Name(variable)

    def loop(
        self,
        node: ast.For | ast.AsyncFor | ast.While,
        targets: frozenset[Variable],
        counter: Variable | None,
        test: Expr | None,
        forever: bool,
        first: Expr = Const(0),
        trips: Expr | None = None,
    ) -> None:
        self.count += 1
        ident = self.count
        for name in assigned_names(node):
            if isinstance(self.frame.env.get(name), Lit):
                self.frame.env[name] = NOTHING
        self.idle[ident] = (self.frame.module.path, node, len(self.stack))
        before = dict(self.frame.env)
        self.loops.append(ident)
        if counter and isinstance(trips, Const) and isinstance(trips.value, int):
            self.ends[counter] = (ident, trips.value - 1)
            targets |= {LastIteration(ident)}
        outer = set(self.targets)
        self.targets |= targets
        try:
            body = self.collect(node.body)
            once = self.goes_through_objects(targets, node)
        finally:
            self.targets = outer
            self.loops.pop()
            if counter is not None:
                self.ends.pop(counter, None)
        for name, value in before.items():
            self.frame.env.setdefault(name, value)
        orelse = self.collect(node.orelse) if node.orelse else None
        if once:
            body = relooped(body, ident, self.loops[-1])
            self.out.append(Block(Block(body, Continue(ident)), Break(ident)))
            return
        self.out.append(
            Loop(
                body,
                ident,
                self.site(node),
                targets,
                counter,
                first,
                trips,
                test,
                forever,
                orelse,
            )
        )

    def goes_through_objects(self, targets: frozenset[Variable], node: ast.AST) -> bool:
        """Whether a loop meets another model or optimizer in every iteration.

        What it does then happens once to each, not again and again to one.
        """
        if any(self.shifting.pop(name, None) for name in targets):
            return True
        if not isinstance(node, (ast.For, ast.AsyncFor)):
            return False
        bound = {n.id for n in ast.walk(node.target) if isinstance(n, ast.Name)}
        return any(
            text.split(".")[0] in bound and methods & vocabulary.HELD_METHODS
            for text, methods in self.frame.module.methods.items()
        )

    def collect(self, body: Sequence[ast.stmt]) -> Flow:
        """The flow of some statements."""
        raise NotImplementedError

    def statements(self, body: Sequence[ast.stmt]) -> None:
        """Lowers statements in order."""
        raise NotImplementedError


def _looks_up(node: ast.For | ast.AsyncFor | ast.comprehension) -> bool:
    """Whether a loop goes through a few literal keys, and looks something up under each."""
    if isinstance(node, ast.comprehension) or not isinstance(node.iter, (ast.Tuple, ast.List)):
        return False
    if len(node.iter.elts) > 8 or not all(isinstance(e, ast.Constant) for e in node.iter.elts):
        return False
    key = text_of(node.target)
    return any(
        isinstance(inner, ast.Subscript) and text_of(inner.slice) == key
        for statement in node.body
        for inner in nodes(statement)
    )
