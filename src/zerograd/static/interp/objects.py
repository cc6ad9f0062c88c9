"""Objects and classes: what they inherit and hold, and which role they have."""

from __future__ import annotations

import ast
from collections.abc import Container, Iterable, Iterator, Mapping
from itertools import islice

from zerograd.core.records import dataclass, field, replace
from zerograd.static.frameworks import registry
from zerograd.static.frameworks.table import Role
from zerograd.static.interp.construction_sites import TRAINING, ConstructionSites, Given
from zerograd.static.interp.environment import Environment, KnownObjects
from zerograd.static.interp.evaluator import Evaluator
from zerograd.static.interp.names import Names
from zerograd.static.read import vocabulary
from zerograd.static.read.keys import RESULT, Key
from zerograd.static.read.module import Module
from zerograd.static.read.syntax_tree import (
    Function,
    calls_in,
    last_name,
    nodes,
    parameter_names,
    parameters,
    text_of,
)
from zerograd.static.read.values import (
    NOTHING,
    Bound,
    Fn,
    Frame,
    Grad,
    Klass,
    KnownDict,
    Lit,
    Many,
    Origin,
    Params,
    Tensor,
    Thing,
    Value,
    called,
)

DEEPEST_WRAPPER = 2
"""Objects in objects that are looked through for a module: `Critic(WithStates(net))`."""
_HARMLESS_BASES = frozenset(
    {"object", "ABC", "Module", "Generic", "Protocol", "NamedTuple", "Enum", "Exception"}
)


@dataclass(eq=False)
class KnownClasses:
    """What was found out about classes, for all functions of a file that are interpreted."""

    lineages: dict[ast.ClassDef, list[Klass]] = field(default_factory=dict)
    methods: dict[ast.ClassDef, list[Fn]] = field(default_factory=dict)
    kept: dict[Function, dict[str, str]] = field(default_factory=dict)
    """By method: the attribute that holds each argument."""
    silent: dict[ast.ClassDef, bool] = field(default_factory=dict)
    """By class: whether what it inherits unseen leaves gradients alone."""
    members: dict[ast.ClassDef, tuple[list[str], set[str]]] = field(default_factory=dict)
    """By class: its attributes, and what its methods call."""
    sites: dict[ast.ClassDef, list[Given]] = field(default_factory=dict)
    """By class: where other files make objects of it."""


