"""Expressions: their values, their acts in order of evaluation, and what is stored where."""

from __future__ import annotations

import ast
from collections.abc import Callable
from typing import Any

from zerograd.core.events import Kind
from zerograd.core.records import replace
from zerograd.explore.flow import Alt, Loop, Seq, Set, walk
from zerograd.explore.logic import Name
from zerograd.static.interp import calls, conditions
from zerograd.static.interp.effects import BLANK, Act
from zerograd.static.interp.gradient_calls import store_attribute
from zerograd.static.interp.objects import Classes
from zerograd.static.read import vocabulary
from zerograd.static.read.budget import EXPRESSION
from zerograd.static.read.file_index import stripped, text_of
from zerograd.static.read.values import (
    NOTHING,
    OPTIMIZER,
    Fn,
    Grad,
    Lit,
    Many,
    Params,
    Table,
    Tensor,
    Thing,
    Value,
    is_object,
    join,
    mix,
)


class Evaluate(Classes):
    """Evaluates expressions without running them."""

    def store(
        self,
        target: ast.expr,
        value: Value,
        source: ast.expr | None,
        node: ast.AST,
    ) -> None:
        if isinstance(target, (ast.Tuple, ast.List)):
            self.unpack(target, value, source, node)
            return
        if isinstance(target, ast.Starred):
            self.store(target.value, NOTHING, None, node)
            return
        if isinstance(target, ast.Attribute) and target.attr in ("grad", "data", "requires_grad"):
            store_attribute(self.reader, target, value, source, node)
            return
        if isinstance(target, ast.Subscript):
            self.store_item(target, value)
            return
        variable = self.variable(target) if self.is_tested(target) else None
        if variable is not None:
            expr = conditions.meaning(self.reader, source) if source is not None else None
            self.out.append(Set(Name(variable), expr))
        value = self.as_used(target, value, source)
        if isinstance(target, ast.Name):
            self.frame.env[target.id] = value
            self.name_loop(target.id, source)
        elif isinstance(target, ast.Attribute):
            owner = self.peek(target.value)
            if isinstance(owner, Thing):
                self.heap[(owner.key, target.attr)] = self.renamed(
                    value, f"{owner.key}.{target.attr}"
                )
            if not (isinstance(owner, Thing) and owner.key == "self"):
                self.hand_on(value)

    def name_loop(self, name: str, source: ast.expr | None) -> None:
        """Remembers what a name will go through when a loop goes through it."""
        node = stripped(source) if source is not None else None
        if isinstance(node, ast.Name):
            node = self.frame.iterables.get(node.id)
        called = isinstance(node, ast.Call) and text_of(node.func) in ("enumerate", "range")
        if node is not None and called:
            self.frame.iterables[name] = node
        else:
            self.frame.iterables.pop(name, None)

    def is_tested(self, target: ast.expr) -> bool:
        """Whether some test may depend on what is stored here."""
        if isinstance(target, ast.Name):
            return target.id in self.frame.module.tested
        return isinstance(target, ast.Attribute) and target.attr in self.frame.module.tested

    def as_used(self, target: ast.expr, value: Value, source: ast.expr | None) -> Value:
        """What an unseen call gave back is an object if the file uses it as one."""
        if not isinstance(value, Tensor) or not isinstance(target, (ast.Name, ast.Attribute)):
            return value
        text = text_of(target)
        methods = self.frame.module.methods.get(text, frozenset())
        role = self.used_as(target)
        if not role and not methods & vocabulary.OBJECT_METHODS:
            return value
        if role == OPTIMIZER and isinstance(source, ast.Call):
            given = [self.peek(arg) for arg in source.args]
            keys = [item.keys for item in given if isinstance(item, Params)]
            params = frozenset().union(*keys) if len(keys) == 1 else None
            return self.met(target, Thing(self.variable(target) or text, role, params))
        return self.met(target, Thing(self.variable(target) or text, role))

    def met(self, node: ast.AST, thing: Thing) -> Thing:
        """An object from unseen hands: nothing is known of its gradients, each time anew."""
        if not self.quiet:
            self.emit(Kind.UNKNOWN, node, Act(BLANK, whose=frozenset({thing.key})))
        return thing

    def renamed(self, value: Value, key: str) -> Value:
        """A value of no known role is called by the attribute that holds it."""
        if isinstance(value, Tensor) and not value.roots:
            return Thing(key) if value == NOTHING else value
        return value

    def store_item(self, target: ast.Subscript, value: Value) -> None:
        self.value(target.slice)
        holder = self.peek(target.value)
        key = self.peek(target.slice)
        if (
            isinstance(target.value, ast.Name)
            and isinstance(holder, Table)
            and isinstance(key, Lit)
        ):
            kept = tuple(item for item in holder.items if item[0] != key.value)
            self.frame.env[target.value.id] = Table((*kept, (key.value, value)))
        elif isinstance(holder, Thing) and isinstance(key, Lit):
            self.heap[(holder.key, f"[{key.value!r}]")] = value

    def unpack(
        self,
        target: ast.Tuple | ast.List,
        value: Value,
        source: ast.expr | None,
        node: ast.AST,
    ) -> None:
        sources = _side_by_side(target, source)
        for index, item in enumerate(target.elts):
            if isinstance(value, Many) and len(value.items) == len(target.elts):
                part: Value = value.items[index]
            elif isinstance(value, Many) and value.items and isinstance(value.items[-1], Params):
                part = value.items[-1]
            elif isinstance(value, Thing):
                text = text_of(item)
                methods = self.frame.module.methods.get(text, frozenset())
                role = vocabulary.role_of_use(text, methods) if value.role else ""
                part = Thing(f"{value.key}[{index}]", role)
            elif isinstance(value, Params):
                part = value
            else:
                part = value if isinstance(value, Tensor) else NOTHING
            self.store(item, part, sources[index], node)

    def value(self, node: ast.expr) -> Value:
        """The value of an expression; its acts are emitted in order of evaluation."""
        self.work.read(EXPRESSION)
        handler = _HANDLERS.get(node.__class__)
        if handler is not None:
            return handler(self, node)
        parts = [
            self.value(child) for child in ast.iter_child_nodes(node) if isinstance(child, ast.expr)
        ]
        return mix(parts)

    def of_Constant(self, node: ast.Constant) -> Value:
        value = node.value
        return Lit(value) if isinstance(value, (bool, int, float, str, type(None))) else NOTHING

    def of_Name(self, node: ast.Name) -> Value:
        return self.lookup(node.id)

    def of_Attribute(self, node: ast.Attribute) -> Value:
        return self.attribute(self.value(node.value), node.attr)

    def of_Call(self, node: ast.Call) -> Value:
        return calls.call(self.reader, node)

    def of_Tuple(self, node: ast.Tuple | ast.List) -> Value:
        items: list[Value] = []
        for item in node.elts:
            if isinstance(item, ast.Starred):
                value = self.value(item.value)
                if isinstance(value, Many):
                    items += value.items
                else:
                    items.append(value)
            else:
                items.append(self.value(item))
        if items and all(isinstance(item, Params) for item in items):
            keys = frozenset().union(*(item.keys for item in items if isinstance(item, Params)))
            return Params(keys)
        return Many(tuple(items))

    of_List = of_Tuple

    def of_Dict(self, node: ast.Dict) -> Value:
        items: list[tuple[object, Value]] = []
        for key, item in zip(node.keys, node.values, strict=True):
            value = self.value(item)
            name = self.value(key) if key is not None else NOTHING
            items.append((name.value if isinstance(name, Lit) else "?", value))
        return Table(tuple(items))

    def of_Subscript(self, node: ast.Subscript) -> Value:
        owner, key = self.value(node.value), self.value(node.slice)
        if isinstance(owner, Many):
            if (
                isinstance(key, Lit)
                and isinstance(key.value, int)
                and -len(owner.items) <= key.value < len(owner.items)
            ):
                return owner.items[key.value]
            objects = [item for item in owner.items if is_object(item)]
            return (
                objects[0]
                if len(objects) == 1
                else (mix(list(owner.items)) if not objects else NOTHING)
            )
        if isinstance(owner, Table):
            for name, value in owner.items:
                if isinstance(key, Lit) and name == key.value:
                    return value
            return NOTHING
        if isinstance(owner, Thing):
            text = repr(key.value) if isinstance(key, Lit) else text_of(node.slice)
            held = self.heap.get((owner.key, f"[{text}]"))
            if held is None and not isinstance(key, Lit):
                self.note_shifting(node.slice, f"{owner.key}[{text}]")
            return self.item(owner, text)
        if isinstance(owner, (Params, Grad, Tensor)):
            return owner
        return NOTHING

    def item(self, owner: Thing, text: str) -> Value:
        """What a collection holds under a key or index."""
        held = self.heap.get((owner.key, f"[{text}]"))
        return held if held is not None else Thing(f"{owner.key}[{text}]", owner.role)

    def note_shifting(self, index: ast.expr, key: str) -> None:
        """An item whose index changes is another object in every iteration of that loop."""
        for name in self.reads(index) & self.targets:
            self.shifting.setdefault(name, set()).add(key)

    def of_BinOp(self, node: ast.BinOp) -> Value:
        return self.arithmetic(node, self.value(node.left), self.value(node.right))

    def arithmetic(self, node: ast.BinOp, left: Value, right: Value) -> Value:
        if isinstance(left, Params) and isinstance(right, Params):
            return Params(left.keys | right.keys)
        if isinstance(left, Many) and isinstance(right, Many):
            return Many(left.items + right.items)
        if isinstance(left, Many) and isinstance(right, Params):
            return right
        if isinstance(left, Lit) and isinstance(right, Lit):
            return NOTHING
        result = mix([left, right])
        if self.no_grad:
            result = replace(result, roots=frozenset(), maybe=frozenset())
        if isinstance(node.op, ast.Div) and not isinstance(left, Lit):
            return replace(
                result, divisor=conditions.expression(self.reader, node.right), divided=True
            )
        if isinstance(node.op, ast.Mult):
            if not isinstance(left, Lit) and not isinstance(right, Lit):
                result = replace(result, divided=None)
            for side in (node.left, node.right):
                if isinstance(side, ast.BinOp) and isinstance(side.op, ast.Div):
                    if isinstance(side.left, ast.Constant) and side.left.value in (1, 1.0):
                        divisor = conditions.expression(self.reader, side.right)
                        return replace(result, divisor=divisor, divided=True)
        return result

    def of_IfExp(self, node: ast.IfExp) -> Value:
        self.value(node.test)
        out, self.out = self.out, []
        then = self.value(node.body)
        flow_then, self.out = self.out, []
        orelse = self.value(node.orelse)
        flow_else, self.out = self.out, out
        if flow_then or flow_else:
            test = conditions.expression(self.reader, node.test)
            arms = Seq(tuple(flow_then)), Seq(tuple(flow_else))
            self.out.append(Alt(test, *arms, self.site(node.test)))
        return join([then, orelse])

    def of_BoolOp(self, node: ast.BoolOp) -> Value:
        return join([self.value(value) for value in node.values])

    def of_Lambda(self, node: ast.Lambda) -> Value:
        return Fn(node, self.frame.module, "lambda", None, self.frame)

    def of_NamedExpr(self, node: ast.NamedExpr) -> Value:
        value = self.value(node.value)
        self.store(node.target, value, node.value, node)
        return value

    def of_Await(self, node: ast.Await) -> Value:
        return self.value(node.value)

    def of_Starred(self, node: ast.Starred) -> Value:
        return self.value(node.value)

    def of_ListComp(self, node: ast.ListComp | ast.GeneratorExp | ast.SetComp) -> Value:
        env = dict(self.frame.env)
        try:
            known = self.comprehended(node)
            if known is not None:
                return known
            for part in node.generators:
                self.iterate(part.target, part.iter, part)
                for test in part.ifs:
                    self.value(test)
            value = self.repeated(node)
            if isinstance(value, (Params, Grad)):
                return value
            if isinstance(value, Tensor):
                return value
            return Many((value,)) if isinstance(value, Table) else NOTHING
        finally:
            self.frame.env = env

    of_GeneratorExp = of_ListComp

    of_SetComp = of_ListComp

    def repeated(self, node: ast.ListComp | ast.GeneratorExp | ast.SetComp) -> Value:
        """The item of a comprehension; what it does is done in a loop."""
        self.count += 1
        self.loops.append(self.count)
        out, self.out = self.out, []
        try:
            return self.value(node.elt)
        finally:
            body, self.out = self.out, out
            ident = self.loops.pop()
            if any(isinstance(part, Act) for part in walk(Seq(body))):
                self.out.append(Loop(Seq(body), ident, self.site(node)))

    def comprehended(self, node: ast.ListComp | ast.GeneratorExp | ast.SetComp) -> Value | None:
        """A comprehension over known objects, item by item."""
        if len(node.generators) != 1:
            return None
        part = node.generators[0]
        items = self.items(self.peek(part.iter))
        if items is None:
            return None
        values = []
        for item in items:
            self.store(part.target, item, None, part.target)
            values.append(self.value(node.elt))
        if values and all(isinstance(value, Params) for value in values):
            return Params(frozenset().union(*(v.keys for v in values if isinstance(v, Params))))
        return Many(tuple(values))

    def of_DictComp(self, node: ast.DictComp) -> Value:
        env = dict(self.frame.env)
        for part in node.generators:
            self.iterate(part.target, part.iter, part)
        self.value(node.value)
        self.frame.env = env
        return NOTHING

    def iterate(
        self, target: ast.expr, iterable: ast.expr, node: ast.For | ast.AsyncFor | ast.comprehension
    ) -> None:
        """Goes through what a loop or a comprehension goes through."""
        raise NotImplementedError

    def items(self, value: Value) -> list[Value] | None:
        """The items of a short collection of objects."""
        raise NotImplementedError


def _side_by_side(target: ast.Tuple | ast.List, source: ast.expr | None) -> list[ast.expr | None]:
    """The tests among what `a, b = x, y` gives to each, if it reads none of the names.

    Tests alone: a flag or number known on some ways only splits what is one and the same.
    """
    unknown: list[ast.expr | None] = [None] * len(target.elts)
    if not isinstance(source, (ast.Tuple, ast.List)) or len(source.elts) != len(unknown):
        return unknown
    stored = {text_of(part) for part in ast.walk(target) if isinstance(part, ast.expr)}
    read = {text_of(part) for part in ast.walk(source) if isinstance(part, ast.expr)}
    starred = any(isinstance(part, ast.Starred) for part in (*target.elts, *source.elts))
    if starred or stored & read:
        return unknown
    return [part if isinstance(part, (ast.Compare, ast.BoolOp)) else None for part in source.elts]


_HANDLERS: dict[type[ast.AST], Callable[[Evaluate, Any], Value]] = {
    getattr(ast, name[3:]): method for name, method in vars(Evaluate).items() if name[:3] == "of_"
}
