"""Expressions: their values; what they do is emitted in order of evaluation."""

from __future__ import annotations

import ast

from zerograd.core.records import dataclass, replace
from zerograd.explore.flow import Alt, Seq
from zerograd.static.interp.assignments import Assignments
from zerograd.static.interp.conditions import Conditions
from zerograd.static.interp.emitter import Emitter
from zerograd.static.interp.environment import Environment, Mode, Nesting
from zerograd.static.interp.evaluator import Evaluator, ExpressionHandlers
from zerograd.static.interp.objects import Objects
from zerograd.static.read.syntax_tree import called_name, short_text, text_of
from zerograd.static.read.values import (
    NOTHING,
    Fn,
    Grad,
    Klass,
    KnownDict,
    Lit,
    Many,
    Params,
    Tensor,
    Thing,
    Value,
    all_params,
    is_object,
    join,
    mix,
    then,
)

_PACKS = frozenset({"pack_padded_sequence", "pack_sequence"})
"""Functions of torch that give a sequence whose `data` are the packed values, with their gradients."""


@dataclass(eq=False)
class Expressions:
    """Evaluates expressions other than names, calls and comprehensions."""

    env: Environment
    emitter: Emitter
    nesting: Nesting
    mode: Mode
    evaluator: Evaluator
    objects: Objects
    conditions: Conditions
    assignments: Assignments

    def handlers(self) -> ExpressionHandlers:
        """The method for each kind of expression."""
        return {
            ast.Constant: self.constant,
            ast.Attribute: self.attribute,
            ast.Tuple: self.sequence,
            ast.List: self.sequence,
            ast.Dict: self.dictionary,
            ast.Subscript: self.subscript,
            ast.BinOp: self.binary,
            ast.UnaryOp: self.unary,
            ast.IfExp: self.choice,
            ast.BoolOp: self.junction,
            ast.Lambda: self.function,
            ast.JoinedStr: self.text,
            ast.NamedExpr: self.named,
            ast.Await: self.inner,
            ast.Starred: self.inner,
        }

    def constant(self, node: ast.Constant) -> Value:
        """A literal."""
        value = node.value
        return Lit(value) if isinstance(value, (bool, int, float, str, type(None))) else NOTHING

    def text(self, node: ast.JoinedStr) -> Value:
        """`f"on_{name}"`, where all parts are known."""
        parts = (
            part.value if isinstance(part, ast.FormattedValue) else part for part in node.values
        )
        values = [self.evaluator.value(part) for part in parts]
        texts = [one.value for one in values if isinstance(one, Lit) and isinstance(one.value, str)]
        return Lit("".join(texts)) if len(texts) == len(values) else NOTHING

    def attribute(self, node: ast.Attribute) -> Value:
        """`x.name`."""
        value = self.evaluator.value(node.value)
        if node.attr == "data" and isinstance(node.value, ast.Call):
            if called_name(node.value) in _PACKS:
                return value
        return self.objects.attribute(value, node.attr)

    def sequence(self, node: ast.Tuple | ast.List) -> Value:
        """A tuple or a list."""
        items: list[Value] = []
        for item in node.elts:
            if isinstance(item, ast.Starred):
                value = self.evaluator.value(item.value)
                if isinstance(value, Many):
                    items += value.items
                else:
                    items.append(value)
            else:
                items.append(self.evaluator.value(item))
        return all_params(items) or Many(tuple(items))

    def dictionary(self, node: ast.Dict) -> Value:
        """A dict."""
        items: list[tuple[object, Value]] = []
        for key, item in zip(node.keys, node.values, strict=True):
            value = self.evaluator.value(item)
            name = self.evaluator.value(key) if key is not None else NOTHING
            items.append((name.value if isinstance(name, Lit) else "?", value))
        return KnownDict(tuple(items))

    def subscript(self, node: ast.Subscript) -> Value:
        """`x[key]`."""
        owner, key = self.evaluator.value(node.value), self.evaluator.value(node.slice)
        if isinstance(owner, Many) and owner.wrapped:
            owner = owner.items[0]
        if isinstance(owner, Many):
            return _part_of_many(owner, node.slice) or _item_of_many(owner, key)
        if isinstance(owner, KnownDict):
            for name, value in owner.items:
                if isinstance(key, Lit) and name == key.value:
                    return value
            first = owner.items[0][1] if owner.items else NOTHING
            classes = all(isinstance(value, Klass) for _, value in owner.items)
            if classes:
                return first  # a registry: one of them is as good as another
            others = [value for name, value in owner.items if name == "?"]
            return mix(others) if others else NOTHING  # `{**batch}["x"]` is data of the batch
        if isinstance(owner, Thing):
            text = repr(key.value) if isinstance(key, Lit) else text_of(node.slice)
            if not isinstance(key, Lit) and owner.key.item(text) not in self.env.heap:
                self.nesting.note_shifting(node, self.env.reads(node.slice))
            return self.objects.item(owner, text)
        if isinstance(owner, (Params, Grad, Tensor)):
            return owner
        if isinstance(owner, Lit) and isinstance(owner.value, str) and isinstance(key, Lit):
            return Lit(None)  # the keys of a dict, taken for its values: no object
        return NOTHING

    def binary(self, node: ast.BinOp) -> Value:
        """`a + b`."""
        left, right = self.evaluator.value(node.left), self.evaluator.value(node.right)
        return self.arithmetic(node, left, right)

    def without(self, whole: Params, part: Params) -> Value:
        """Parameters that are left of some: those of the other parts of a module of the project."""
        if len(whole.keys) != 1:
            return NOTHING
        (module,) = whole.keys
        rest = self.objects.parts(module)
        left = [key for key in rest if not any(key.overlaps(one) for one in part.keys)]
        return Params(frozenset(left)) if left and len(left) < len(rest) else NOTHING

    def arithmetic(self, node: ast.BinOp, left: Value, right: Value) -> Value:
        """The result of an operation on two values."""
        if isinstance(left, Params) and isinstance(right, Params):
            if isinstance(node.op, ast.Sub):
                return self.without(left, right)
            return Params(left.keys | right.keys)
        if isinstance(left, Many) and isinstance(right, Many):
            return Many(left.items + right.items)
        if isinstance(left, Many) and isinstance(right, Params):
            return right
        if isinstance(left, Lit) and isinstance(right, Lit):
            return _of_literals(node.op, left.value, right.value)
        result = mix(_operands(node, left, right))
        if self.mode.no_grad:
            result = replace(result, roots=frozenset(), maybe=frozenset())
        if isinstance(node.op, ast.Div) and not isinstance(left, Lit):
            if mix([left]).grads & mix([right]).grads:
                result = replace(result, scaled=None)  # `grad / grad.norm()`: the scale cancels out
            return replace(result, divisor=self.conditions.expression(node.right), divided=True)
        if isinstance(node.op, ast.Mult):
            if not isinstance(left, Lit) and not isinstance(right, Lit):
                result = replace(result, divided=None)
            for side in (node.left, node.right):
                if isinstance(side, ast.BinOp) and isinstance(side.op, ast.Div):
                    if isinstance(side.left, ast.Constant) and side.left.value in (1, 1.0):
                        divisor = self.conditions.expression(side.right)
                        return replace(result, divisor=divisor, divided=True)
        return result

    def unary(self, node: ast.UnaryOp) -> Value:
        """`-x`, `not x`."""
        value = then(self.evaluator.value(node.operand), type(node.op).__name__)
        return mix([value])

    def choice(self, node: ast.IfExp) -> Value:
        """`a if test else b`."""
        self.evaluator.value(node.test)
        out = self.emitter.divert()
        then = self.evaluator.value(node.body)
        flow_then = self.emitter.restore([])
        orelse = self.evaluator.value(node.orelse)
        flow_else = self.emitter.restore(out)
        if flow_then or flow_else:
            test = self.conditions.expression(node.test)
            arms = Seq(tuple(flow_then)), Seq(tuple(flow_else))
            self.emitter.add(Alt(test, *arms, self.emitter.site(node.test)))
        for one, other in ((then, node.orelse), (orelse, node.body)):
            # `wrap(f) if test else f` is called as f is.
            if isinstance(one, Fn) and isinstance(other, ast.Call):
                if any(self.evaluator.peek(argument) == one for argument in other.args):
                    return one
        return join([then, orelse])

    def junction(self, node: ast.BoolOp) -> Value:
        """`a or b`; a list in the place of one that is not handed in: `hooks or []`."""
        values = [self.evaluator.value(value) for value in node.values]
        unknown = [value for value in values[:-1] if not isinstance(value, Many)]
        if isinstance(values[-1], Many) and unknown and not any(map(is_object, unknown)):
            return values[-1]
        full = next((value for value in values if isinstance(value, Many) and value.items), None)
        return full if full is not None and not unknown else join(values)

    def function(self, node: ast.Lambda) -> Value:
        """`lambda: …`."""
        return Fn(node, self.env.frame.module, "lambda", None, self.env.frame)

    def named(self, node: ast.NamedExpr) -> Value:
        """`name := value`."""
        value = self.evaluator.value(node.value)
        self.assignments.store(node.target, value, node.value, node)
        return value

    def inner(self, node: ast.Await | ast.Starred) -> Value:
        """`await x`, `*x`."""
        return self.evaluator.value(node.value)


