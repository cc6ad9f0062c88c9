"""New objects: optimizers and others, as constructors and factories make them."""

from __future__ import annotations

import ast
from collections.abc import Sequence

from zerograd.core.records import dataclass
from zerograd.static.frameworks.table import Role
from zerograd.static.frameworks.torch import SCALER
from zerograd.static.interp.effects import Effects, keyword
from zerograd.static.interp.emitter import Emitter
from zerograd.static.interp.environment import Environment, KnownObjects, Nesting
from zerograd.static.interp.evaluator import Evaluator
from zerograd.static.interp.objects import Objects
from zerograd.static.read import vocabulary
from zerograd.static.read.keys import Key
from zerograd.static.read.syntax_tree import last_name, text_of
from zerograd.static.read.values import (
    NOTHING,
    Fn,
    Klass,
    Lit,
    Many,
    Params,
    Tensor,
    Thing,
    Value,
    parameters_of,
    parts,
    roots,
)


@dataclass(eq=False)
class Constructors:
    """Makes objects."""

    env: Environment
    emitter: Emitter
    known: KnownObjects
    nesting: Nesting
    evaluator: Evaluator
    objects: Objects
    effects: Effects

    def make(
        self,
        node: ast.Call,
        name: str,
        role: Role,
        arguments: list[Value],
        klass: Klass | None = None,
    ) -> Value:
        """An object of a known role; an optimizer knows what it steps."""
        key = self.env.frame.new_key(node)
        if role is not Role.OPTIMIZER:
            if not vocabulary.is_of_a_library(name):
                # A scheduler of the project's own may step the optimizer that it is handed.
                for argument in filter(self.known.is_optimizer, arguments):
                    self.known.hand_on(argument)
            if role is SCALER:
                asked = keyword(node, "enabled")
                enabled = self.evaluator.peek(asked) if asked is not None else Lit(True)
                if isinstance(enabled, Lit):
                    self.known.enabled[key] = bool(enabled.value)
            return Thing(key, role)
        for argument in arguments:
            if self.known.is_optimizer(argument):
                # A wrapper shares the groups of the optimizer inside: whatever it does, it does to those.
                return argument
        given = keyword(node, "params", "parameters") or (node.args[0] if node.args else None)
        params = None
        built = (
            name[:1].isupper() or name.startswith("torch.optim.") or last_name(name)[:1].isupper()
        )
        if given is None and built and klass is None and _is_named_only(node):
            return self.built_object(node, arguments)  # it is handed no parameters to step
        handed = self.evaluator.peek(given) if given is not None else NOTHING
        if given is not None and (built or isinstance(handed, Params)):
            # A factory may leave some out; it steps nothing else. A wrapper steps what the optimizer inside does.
            wraps = isinstance(handed, Thing) and _is_called_optimizer(given)
            params = None if wraps else parameters_of(handed)
            for key_of in params if params and len(params) == 1 else ():
                if self.known.roles.get(key_of) is Role.OPTIMIZER:
                    # Made from another one's `param_groups`.
                    return Thing(key_of, Role.OPTIMIZER, self.known.params.get(key_of))
        self.known.roles[key] = Role.OPTIMIZER
        self.known.params[key] = params
        if name.startswith("torch.optim."):
            self.known.of_torch.add(key)
        if not self.emitter.quiet:
            self.known.made[key] = self.emitter.site(node)
            if params is None:
                # What it steps cannot be seen: another optimizer may have left gradients there.
                self.effects.unknown(node, key, None)
        return Thing(key, Role.OPTIMIZER, params, klass, made=True)

    def several(self, node: ast.Call, items: Sequence[tuple[str, Role] | None]) -> Value:
        """Objects that are made together: the first, and attributes of it, each with its role."""
        key = self.env.frame.new_key(node)
        return Many(
            tuple(
                Thing(key.attribute(item[0]) if item[0] else key, item[1]) if item else NOTHING
                for item in items
            )
        )

    def built_object(self, node: ast.expr, arguments: list[Value] | None = None) -> Thing:
        """A new object of a class that cannot be seen; it may share what it was handed."""
        key = self.env.frame.new_key(node)
        given = [part for one in arguments or () for part in parts(one)]
        held = {one.key for one in given if isinstance(one, Thing)}
        held.update(*(roots(one)[1] for one in arguments or () if isinstance(one, Fn)))
        if not held and not any(isinstance(argument, Params) for argument in arguments or ()):
            self.known.fresh.add(key)
            self.effects.announce(node, key)
        self.known.holds[key] = held
        params = [one.keys for one in arguments or () if isinstance(one, Params)]
        self.known.own_steps[key] = params[0] if len(params) == 1 else None
        return Thing(key, made=True)

    def built_leaf(self, node: ast.expr) -> Thing:
        """A new tensor that gradients reach."""
        key = self.env.frame.new_key(node)
        self.known.fresh.add(key)
        self.known.leaves.add(key)
        self.effects.announce(node, key, leaf=True)
        return Thing(key, made=True)

    def record(self, node: ast.Call, name: str, arguments: list[Value]) -> Value:
        """A new object of a class that cannot be seen; if it is given one result of modules, it is taken for that."""
        things = [argument for argument in arguments if isinstance(argument, Thing)]
        if not any(thing.role or self.objects.is_stepped(thing) for thing in things):
            others = [argument for argument in arguments if not isinstance(argument, (Thing, Lit))]
            results = [one for one in others if isinstance(one, Tensor)]
            computed = [one for one in results if one.roots]
            if len(results) == len(others) and len(computed) == 1 and not vocabulary.meddles(name):
                return computed[0]
        return self.built_object(node, arguments)

    def as_optimizer(self, value: Value, node: ast.expr) -> Value:
        """The result of an unseen call, which has to be an optimizer."""
        if isinstance(value, Tensor) and isinstance(node, (ast.Name, ast.Attribute)):
            return Thing(self.env.key(node), Role.OPTIMIZER)
        return value

    def as_object(self, value: Value, node: ast.expr) -> Value:
        """The result of an unseen call, as an object if the file uses it as one with a role."""
        if isinstance(value, Tensor):
            role = self.objects.used_as(node)
            if isinstance(node, ast.Subscript):
                self.nesting.note_shifting(node, self.env.reads(node.slice))
            if role:
                key = self._key(node)
                return Thing(key.called() if isinstance(node, ast.Call) else key, role)
        return value

    def _key(self, node: ast.expr) -> Key:
        """The key of an expression; an item is known by the literal that its index holds."""
        if isinstance(node, ast.Subscript):
            index = self.evaluator.peek(node.slice)
            if isinstance(index, Lit):
                return self.env.key(node.value).item(repr(index.value))
        return self.env.key(node)


def _is_called_optimizer(node: ast.expr) -> bool:
    return vocabulary.role_of_use(text_of(node), frozenset({"step"})) is Role.OPTIMIZER


def _is_named_only(node: ast.Call) -> bool:
    """Whether a call has keywords, and nothing else."""
    return bool(node.keywords) and all(keyword.arg is not None for keyword in node.keywords)