class Classes:
    """Looks into classes."""

    def __init__(self, known: KnownClasses, evaluator: Evaluator) -> None:
        self.known = known
        self.evaluator = evaluator

    def lineage(self, klass: Klass) -> list[Klass]:
        """The class and its visible bases, in the order in which Python looks for a method."""
        known = self.known.lineages.get(klass.node)
        if known is None:
            # A class that inherits from itself, through others, is its own last base.
            self.known.lineages[klass.node] = [klass]
            bases = (self.base(klass, base) for base in klass.node.bases)
            found = [one for base in bases if isinstance(base, Klass) for one in self.lineage(base)]
            # What several bases inherit from comes after all of them.
            last = {one.node: at for at, one in enumerate(found)}
            ordered = [one for at, one in enumerate(found) if last[one.node] == at]
            known = [klass, *(one for one in ordered if one.node is not klass.node)]
            self.known.lineages[klass.node] = known
        return known

    def after(self, klass: Klass, owner: Value | None) -> list[Klass]:
        """The classes in which `super()` of a method of a class looks, for this object."""
        own = owner.klass if isinstance(owner, Thing) and owner.klass is not None else klass
        line = self.lineage(own)
        at = next((at for at, one in enumerate(line) if one.node is klass.node), None)
        return self.lineage(klass)[1:] if at is None else line[at + 1 :]

    def base(self, klass: Klass, node: ast.expr) -> Value:
        """What a class inherits from."""
        if not isinstance(node, (ast.Name, ast.Attribute)):
            return NOTHING
        return self.evaluator.peek_in(Frame(klass.module), node)

    def is_visible(self, klass: Klass) -> bool:
        """Whether all bases of a class are visible, or known to leave gradients alone."""
        return not any(True for _ in self.unseen_bases(klass))

    def unseen_bases(self, klass: Klass) -> Iterator[tuple[Klass, ast.expr]]:
        """The bases of a class that cannot be seen, each with the class that names it."""
        for part in self.lineage(klass):
            for node in part.node.bases:
                if not isinstance(self.base(part, node), Klass):
                    if last_name(text_of(node)) not in _HARMLESS_BASES:
                        yield part, node

    def methods(self, klass: Klass) -> list[Fn]:
        """The methods that a class defines itself."""
        known = self.known.methods.get(klass.node)
        if known is None:
            known = self.known.methods[klass.node] = list(methods_of(klass))
        return known

    def members(self, klass: Klass) -> tuple[list[str], set[str]]:
        """The attributes that a class and its visible bases assign, and the names that their methods call.

        They are asked for at every call of a method: to keep them saves 1 % of a check (69 training repositories).
        """
        known = self.known.members.get(klass.node)
        if known is None:
            lineage = self.lineage(klass)
            names = [attr for base in lineage for attr in base.module.attributes_of(base.node)]
            methods = (method for base in lineage for method in self.methods(base))
            called = set().union(*(one.module.facts[one.node].called for one in methods))
            known = self.known.members[klass.node] = (list(dict.fromkeys(names)), called)
        return known

    def defines(self, klass: Klass, name: str) -> bool:
        """Whether a class or a visible base of it defines a method."""
        return any(base.method(name) is not None for base in self.lineage(klass))

    def role(self, klass: Klass) -> Role:
        """The role of a class, from what it inherits or is called."""
        for base in self.lineage(klass):
            for parent in base.node.bases:
                role = vocabulary.role_of_call(text_of(parent))
                if role is Role.OPTIMIZER and self._steps_nothing(self.base(base, parent)):
                    continue  # `class Trainer(KeepsOptimizer)`
                if role:
                    return role
        if klass.name in registry.CLASSES and not self.defines(klass, "__call__"):
            return registry.CLASSES[klass.name]
        return Role.NONE

    def _steps_nothing(self, parent: Value) -> bool:
        """Whether a class of the project has no step, so that it is not an optimizer, even if its name says so.

        The step of an optimizer is handed a closure at most, not what it has to change.
        """
        if not isinstance(parent, Klass):
            return False
        steps = [base.method("step") for base in self.lineage(parent)]
        return all(_asked(step) > 1 for step in steps if step is not None)

    def is_optimizer_method(self, method: Fn) -> bool:
        """Whether a method belongs to an optimizer of the project."""
        return method.klass is not None and self.role(method.klass) is Role.OPTIMIZER


def _asked(method: Function) -> int:
    """How many arguments a method needs, besides its object."""
    args = method.args
    return len([*args.posonlyargs, *args.args]) - 1 - len(args.defaults)


def _handed_up(call: ast.Call, method: Function) -> Iterator[tuple[str, str]]:
    """Names that `super().method(…)` or `Base.method(self, …)` hands over: the parameter, and the name."""
    formal = [arg.arg for arg in (*method.args.posonlyargs, *method.args.args)]
    bound = isinstance(call.func, ast.Attribute) and is_super(call.func.value)
    given = zip(formal[1:] if bound else formal, call.args, strict=False)
    named = ((one.arg, one.value) for one in call.keywords if one.arg is not None)
    for name, value in (*given, *named):
        if isinstance(value, ast.Name):
            yield name, value.id


def _given(calls: list[ast.Call]) -> Iterator[ast.expr]:
    for call in calls:
        yield from call.args
        yield from (one.value for one in call.keywords)


def is_super(node: ast.expr) -> bool:
    """Whether an expression is `super()`."""
    return (
        isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "super"
    )


def methods_of(klass: Klass) -> Iterator[Fn]:
    """The methods in a class's body, in order."""
    for node in klass.node.body:
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            yield Fn(node, klass.module, node.name, None, None, klass)


_NONE: frozenset[str] = frozenset()
_OF_OBJECTS = vocabulary.OBJECT_METHODS
_EMPTY = (Lit(None), Many(()), KnownDict(()))


