"""Tests and counters of the code as expressions that guards can be executed with."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from zerograd.core.late_pattern import pattern
from zerograd.core.records import replace
from zerograd.explore.logic import (
    MOST_OPERANDS,
    UNKNOWN,
    Const,
    Expr,
    Fact,
    LastIteration,
    Name,
    Op,
    Opaque,
    Synchronises,
    Value,
    Variable,
    WindowLength,
    evaluate,
    reads,
)
from zerograd.static.frameworks import registry
from zerograd.static.interp.emitter import Gate
from zerograd.static.interp.environment import Environment, Nesting
from zerograd.static.interp.evaluator import Evaluator
from zerograd.static.interp.objects import Objects
from zerograd.static.read import vocabulary
from zerograd.static.read.keys import SELF, Item, Key, KeyPart
from zerograd.static.read.syntax_tree import (
    Function,
    called_name,
    first_name,
    last_name,
    nodes,
    parameter_names,
    text_of,
)
from zerograd.static.read.values import Fn, Frame, KnownDict, Lit, Many, Tensor, Thing

_OPERATORS: dict[type[ast.AST], str] = {
    ast.Add: "+",
    ast.Sub: "-",
    ast.Mult: "*",
    ast.FloorDiv: "//",
    ast.Div: "/",
    ast.Mod: "%",
    ast.Eq: "==",
    ast.NotEq: "!=",
    ast.Lt: "<",
    ast.LtE: "<=",
    ast.Gt: ">",
    ast.GtE: ">=",
    ast.Is: "is",
    ast.IsNot: "is not",
}

_STEADY_CALLS = frozenset(
    {"len", "isinstance", "hasattr", "getattr", "int", "bool", "float", "max", "min"}
)
"""Functions that give the same result as long as their arguments are the same."""
_SETTING = pattern(r"(is|has|use|uses|using)_")
"""Names of functions that ask how the process was started."""

_COMPUTED = (
    ast.Constant,
    ast.Name,
    ast.Attribute,
    ast.BoolOp,
    ast.UnaryOp,
    ast.BinOp,
    ast.Compare,
    ast.NamedExpr,
)
"""Kinds of expressions whose value a guard can be executed with."""

_SAME = {"is": True, "==": True, "is not": False, "!=": False}
"""By comparison of a flag with a value: whether it is true when they are equal."""

_SIMPLE = (ast.Constant, ast.Name, ast.Attribute, ast.Compare, ast.UnaryOp, ast.Call)
"""Kinds of tests that a literal may settle."""


_COLLECTIONS = {Many: ("list", "tuple", "Sequence", "Iterable"), KnownDict: ("dict", "Mapping")}
"""By kind of a known collection: the classes that it may be an instance of."""


class Conditions:
    """Turns tests into expressions."""

    def __init__(
        self,
        env: Environment,
        nesting: Nesting,
        gate: Gate,
        evaluator: Evaluator,
        objects: Objects,
    ) -> None:
        self.env = env
        self.nesting = nesting
        self.gate = gate
        self.evaluator = evaluator
        self.objects = objects
        self.reading: set[ast.AST] = set()
        """The functions whose tests are being read."""
        self.counting: set[Variable] = set()
        """What functions that ask whether a window closes are handed: it may count."""

    def expression(self, node: ast.expr) -> Expr:
        """The expression for a test, a counter or a divisor."""
        if isinstance(node, ast.Constant):
            value = node.value
            return (
                Const(value)
                if isinstance(value, (bool, int, float, str, type(None)))
                else self._opaque(node)
            )
        if isinstance(node, (ast.Name, ast.Attribute, ast.Subscript)):
            return self._name(node)
        if isinstance(node, ast.BoolOp):
            op = "and" if isinstance(node.op, ast.And) else "or"
            return Op(op, tuple(self.expression(value) for value in node.values), text_of(node))
        if isinstance(node, ast.UnaryOp):
            inner = self.expression(node.operand)
            if isinstance(node.op, ast.Not):
                return Op("not", (inner,), text_of(node))
            if isinstance(node.op, ast.USub):
                return Op("neg", (inner,), text_of(node))
            return inner
        if isinstance(node, ast.BinOp) and type(node.op) in _OPERATORS:
            left, right = self.expression(node.left), self.expression(node.right)
            if isinstance(node.op, (ast.Mod, ast.Div)):
                right = _modulus(right)
            return Op(_OPERATORS[type(node.op)], (left, right), text_of(node))
        if isinstance(node, ast.Compare) and text_of(node.left) == "__name__":
            return Const(True)
        if isinstance(node, ast.Compare):
            return self._comparison(node)
        if isinstance(node, ast.Call) and text_of(node.func).endswith("is_grad_enabled"):
            return Const(True)
        if isinstance(node, ast.NamedExpr):
            return self.expression(node.value)
        if isinstance(node, ast.Call):
            return self._call(node)
        return self._predicate(node) or self._opaque(node)

    def _call(self, node: ast.Call) -> Expr:
        """`int(x)` is x, and `options.get("name", …)` is the entry."""
        if node in self.nesting.answers:
            return self.nesting.answers[node]
        func, first = node.func, node.args[0] if node.args else None
        if isinstance(func, ast.Name) and len(node.args) == 1 and first is not None:
            if func.id in ("bool", "int", "float"):
                return self.expression(first)
        if isinstance(func, ast.Attribute) and isinstance(first, ast.Constant):
            if func.attr == "get":
                return self._name(ast.Subscript(func.value, first, ast.Load()))
        if text_of(func) == "isinstance" and len(node.args) == 2:
            kind = _COLLECTIONS.get(type(self.evaluator.peek(node.args[0])))
            if kind is not None:
                # A function that asks for a list is handed one, or it would wrap what it is handed.
                return Const(any(name in kind for name in _names_of(node.args[1])))
        return self._predicate(node) or self._opaque(node)

    def _predicate(self, node: ast.expr) -> Expr | None:
        """The test that a function or a property of the project returns, if it does nothing else."""
        fn: object
        if isinstance(node, ast.Call):
            fn = self.evaluator.peek(node.func)
        elif isinstance(node, ast.Attribute):
            owner = self.evaluator.peek(node.value)
            fn = self.objects.getter(owner, node.attr) if isinstance(owner, Thing) else None
        else:
            return None
        if not isinstance(fn, Fn) or isinstance(fn.node, ast.Lambda) or fn.given or fn.named:
            return None
        returned = _only_test(fn.node)
        if returned is None or fn.node in self.reading:
            return None
        frame = self._frame_of(fn, node if isinstance(node, ast.Call) else None)
        if frame is None:
            return None
        here, self.env.frame = self.env.frame, frame
        self.reading.add(fn.node)
        try:
            return self.expression(returned)
        finally:
            self.reading.discard(fn.node)
            self.env.frame = here

    def _frame_of(self, fn: Fn, call: ast.Call | None) -> Frame | None:
        """The frame of a call whose arguments are variables and literals; None for any other call."""
        frame = Frame(fn.module, None, fn.frame, {}, owner=fn.owner, klass=fn.klass)
        names = parameter_names(fn.node)
        if isinstance(fn.owner, Thing) and names:
            frame.env[names.pop(0)] = fn.owner
        given = dict(zip(names, call.args, strict=False)) if call is not None else {}
        given.update({one.arg: one.value for one in call.keywords if one.arg} if call else {})
        for name in names:
            source = given.get(name)
            variable = self.env.variable(source) if source is not None else None
            value = self.evaluator.peek(source) if source is not None else None
            if variable is not None:
                frame.aliases[name] = variable
            elif isinstance(value, Lit):
                frame.env[name] = value
            else:
                return None
        return frame

    def meaning(self, node: ast.expr) -> Expr | None:
        """What a variable holds that is given a value; None where nothing can be computed with it."""
        if isinstance(node, ast.IfExp):
            return self._object_or_none(node)
        if isinstance(node, ast.Call) and node in self.nesting.answers:
            return self.nesting.answers[node]
        if isinstance(node, _COMPUTED) or (isinstance(node, ast.Call) and _is_computed(node)):
            expr = self.expression(node)
            if not isinstance(expr, Opaque) or expr.text.startswith("len("):
                return expr
        return Const("an object") if _is_something(node) else None

    def _object_or_none(self, node: ast.IfExp) -> Expr | None:
        """`Scaler() if amp else None`, or the other way round."""
        arms = (node.body, node.orelse)
        none = [isinstance(arm, ast.Constant) and arm.value is None for arm in arms]
        some = [_is_something(arm) for arm in arms]
        test = self.expression(node.test)
        if some[0] and none[1]:
            return Op("if", (test,), text_of(node))
        if none[0] and some[1]:
            return Op("if", (Op("not", (test,)),), text_of(node))
        return None

    def constant(self, node: ast.expr) -> bool | None:
        """The truth of a test that is settled by a literal; None for any other."""
        if isinstance(node, ast.BoolOp):
            said = [self.constant(value) for value in node.values]
            decisive = isinstance(node.op, ast.Or)
            if decisive in said:
                return decisive
            return None if None in said else not decisive
        expr = self.expression(node) if isinstance(node, _SIMPLE) else None
        if isinstance(expr, Const):
            return bool(expr.value)
        if isinstance(expr, Op) and all(isinstance(arg, Const) for arg in expr.args):
            value = evaluate(expr, {})
            return None if value is UNKNOWN else bool(value)
        return None

    def _in_last_iteration(self, test: Op) -> Op:
        """A test that distinguishes the last iteration of a loop from all others is read as "is this the last iteration"."""
        for counter in test.reads & self.nesting.lengths.keys():
            ident, first, length = self.nesting.lengths[counter]
            spelled = self._with_lengths(test)
            if not reads(spelled) <= {counter, *reads(length)}:
                continue
            said = [*_by_iteration(spelled, counter, first, length)]
            if said and all(truth is last for last, truth in said):
                return Op("and", (LastIteration(ident),), test.text)
            if said and all(truth is (not last) for last, truth in said):
                return Op("not", (LastIteration(ident),), test.text)
        return test

    def _with_lengths(self, expr: Expr) -> Expr:
        """A test with `len(batches)` in the place of a variable that gets this value and no other."""
        if isinstance(expr, Op):
            return replace(expr, args=tuple(map(self._with_lengths, expr.args)))
        held = self._only_value(expr.text) if isinstance(expr, Name) else None
        asks = isinstance(held, ast.Call) and text_of(held.func) == "len"
        return self._opaque(held) if held is not None and asks else expr

    def _comparison(self, node: ast.Compare) -> Expr:
        operands = [node.left, *node.comparators]
        pairs: list[Expr] = []
        for left, op, right in zip(operands, node.ops, operands[1:], strict=False):
            name = _OPERATORS.get(type(op))
            if name is None:
                known = self._membership(left, op, right) if len(node.ops) == 1 else None
                return known or self._opaque(node)
            member = self._member(left, right) if name in _SAME else None
            pair = _by_length(self.expression(left), member or self.expression(right))
            other = pair[1].value if isinstance(pair[1], Const) else None
            if name in _SAME and isinstance(other, bool):
                asked = _SAME[name] is other
                pairs.append(pair[0] if asked else Op("not", (pair[0],), text_of(node)))
            elif name == "is not":
                pairs.append(
                    Op(
                        "not",
                        (Op("is", pair, f"{text_of(left)} is {text_of(right)}"),),
                        text_of(node),
                    )
                )
            elif name == "!=":
                equal = Op("==", pair, f"{text_of(left)} == {text_of(right)}")
                pairs.append(Op("not", (equal,), text_of(node)))
            else:
                pairs.append(Op(name, pair, text_of(node)))
        pairs = [self._in_last_iteration(one) if isinstance(one, Op) else one for one in pairs]
        return pairs[0] if len(pairs) == 1 else Op("and", tuple(pairs), text_of(node))

    def _member(self, left: ast.expr, right: ast.expr) -> Const | None:
        """`Mode.FAST`, if the file compares the same thing with another member of `Mode`, too: it cannot be both."""
        if not isinstance(right, ast.Attribute) or not right.attr.isupper():
            return None
        compared = self.env.frame.module.compared.get((text_of(left), text_of(right.value)), ())
        return Const(text_of(right)) if len(compared) > 1 else None

    def _membership(self, item: ast.expr, op: ast.cmpop, collection: ast.expr) -> Expr | None:
        """`name in names`, for a literal or a variable and a collection of literals; an empty one may be filled later.

        A variable that is one of a few texts equals one of them: `mode in ("a", "b")`.
        """
        wanted, held = self.evaluator.peek(item), self.evaluator.peek(collection)
        if not isinstance(held, Many) or not held.items:
            return None
        literals = [one for one in held.items if isinstance(one, Lit)]
        if len(literals) < len(held.items):
            return None
        if isinstance(wanted, Lit):
            return Const((wanted in literals) is isinstance(op, ast.In))
        asked = self.expression(item)
        few = len(literals) <= MOST_OPERANDS and all(isinstance(one.value, str) for one in literals)
        if not isinstance(asked, Variable) or not few:
            return None
        name = text_of(item)
        equal = tuple(
            Op("==", (asked, Const(one.value)), f"{name} == {one.value!r}") for one in literals
        )
        found = Op("or", equal, f"{name} in {text_of(collection)}")
        return found if isinstance(op, ast.In) else Op("not", (found,), "")

    def _name(self, node: ast.Name | ast.Attribute | ast.Subscript) -> Expr:
        if isinstance(node, ast.Attribute) and node.attr == "requires_grad":
            return Const(True)
        if isinstance(node, ast.Attribute) and node.attr in registry.CLOSES_WINDOW:
            if self.gate.accumulating:
                return self.gate.synchronises()
            return Synchronises(text_of(node.value))  # what the last `accumulate` has said
        variable = self.env.name(node)
        if variable is None:
            return self._opaque(node)
        predicate = self._predicate(node)
        if predicate is not None:
            return predicate
        if isinstance(node, ast.Subscript):
            return variable  # an entry may change where the variable that holds it does not
        value = self.evaluator.peek(node)
        if isinstance(node, ast.Name) and isinstance(value, Thing) and _is_setting(value):
            return Name(value.key.shown, value.key.call) if self._only_value(node.id) else variable
        if isinstance(node, ast.Name) and isinstance(value, Tensor):
            entry = self._only_value(node.id)
            if entry is not None and _is_entry(entry) and self.evaluator.peek(entry) == value:
                return self.env.name(entry) or variable
        if not isinstance(value, Lit) or self._is_counted_by_holder(node):
            return variable
        return Const(value.value)

    def _is_counted_by_holder(self, node: ast.expr) -> bool:
        """`engine.state.iteration`: the file of an engine may count what the class of its state sets to 0."""
        holder = node.value if isinstance(node, ast.Attribute) else node
        while isinstance(node, ast.Attribute) and isinstance(holder, ast.Attribute):
            holder = holder.value
            owner = self.evaluator.peek(holder)
            if isinstance(owner, Thing) and owner.klass is not None:
                if any(
                    node.attr in one.module.counted
                    for one in self.objects.classes.lineage(owner.klass)
                ):
                    return True
        return False

    def _only_value(self, name: str) -> ast.expr | None:
        """What the function gives a variable, if it gives it one value and no other."""
        given = self._values_of(name)
        return given[0] if len(given) == 1 else None

    def _values_of(self, name: str) -> list[ast.expr]:
        """All that the function gives a variable."""
        module, stack = self.env.frame.module, self.nesting.stack
        facts = module.facts.get(stack[-1] if stack else module.tree)
        return [value for *_, value in facts.locals.get(name, ())] if facts is not None else []

    def made_late(self, test: ast.expr) -> str:
        """The variable of `if x is None: x = make()`, None until then: from there on, it is what was made; or ""."""
        if not isinstance(test, ast.Compare) or not isinstance(test.left, ast.Name):
            return ""
        given = self._values_of(test.left.id)
        made = [value for value in given if text_of(value) != "None"]
        asked = text_of(test) == f"{test.left.id} is None"
        return test.left.id if asked and len(given) == 2 and len(made) == 1 else ""

    def _opaque(self, node: ast.expr) -> Expr:
        if self.nesting.read_lengths and isinstance(node, ast.Call) and len(node.args) == 1:
            length = self.nesting.read_lengths.get(text_of(node.args[0]))
            if length is not None and text_of(node.func) == "len":
                return Const(length)
        names: set[Variable] = set()
        stable = True
        for inner in nodes(node):
            if isinstance(inner, (ast.Name, ast.Attribute)) and isinstance(inner.ctx, ast.Load):
                variable = self.env.name(inner)
                if variable is not None:
                    names.add(variable)
            elif isinstance(inner, ast.Call):
                simple = isinstance(inner.func, ast.Name) and inner.func.id in _STEADY_CALLS
                stable = stable and (simple or self._asks_for_setting(inner))
            elif isinstance(inner, (ast.Await, ast.Yield, ast.YieldFrom)):
                stable = False
        asks = isinstance(node, ast.Call) and self._asks_for_window(node)
        if asks:
            self.counting |= names
        return Opaque(text_of(node), frozenset(names), stable, self.env.frame.call, asks)

    def _asks_for_setting(self, call: ast.Call) -> bool:
        """`utils.is_distributed()`: an imported function without arguments says what the process was started with."""
        name = text_of(call.func)
        imported = first_name(name) in self.env.frame.module.imports
        return imported and not call.args and bool(_SETTING.match(last_name(name)))

    def _asks_for_window(self, node: ast.Call) -> bool:
        """Whether a test calls a function of the project that only asks whether a window closes."""
        called = self.evaluator.peek(node.func)
        if not isinstance(called, Fn) or isinstance(called.node, ast.Lambda):
            return False
        returned = [part.value for part in nodes(called.node) if isinstance(part, ast.Return)]
        changes = (
            isinstance(part, ast.Attribute) and isinstance(part.ctx, ast.Store)
            for part in nodes(called.node)
        )
        said = (text_of(part) for part in (node, *returned) if part is not None)
        return any(map(vocabulary.WINDOW.search, said)) and not any(changes)

    def exists_check(self, node: ast.expr) -> tuple[Key, bool] | None:
        """The object whose existence a test asks for (`if opt is not None`), and in which arm it is."""
        if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
            inner = self.exists_check(node.operand)
            return inner and (inner[0], not inner[1])
        target, present = node, True
        if isinstance(node, ast.Compare) and len(node.ops) == 1:
            right = node.comparators[0]
            if not (isinstance(right, ast.Constant) and right.value is None):
                return None
            target, present = node.left, isinstance(node.ops[0], (ast.IsNot, ast.NotEq))
        if not isinstance(target, (ast.Name, ast.Attribute, ast.Subscript)):
            return None
        value = self.evaluator.peek(target)
        if isinstance(value, Thing):
            self.objects.role(value, target)
            return value.key, present
        if isinstance(target, ast.Subscript) and self.objects.used_as(target):
            return self.env.key(target), present
        return None


def _only_test(function: Function) -> ast.expr | None:
    """The test that a function returns, if it does nothing else."""
    body = function.body[1:] if ast.get_docstring(function) is not None else function.body
    returned = body[0].value if len(body) == 1 and isinstance(body[0], ast.Return) else None
    if not isinstance(returned, (ast.Compare, ast.BoolOp)):
        return None
    changes = (ast.Call, ast.Await, ast.Yield, ast.YieldFrom, ast.NamedExpr)
    return None if any(isinstance(part, changes) for part in nodes(returned)) else returned


def _names_of(node: ast.expr) -> list[str]:
    """The names of the classes that `isinstance` is asked for."""
    asked = node.elts if isinstance(node, ast.Tuple) else [node]
    return [last_name(text_of(one)) for one in asked]


def _is_computed(node: ast.Call) -> bool:
    if isinstance(node.func, ast.Name):
        return node.func.id in ("len", "bool", "int", "float", "is_grad_enabled")
    return isinstance(node.func, ast.Attribute) and node.func.attr.endswith("is_grad_enabled")


def _is_setting(value: Thing) -> bool:
    """Whether a variable holds an entry of settings: `args.amp`, `self.options["amp"]`, not `self.count`."""
    key = value.key
    if value.role or value.made or len(key) <= 1 + (key[:1] == SELF):
        return False
    return all(
        part.isidentifier() if isinstance(part, str) else _is_named(part) for part in key[1:]
    )


def _is_entry(node: ast.expr) -> bool:
    """Whether an expression is an entry of what an unseen call has made: `options["amp"]`, with a literal name."""
    return isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Constant)


def _is_named(part: KeyPart) -> bool:
    return isinstance(part, Item) and part.text[:1] in "\"'"


def _is_something(node: ast.expr) -> bool:
    """Whether an expression cannot be None."""
    if isinstance(node, ast.Call):
        name = called_name(node)
        return name[:1].isupper() or (name in ("set", "list", "tuple", "dict") and bool(node.args))
    return isinstance(node, (ast.ListComp, ast.SetComp, ast.DictComp, ast.JoinedStr))


def _modulus(expr: Expr) -> Expr:
    """A literal N is a name like any other, so that guards can be executed with small windows."""
    if isinstance(expr, Const) and isinstance(expr.value, (int, float)) and expr.value >= 2:
        return WindowLength(int(expr.value))
    if isinstance(expr, Op) and expr.op in "+-*" and isinstance(expr.args[1], Const):
        return WindowLength(text=expr.text)  # `i % (n + 1)`: the window has n + 1 micro-batches
    return expr


def _by_iteration(
    test: Expr, counter: Variable, first: int, length: Expr
) -> Iterator[tuple[bool, object]]:
    """For loops of several lengths, each iteration: whether it is the last one, and whether a test is true in it."""
    given = length.value if isinstance(length, Const) else None
    for trips in (given,) if isinstance(given, int) else (1, 2, 5):
        known: dict[Variable | Fact, Value] = {}
        if isinstance(length, Opaque):
            known[length.fact] = trips
        elif isinstance(length, Variable):
            known[length] = trips
        for index in {0, trips - 2, trips - 1} - {-1, -2}:
            yield index == trips - 1, evaluate(test, {**known, counter: first + index})


def _by_length(left: Expr, right: Expr) -> tuple[Expr, Expr]:
    """`count % 4 == 3` is `count % N == N - 1`, whatever N a guard is executed with."""
    if isinstance(left, Op) and left.op == "%" and isinstance(left.args[1], WindowLength):
        length = left.args[1]
        if length.literal == evaluate(Op("+", (right, Const(1))), {}):
            return left, Op("-", (length, Const(1)))
    return left, right


def is_none_check(node: ast.expr) -> bool | None:
    """True for `x.grad is not None`, False for `x.grad is None`, None for any other test."""
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
        inner = is_none_check(node.operand)
        return None if inner is None else not inner
    if isinstance(node, ast.BoolOp) and isinstance(node.op, ast.And):
        checks = [is_none_check(value) for value in node.values]
        return True if True in checks else None
    if isinstance(node, ast.BoolOp):
        checks = [is_none_check(value) for value in node.values]
        return False if False in checks else None
    if isinstance(node, ast.Attribute) and node.attr == "grad":
        return True
    if isinstance(node, ast.Compare) and len(node.ops) == 1:
        right = node.comparators[0]
        if not (isinstance(right, ast.Constant) and right.value is None):
            return None
        if not any(isinstance(n, ast.Attribute) and n.attr == "grad" for n in ast.walk(node.left)):
            return None
        return isinstance(node.ops[0], (ast.IsNot, ast.NotEq))
    return None
