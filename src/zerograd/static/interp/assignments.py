"""Assignments: what variables, attributes and items hold from here on."""

from __future__ import annotations

import ast

from zerograd.core.records import dataclass, replace
from zerograd.core.training_loop import NotFollowed
from zerograd.explore.flow import Set
from zerograd.static.frameworks.table import Role
from zerograd.static.interp.conditions import Conditions
from zerograd.static.interp.effects import Effects
from zerograd.static.interp.emitter import Emitter
from zerograd.static.interp.environment import Environment, KnownObjects
from zerograd.static.interp.evaluator import Evaluator
from zerograd.static.interp.gradient_calls import ParameterCalls
from zerograd.static.interp.objects import Objects
from zerograd.static.read import vocabulary
from zerograd.static.read.keys import SELF, Key
from zerograd.static.read.syntax_tree import (
    called_name,
    first_name,
    parameter_names,
    stripped,
    text_of,
)
from zerograd.static.read.values import (
    NOTHING,
    Fn,
    KnownDict,
    Lit,
    Many,
    Params,
    Tensor,
    Thing,
    Value,
    mix,
    roots,
)


@dataclass(eq=False)
class Assignments:
    """Stores values."""

    env: Environment
    emitter: Emitter
    known: KnownObjects
    evaluator: Evaluator
    objects: Objects
    conditions: Conditions
    effects: Effects
    parameters: ParameterCalls

    def store(self, target: ast.expr, value: Value, source: ast.expr | None, node: ast.AST) -> None:
        """Gives a target its value; `source` is the expression that it was computed with."""
        if isinstance(target, (ast.Tuple, ast.List)):
            self.unpack(target, value, source, node)
            return
        if isinstance(target, ast.Starred):
            self.store(target.value, NOTHING, None, node)
            return
        if isinstance(target, ast.Attribute) and self.is_of_a_parameter(target):
            owner = self.evaluator.peek(target.value)
            self.parameters.store(owner, target.attr.lstrip("_"), value, source, node)
            made = self.parameters.made_leaf(owner, target, value)
            if made is not None and isinstance(target.value, ast.Name):
                self.env.frame.env[target.value.id] = made
            return
        variable = self.env.name(target) if self.is_tested(target) else None
        if variable is not None:
            expr = self.conditions.meaning(source) if source is not None else None
            self.emitter.add(Set(variable, expr))
        if isinstance(target, ast.Subscript):
            self.store_item(target, value)
            return
        value = self.as_used(target, value, source)
        if isinstance(target, ast.Name):
            self.env.frame.env[target.id] = value
            self.name_loop(target.id, source)
        elif isinstance(target, ast.Attribute):
            owner = self.evaluator.peek(target.value)
            if target.attr in ("params", "param_groups") and self.known.is_optimizer(owner):
                # It steps something else from here on.
                self.effects.unseen(node, roots(owner)[0], NotFollowed.UNCLEAR_OBJECT)
            if isinstance(owner, Thing):
                key = owner.key.attribute(target.attr)
                value = self.as_part(owner, value, key, source)
                if isinstance(value, Lit) and target.attr in self.env.frame.module.counted:
                    value = NOTHING  # where a count begins: a loop finds other numbers
                # A variable that is an object in one arm and None in the other is only used where it is the object.
                if value != Lit(None) or not self.env.branches or key not in self.env.heap:
                    value = self.as_one_of_two(self.env.heap.get(key), value)
                    # An unknown value gets the name of the attribute that holds it.
                    self.env.heap[key] = Thing(key) if value == NOTHING else value
            if not (isinstance(owner, Thing) and owner.key == SELF):
                self.known.hand_on(value)

    def is_of_a_parameter(self, target: ast.Attribute) -> bool:
        """Whether an assignment changes a parameter: `w.data = x`. A class may have an attribute `data` of its own."""
        if target.attr in ("grad", "_grad", "requires_grad"):
            return True
        return target.attr == "data" and not self.objects.has_own(
            self.evaluator.peek(target.value), "data"
        )

    def as_one_of_two(self, old: Value | None, new: Value) -> Value:
        """What an attribute holds that a branch sets again: an optimizer of one thing or of another."""
        if not self.env.branches or not isinstance(old, Thing) or not isinstance(new, Thing):
            return new
        if new.role is Role.TAKEN:
            self.known.without_engine.add(old.key)
            return old
        if new.role is not Role.OPTIMIZER or old.role is not new.role:
            return new
        params = self.known.params
        if old.key == new.key or params.get(old.key) == params.get(new.key):
            return new
        params[new.key] = None
        return replace(new, params=None)

    def as_part(self, owner: Thing, value: Value, key: Key, source: ast.expr | None) -> Value:
        """What an object makes for itself, `self.part = Part()`, is inside the object."""
        if not isinstance(value, Thing) or not isinstance(source, ast.Call):
            return value
        old = value.key
        if not (owner.made and value.made) or value.role:
            return value
        if any(known.is_inside(old) for known in self.known.roles):
            return value  # it has made optimizers, which are known by its old key
        heap = self.env.heap
        for name in [held for held in heap if held.is_inside(old)]:
            held = heap.pop(name)
            if isinstance(held, Thing) and held.key.is_inside(old):
                held = replace(held, key=Key((*key, *held.key[len(old) :])))
            heap[Key((*key, *name[len(old) :]))] = held
        return replace(value, key=key, made=False)

    def name_loop(self, name: str, source: ast.expr | None) -> None:
        """Remembers the iterable that a name holds, for a later loop over the name."""
        node = self.iterable_of(source) if source is not None else None
        called = text_of(node.func) if isinstance(node, ast.Call) else ""
        if node is not None and (called in ("enumerate", "range") or called.endswith(".split")):
            self.env.frame.iterables[name] = node
        else:
            self.env.frame.iterables.pop(name, None)

    def iterable_of(self, source: ast.expr) -> ast.expr:
        """What a loop over an expression iterates over, without progress bars and aliases."""
        node = stripped(self.without_bar(source))
        return self.env.frame.iterables.get(node.id, node) if isinstance(node, ast.Name) else node

    def without_bar(self, node: ast.expr) -> ast.expr:
        """`enumerate(loader)` for a call of a function of the project that returns just that: `bar(loader)`."""
        if not isinstance(node, ast.Call) or "bar" not in called_name(node):
            return node
        module, first = self.env.frame.module, first_name(text_of(node.func))
        if first in module.imports and self.objects.names.is_closed(module, first):
            self.objects.names.open(module, first)
        elif first not in module.imports and first not in module.functions:
            self.objects.names.open_stars(module)
        fn = self.evaluator.peek(node.func)
        if not isinstance(fn, Fn):
            return node
        facts = fn.module.facts[fn.node]
        held = (facts.locals.get(text_of(one), [(one,)]) for one in facts.returns)
        returned = {text_of(stripped(value)) for values in held for *_, value in values}
        names = parameter_names(fn.node)[isinstance(fn.owner, Thing) :]
        for name, argument in zip(names, node.args, strict=False):
            if returned == {f"enumerate({name})"}:
                whole = ast.Call(ast.Name("enumerate", ast.Load()), [argument], [])
                return ast.copy_location(whole, node)
        return node

    def is_tested(self, target: ast.expr) -> bool:
        """Whether some test may depend on what is stored here. A count of an object may be tested in another file."""
        module = self.env.frame.module
        if isinstance(target, ast.Subscript):
            return self.is_tested(target.value)
        if isinstance(target, ast.Name):
            return target.id in module.tested
        if not isinstance(target, ast.Attribute):
            return False
        return target.attr in module.tested or target.attr in module.counted

    def as_used(self, target: ast.expr, value: Value, source: ast.expr | None) -> Value:
        """What an unseen call returned is an object if the file uses it as one."""
        if not isinstance(target, (ast.Name, ast.Attribute)) or not _is_unknown(value):
            return value
        text = text_of(target)
        methods = self.env.frame.module.methods.get(text, frozenset())
        role = self.objects.used_as(target)
        if isinstance(value, Thing) or not (role or methods & vocabulary.OBJECT_METHODS):
            return value
        params = None
        if role is Role.OPTIMIZER and isinstance(source, ast.Call):
            given = [self.evaluator.peek(arg) for arg in source.args]
            keys = [item.keys for item in given if isinstance(item, Params)]
            params = keys[0] if len(keys) == 1 else None
            if called_name(source)[:1].isupper():
                self.known.own_steps[self.env.key(target)] = params
        thing = Thing(self.env.key(target), role, params)
        if not self.emitter.quiet:
            # Unseen code has made it: each time, nothing is known of its gradients.
            self.effects.unknown(target, thing.key, None)
        return thing

    def store_item(self, target: ast.Subscript, value: Value) -> None:
        """`holder[key] = value`."""
        self.evaluator.value(target.slice)
        holder = self.evaluator.peek(target.value)
        key = self.evaluator.peek(target.slice)
        if not isinstance(holder, KnownDict) and SELF not in roots(holder)[0]:
            self.known.hand_on(value)  # what the collection goes on to may use it
        if (
            isinstance(target.value, ast.Name)
            and isinstance(holder, KnownDict)
            and isinstance(key, Lit)
        ):
            kept = tuple(item for item in holder.items if item[0] != key.value)
            self.env.frame.env[target.value.id] = KnownDict((*kept, (key.value, value)))
        elif isinstance(holder, Thing) and isinstance(key, Lit):
            self.env.heap[holder.key.item(repr(key.value))] = value
        elif isinstance(target.value, ast.Name) and isinstance(holder, KnownDict):
            if isinstance(value, Tensor) and all(
                isinstance(one, Tensor) for _, one in holder.items
            ):
                # Under which key cannot be seen: whatever is taken out may be any of them.
                self.env.frame.env[target.value.id] = mix(
                    [*(one for _, one in holder.items), value]
                )
        elif isinstance(target.value, ast.Name) and isinstance(holder, Tensor):
            if isinstance(value, Tensor) and value.roots | value.maybe:
                self.env.frame.env[target.value.id] = mix([holder, value])

    def unpack(
        self, target: ast.Tuple | ast.List, value: Value, source: ast.expr | None, node: ast.AST
    ) -> None:
        """`a, b = …`."""
        sources = _side_by_side(target, source)
        for index, item in enumerate(target.elts):
            if isinstance(value, Many) and len(value.items) == len(target.elts):
                part: Value = value.items[index]
            elif isinstance(value, Thing):
                text = text_of(item)
                methods = self.env.frame.module.methods.get(text, frozenset())
                role = vocabulary.role_of_use(text, methods) if value.role else Role.NONE
                part = Thing(value.key.item(str(index)), role)
            elif isinstance(value, (Params, Tensor)):
                part = value
            else:
                part = NOTHING
            self.store(item, part, sources[index], node)


def _side_by_side(target: ast.Tuple | ast.List, source: ast.expr | None) -> list[ast.expr | None]:
    """The tests among the values of `a, b = x, y`, if the values read neither a nor b.

    Only tests: a flag or a number that is known on some paths alone would split equal paths.
    """
    unknown: list[ast.expr | None] = [None] * len(target.elts)
    if not isinstance(source, (ast.Tuple, ast.List)) or len(source.elts) != len(unknown):
        return unknown
    if not any(isinstance(part, (ast.Compare, ast.BoolOp)) for part in source.elts):
        return unknown
    stored = {text_of(part) for part in ast.walk(target) if isinstance(part, ast.expr)}
    read = {text_of(part) for part in ast.walk(source) if isinstance(part, ast.expr)}
    starred = any(isinstance(part, ast.Starred) for part in (*target.elts, *source.elts))
    if starred or stored & read:
        return unknown
    return [part if isinstance(part, (ast.Compare, ast.BoolOp)) else None for part in source.elts]


def _is_unknown(value: Value) -> bool:
    """Whether a value is what an unseen call returned."""
    if isinstance(value, Thing):
        return value.made and not value.role and value.klass is None
    return isinstance(value, Tensor)