def _added(klass: Klass, attr: str) -> Iterator[tuple[Function, ast.expr, bool]]:
    """What the methods of a class add to a list that its objects keep; each is one object, or a list of them.

    Only a method whose facts say that it may add is walked through: that saves 2 % of a check (69 training
    repositories).
    """
    module = klass.module
    grows = attr in module.counted
    for method in module.methods_of(klass.node).values():
        if not grows and f"self.{attr}.append" not in module.facts[method].calls:
            continue
        for node in nodes(method):
            if isinstance(node, ast.AugAssign) and text_of(node.target) == f"self.{attr}":
                yield method, node.value, True
            elif isinstance(node, ast.Call) and text_of(node.func) == f"self.{attr}.append":
                yield from ((method, one, False) for one in node.args[:1])


_OF_PARAMETERS = frozenset({"data", "T", "mT", "H", "real", "imag", "_local_tensor"})
"""Attributes by which a parameter is changed itself; what code keeps under other names is beside it."""


class Objects:
    """Looks into objects."""

    def __init__(
        self,
        env: Environment,
        known: KnownObjects,
        evaluator: Evaluator,
        names: Names,
        classes: Classes,
        sites: ConstructionSites,
    ) -> None:
        self.env = env
        self.known = known
        self.evaluator = evaluator
        self.names = names
        self.classes = classes
        self.sites = sites
        self.evaluating: set[Key] = set()
        self._made: dict[tuple[Key, ast.expr], Value] = {}
        """By object and call: what the call made when one of its methods was run."""
        self._handed: dict[tuple[Key, ast.ClassDef], dict[str, Value]] = {}
        """By object and class: the arguments of its constructor that only other files tell of."""
        self._with_several_optimizers: dict[ast.ClassDef, bool] = {}
        """By class: whether it makes more than one."""

    def attribute(self, owner: Value, attr: str) -> Value:
        """What a value holds under a name."""
        if isinstance(owner, Thing):
            held = self.of_object(owner, attr)
            if owner.key in self.known.overwritten and isinstance(held, Tensor):
                return replace(held, scaled=None, divided=None)
            return held
        if isinstance(owner, Params):
            if attr == "grad":
                return Grad(owner.keys, owner.some)
            return owner if attr in _OF_PARAMETERS else Tensor()
        if isinstance(owner, Grad):
            return owner
        if isinstance(owner, Tensor):
            if attr == "grad":
                # A computed tensor is not a parameter; one that came from unseen code may be.
                return Grad(frozenset({RESULT}) if owner.roots else frozenset())
            return Tensor() if attr in vocabulary.CUT else owner
        if isinstance(owner, Origin):
            return self.names.attribute(owner, attr)
        if isinstance(owner, Klass):
            for base in self.classes.lineage(owner):
                method = base.method(attr)
                if method is not None:
                    return Fn(method, base.module, attr, None, None, base)
                if inner := base.inner(attr):
                    return inner
        return NOTHING

    def of_object(self, owner: Thing, attr: str) -> Value:
        """What an object holds under a name."""
        key = owner.key.attribute(attr)
        if key in self.env.heap:
            return self.env.heap[key]
        if attr in ("zero_grad", "step") and owner.klass is None:
            return Bound(owner, attr)
        if attr == "grad":
            return Grad(frozenset({owner.key}), leaf=True)
        if attr in ("module", "data", "_orig_mod") and not self.has_own(owner, attr):
            return owner
        if attr in ("optimizer", "_optimizer") and owner.klass is None:
            named = self._by_use(owner.key.shown)
            if Role.OPTIMIZER in (named, self.known.roles.get(owner.key, owner.role)):
                return owner  # what a wrapper of a library wraps
        if attr == "param_groups":
            self.role(owner)
            return Params(frozenset({owner.key}))
        if owner.klass is not None:
            found = self.of_class(owner, owner.klass, attr)
            if found is not None:
                return found
        return Thing(key)

    def has_own(self, owner: Value, attr: str) -> bool:
        """Whether the class of an object gives the object an attribute of this name, whatever the name means in torch."""
        return (
            isinstance(owner, Thing)
            and owner.klass is not None
            and any(
                attr in base.module.attributes_of(base.node)
                for base in self.classes.lineage(owner.klass)
            )
        )

    def keeps(self, owner: Thing, attr: str) -> bool:
        """Whether an object is seen to keep something under this name."""
        return owner.key.attribute(attr) in self.env.heap

    def may_inherit(self, owner: Thing, attr: str) -> bool:
        """Whether an attribute that is called may be a method of a base that cannot be seen, and no model or loss."""
        klass = owner.klass or self.env.frame.klass
        if klass is None or self.classes.is_visible(klass) or vocabulary.is_called_object(attr):
            return False
        bases = self.classes.lineage(klass)
        return not any(attr in one.module.attributes_of(one.node) for one in bases)

    def item(self, owner: Thing, index: str) -> Value:
        """What a collection holds under a key or index, given as source text."""
        key = owner.key.item(index)
        held = self.env.heap.get(key)
        return held if held is not None else Thing(key, owner.role)

    def of_class(self, owner: Thing, klass: Klass, attr: str) -> Value | None:
        """What the methods of a class assign to an attribute, seen from outside its constructor."""
        mark = owner.key.attribute(attr)
        if mark in self.evaluating:
            return None
        self.evaluating.add(mark)
        empty: Value | None = None
        try:
            for base in self.classes.lineage(klass):
                method = base.method(attr)
                if method is not None:
                    if _is_property(method):
                        return self.property_value(owner, base, method)
                    return Fn(method, base.module, attr, owner, None, base)
                if inner := base.inner(attr):
                    return inner
                value = self.assigned(owner, base, attr)
                # An attribute that is empty in one class may get its value in a method of another one.
                if value is not None and value != Lit(None):
                    self.env.heap[mark] = value
                    return value
                empty = value or empty
        finally:
            self.evaluating.discard(mark)
        if empty is not None:
            self.env.heap[mark] = empty
        return empty

    def getter(self, owner: Thing, attr: str) -> Fn | None:
        """The property of an object's class that has this name."""
        for base in self.classes.lineage(owner.klass) if owner.klass is not None else ():
            method = base.method(attr)
            if method is not None:
                getter = Fn(method, base.module, attr, owner, None, base)
                return getter if _is_property(method) else None
        return None

    def property_value(self, owner: Thing, klass: Klass, method: Function) -> Value | None:
        """What a property returns."""
        returns = klass.module.facts[method].returns
        if len(returns) != 1 or not method.args.args:
            return None
        frame = Frame(klass.module, env={method.args.args[0].arg: owner}, klass=klass, owner=owner)
        value = self.evaluator.peek_in(frame, returns[0])
        if value == Lit(None) and isinstance(returns[0], ast.Attribute):
            # It is made when it is first asked for.
            return self.of_class(owner, owner.klass or klass, returns[0].attr) or value
        return value

    def assigned(self, owner: Thing, klass: Klass, attr: str) -> Value | None:
        """What a class itself, without its bases, assigns to an attribute."""
        values: list[Value] = []
        for method, node, index in klass.module.attributes_of(klass.node).get(attr, ()):
            if method is None:
                values.append(self.of_body(owner, klass, node))
            else:
                values.append(self.assigned_in(owner, klass, method, node, index))
        if any(isinstance(value, Many) for value in values):
            values = self.with_added(owner, klass, attr, values)
        values = [value for value in values if value not in _EMPTY] or values
        if not values:
            return None
        # `self.net = DataParallel(self.net)` says nothing about what it was before.
        values = [value for value in values if value != Thing(owner.key.attribute(attr))] or values
        if all(value in (Many(()), KnownDict(())) for value in values):
            return Thing(owner.key.attribute(attr))  # it is filled later
        # Less is known about the result of a wrapper than about what it was handed.
        ranked = sorted(values, key=_unknown)
        key = owner.key.attribute(attr)
        if isinstance(ranked[0], Tensor):
            methods = klass.module.methods.get(f"self.{attr}", frozenset())
            role = _by_use(f"self.{attr}", klass.module, klass) if methods else Role.NONE
            if role or methods & vocabulary.OBJECT_METHODS:
                return Thing(key, role)
        # A count is executed from 0: one that begins elsewhere would be read with wrong windows.
        counted = ranked[0] == Lit(0) and any(
            attr in one.module.counted for one in self.classes.lineage(owner.klass or klass)
        )
        if isinstance(ranked[0], Lit) and (len(values) > 1 or counted):
            return Thing(key)
        steps = {
            one.params
            for one in values
            if isinstance(one, Thing) and one.role is Role.OPTIMIZER and one.params is not None
        }
        if isinstance(ranked[0], Thing) and len(steps) > 1:
            return called(replace(ranked[0], params=None), key)  # of one thing, or of another
        return called(ranked[0], key)

    def with_added(self, owner: Thing, klass: Klass, attr: str, values: list[Value]) -> list[Value]:
        """What an attribute is given; a list with the objects of the project that methods add to it."""
        added: list[Value] = []
        for method, node, is_list in _added(klass, attr):
            value = self.assigned_in(owner, klass, method, node, None)
            added += value.items if is_list and isinstance(value, Many) else (value,)
        added = [item for item in added if isinstance(item, Thing) and item.klass is not None]
        if not added:
            return values
        lists = [value for value in values if isinstance(value, Many)]
        return [value for value in values if value not in lists] + [Many((*lists[0].items, *added))]

    def of_body(self, owner: Thing, klass: Klass, node: ast.expr) -> Value:
        """What the body of a class gives to an attribute: a function there is a method."""
        value = self.evaluator.peek_in(Frame(klass.module), node)
        if isinstance(value, Fn) and value.owner is None and not isinstance(node, ast.Call):
            return replace(value, owner=owner)
        return value

    def assigned_in(
        self, owner: Thing, klass: Klass, method: Function, node: ast.expr, index: int | None
    ) -> Value:
        """What one assignment of a method gives to an attribute."""
        env: dict[str, Value] = {arg.arg: NOTHING for arg in parameters(method)}
        env[method.args.args[0].arg] = owner
        env.update(self.kept_arguments(owner, klass, method))
        frame = Frame(klass.module, scope=owner.key, env=env, klass=klass, owner=owner)
        known = klass.module.facts[method].locals
        for name, value in _locals_before(known, node, node.lineno):
            frame.env[name] = self.made(frame, owner, value)
        value_ = self.made(frame, owner, node)
        if index is None:
            return value_
        if isinstance(value_, Many) and index < len(value_.items):
            return value_.items[index]
        return NOTHING

    def made(self, frame: Frame, owner: Thing, node: ast.expr) -> Value:
        """What an assignment of a method gives: a call makes its objects once, whichever of them is asked for."""
        if not isinstance(node, ast.Call):
            return self.evaluator.peek_in(frame, node)
        known = self._made.get((owner.key, node))
        if known is None:
            known = self.evaluator.peek_in(frame, node)
            if isinstance(known, (Many, Thing)):
                self._made[owner.key, node] = known
        return known

    def kept_arguments(self, owner: Thing, klass: Klass, method: Function) -> dict[str, Value]:
        """Arguments that a method stores, by the attribute that holds each, with the class that it has to have."""
        formal = {arg.arg: arg for arg in parameters(method)}
        held = self.holders(klass, method)
        kept = {
            name: Thing(
                owner.key.attribute(attr), klass=self.class_of_argument(klass, method, formal[name])
            )
            for name, attr in held.items()
        }
        if method.name == "__init__" and _trains_by(klass, held.values()):
            if (owner.key, klass.node) not in self._handed:
                unknown = [name for name, one in kept.items() if one.klass is None]
                self._handed[owner.key, klass.node] = self._made_elsewhere(
                    owner, klass, method, unknown
                )
            return kept | self._handed[owner.key, klass.node]
        return dict(kept)

    def _made_elsewhere(
        self, owner: Thing, klass: Klass, method: Function, names: list[str]
    ) -> dict[str, Value]:
        """The objects that a constructor gets, if other files are seen to hand it objects of one class."""
        found: dict[str, Value] = {}
        for name in names:
            given = self.sites.given(klass, method, name)
            if len(self.sites.classes(given)) == 1:
                values = (self._evaluated(owner, one) for one in given)
                known = (one for one in values if isinstance(one, Thing) and one.klass is not None)
                found.update((name, replace(one, made=False)) for one in islice(known, 1))
        return found

    def _evaluated(self, owner: Thing, given: Given) -> Value:
        """What another file hands a constructor."""
        frame = Frame(given.module, scope=owner.key.item(f"made in line {given.line}"))
        if given.function is not None:
            frame.env.update(dict.fromkeys(parameter_names(given.function), NOTHING))
        known = given.module.facts[given.function or given.module.tree].locals
        for name, value in _locals_before(known, given.value, given.line):
            if isinstance(value, ast.Constant) and value.value is None:
                continue  # what it is where it is not made
            made = self.made(frame, owner, value)
            if isinstance(made, Tensor) and given.module.methods.get(name, _NONE) & _OF_OBJECTS:
                made = Thing(frame.variable(name))
            frame.env[name] = made
        return self.made(frame, owner, given.value)

    def holders(self, klass: Klass, method: Function) -> dict[str, str]:
        """The attribute that holds each argument which a method stores, itself or in the method of a base."""
        kept = self.classes.known.kept
        known = kept.get(method)
        if known is None:
            kept[method] = {}
            formal = set(parameter_names(method))
            me = method.args.args[0].arg
            stored = klass.module.facts[method].stored
            known = {name: attr for name, holder, attr in stored if holder == me and name in formal}
            used = {
                name: attr
                for name, attr in known.items()
                if klass.module.methods.get(f"{me}.{attr}", _NONE) & vocabulary.HELD_METHODS
            }
            if used and klass.node.bases:
                known |= self._held_by_bases(klass, method, used)
            kept[method] = known
        return known

    def _held_by_bases(
        self, klass: Klass, method: Function, names: Container[str]
    ) -> dict[str, str]:
        """What the method of the same name in a base stores of the arguments that it is handed."""
        calls = [
            call for call in calls_in(*method.body) if getattr(call.func, "attr", "") == method.name
        ]
        if not any(isinstance(one, ast.Name) and one.id in names for one in _given(calls)):
            return {}
        for node in klass.node.bases:
            base = self.names.class_of(klass.module, node, anyway=True)
            inherited = base.method(method.name) if base is not None else None
            if base is not None and inherited is not None and inherited.args.args:
                held = self.holders(base, inherited)
                pairs = (pair for call in calls for pair in _handed_up(call, inherited))
                return {name: held[arg] for arg, name in pairs if arg in held and name in names}
        return {}

    def leaves_gradients_alone(self, klass: Klass) -> bool:
        """Whether the unseen bases of a class leave gradients alone: their files do not mention gradients."""
        known = self.classes.known.silent
        if klass.node not in known:
            opened = [
                self.names.class_of(part.module, node, anyway=True)
                for part, node in self.classes.unseen_bases(klass)
            ]
            known[klass.node] = all(
                base is not None and self.classes.is_visible(base) for base in opened
            )
        return known[klass.node]

    def holds_stepped(self, owner: Value, deep: int = 0) -> bool:
        """Whether an object of the project keeps a module that an optimizer is known to step, or an object that does."""
        if not isinstance(owner, Thing) or owner.klass is None or deep > DEEPEST_WRAPPER:
            return False
        names, _ = self.classes.members(owner.klass)
        held = (self.env.heap.get(owner.key.attribute(name), NOTHING) for name in names)
        return any(self.is_stepped(one) or self.holds_stepped(one, deep + 1) for one in held)

    def parts(self, module: Key) -> list[Key]:
        """What a module of the project is seen to build for itself."""
        klass = self.known.classes.get(module)
        names = [
            attr
            for base in (self.classes.lineage(klass) if klass is not None else ())
            for attr, given in base.module.attributes_of(base.node).items()
            if any(isinstance(value, ast.Call) for _, value, _ in given)
        ]
        return [module.attribute(name) for name in dict.fromkeys(names)]

    def class_of_argument(self, klass: Klass, method: Function, arg: ast.arg) -> Klass | None:
        """The class of the project that an annotation or an assertion demands of an argument."""
        asked = arg.annotation
        for node in method.body if asked is None else ():
            if isinstance(node, ast.Assert):
                asked = asked or _asserted(node.test, arg.arg)
        if asked is None:
            return None
        # Where several optimizers share a module, it matters what its forward uses.
        return self.names.class_of(klass.module, asked, anyway=self.has_several_optimizers(klass))

    def has_several_optimizers(self, klass: Klass) -> bool:
        """Whether a class makes more than one optimizer."""
        several = self._with_several_optimizers.get(klass.node)
        if several is None:
            several = self._with_several_optimizers[klass.node] = _makes_several(klass)
        return several

    def is_stepped(self, value: Value) -> bool:
        """Whether an optimizer is known to step a module, a part of it, or what it is a part of."""
        if not isinstance(value, Thing) or value.role:
            return False
        return self.known.is_stepped(value.key)

    def role(self, thing: Thing, node: ast.expr | None = None) -> Role:
        """The role of an object, from where it was made or from how the file uses it."""
        roles = self.known.roles
        if thing.params is not None:
            self.known.params[thing.key] = thing.params
        if thing.role:
            roles.setdefault(thing.key, thing.role)
            return thing.role
        if thing.key in roles:
            return roles[thing.key]
        role = Role.NONE
        if thing.klass is not None:
            role = self.classes.role(thing.klass)
        elif node is not None:
            role = self._by_use(text_of(node))
        if role:
            roles[thing.key] = role
        if role is Role.OPTIMIZER and thing.key in self.known.own_steps:
            self.known.params.setdefault(thing.key, self.known.own_steps[thing.key])
        return role

    def is_used_as_optimizer(self, value: Value) -> bool:
        """Whether an object is known to be an optimizer, or the file uses what has its name as one."""
        if not isinstance(value, Thing):
            return False
        return (self.role(value) or self._by_use(str(value.key))) is Role.OPTIMIZER

    def used_as(self, node: ast.expr) -> Role:
        """The role in which the file uses a name, whatever it was given."""
        text = text_of(node)
        return self._by_use(text) if self.env.frame.module.methods.get(text) else Role.NONE

    def _by_use(self, text: str) -> Role:
        return _by_use(text, self.env.frame.module, self.env.frame.klass)