def _of_literals(op: ast.operator, left: object, right: object) -> Value:
    """The sum of two texts; the sum or the difference of two indexes."""
    if isinstance(left, str) and isinstance(right, str) and isinstance(op, ast.Add):
        return Lit(left + right)
    if type(left) is int and type(right) is int and isinstance(op, (ast.Add, ast.Sub)):
        return Lit(left + right if isinstance(op, ast.Add) else left - right)
    return NOTHING


def _operands(node: ast.BinOp, left: Value, right: Value) -> list[Value]:
    """The operands, each with what is done with it; the terms of a sum stay apart."""
    if isinstance(node.op, (ast.Add, ast.Sub)) and _calls(left) and _calls(right):
        return [left, then(right, "-")] if isinstance(node.op, ast.Sub) else [left, right]
    name = type(node.op).__name__
    return [
        then(left, f"{name} {short_text(node.right)}"),
        then(right, f"{short_text(node.left)} {name}"),
    ]


def _calls(value: Value) -> bool:
    return isinstance(value, Tensor) and bool(value.calls)


def _part_of_many(owner: Many, bounds: ast.expr) -> Many | None:
    """Some of several objects, `optimizers[:2]`."""
    if not isinstance(bounds, ast.Slice) or not all(map(is_object, owner.items)):
        return None
    written = (bounds.lower, bounds.upper, bounds.step)
    try:
        numbers = [None if part is None else ast.literal_eval(part) for part in written]
        items = owner.items[slice(*numbers)]
    except (ValueError, TypeError):
        return None  # they are not written as numbers
    return Many(items) if items else None


def _item_of_many(owner: Many, key: Value) -> Value:
    """An item of a list or tuple: the one, or what all of them have in common."""
    if (
        isinstance(key, Lit)
        and isinstance(key.value, int)
        and -len(owner.items) <= key.value < len(owner.items)
    ):
        return owner.items[key.value]
    objects = [item for item in owner.items if is_object(item)]
    if not objects:
        return mix(list(owner.items))
    return objects[0] if len(objects) == 1 else NOTHING