def _is_property(method: Function) -> bool:
    return any(text_of(d).endswith("property") for d in method.decorator_list)


def _unknown(value: Value) -> int:
    """How little is known of a value: 0 if it has a role, 1 if that is `OTHER` or `TAKEN`, 2 if it only has a class, else 3."""
    if not isinstance(value, Thing):
        return 3
    if value.role:
        return int(value.role in (Role.OTHER, Role.TAKEN))
    return 2 + (value.klass is None)


def _by_use(text: str, module: Module, klass: Klass | None) -> Role:
    """The role of an object, by its name and by what the file calls on it.

    An object that nothing clears may be of a class of the file that is only named like an optimizer.
    """
    methods = module.methods.get(text, frozenset())
    role = vocabulary.role_of_use(text, methods)
    if role is not Role.OPTIMIZER or "zero_grad" in methods:
        return role
    strangers = module.called_like_optimizers
    inside = klass is not None and klass.node in strangers
    return role if inside or not strangers else Role.NONE


def _makes_several(klass: Klass) -> bool:
    given = klass.module.attributes_of(klass.node).values()
    made = [
        value
        for values in given
        for _, value, _ in values
        if isinstance(value, ast.Call)
        and vocabulary.role_of_call(text_of(value.func)) is Role.OPTIMIZER
    ]
    return len(made) > 1


def _asserted(test: ast.expr, name: str) -> ast.expr | None:
    """The class of `isinstance(name, Class)`."""
    if not isinstance(test, ast.Call) or text_of(test.func) != "isinstance" or len(test.args) != 2:
        return None
    held, asked = test.args
    return asked if isinstance(held, ast.Name) and held.id == name else None


_Locals = Mapping[str, list[tuple[int, int, str, ast.expr]]]


def _locals_before(known: _Locals, node: ast.expr, end: int) -> list[tuple[str, ast.expr]]:
    """The simple local variables from which an expression is built, directly or not, in order."""
    found: dict[str, list[tuple[int, int, str, ast.expr]]] = {}
    todo = [node] if known else []
    while todo:
        for inner in nodes(todo.pop()):
            if isinstance(inner, ast.Name) and inner.id in known and inner.id not in found:
                found[inner.id] = known[inner.id]
                todo += [value for _, _, _, value in known[inner.id]]
    ordered = sorted((one for some in found.values() for one in some), key=lambda one: one[0])
    return [(name, value) for _, line, name, value in ordered if line < end]


def _trains_by(klass: Klass, attrs: Iterable[str]) -> bool:
    """Whether a class calls a method of such an attribute of its objects which trains: `self.critic.reinforce(loss)`."""
    names = {f"self.{attr}.{name}" for attr in attrs for name in TRAINING}
    methods = klass.module.methods_of(klass.node).values()
    return any(not names.isdisjoint(klass.module.facts[method].calls) for method in methods)
