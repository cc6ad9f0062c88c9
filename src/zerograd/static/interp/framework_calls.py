"""Does what the tables of the libraries say: their calls become acts and values."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from zerograd.core.events import Step, Unscale
from zerograd.core.records import dataclass, replace
from zerograd.core.training_loop import NotFollowed
from zerograd.explore.flow import Alt, Seq, Set, find
from zerograd.explore.logic import WINDOW_LENGTH, Const, Synchronises
from zerograd.static.frameworks import registry
from zerograd.static.frameworks.table import (
    CALLED,
    Clears,
    Divided,
    Effect,
    Gives,
    HandsBack,
    LibraryCall,
    MayTouch,
    On,
    Prepares,
    Restores,
    ResultOf,
    Role,
    RunsBackward,
    Steps,
    Unscales,
    Updates,
    Whose,
)
from zerograd.static.interp.conditions import Conditions
from zerograd.static.interp.constructors import Constructors
from zerograd.static.interp.effects import NOBODY, Effects, is_constant, keyword
from zerograd.static.interp.emitter import Act, Emitter, Gate
from zerograd.static.interp.environment import KnownObjects
from zerograd.static.interp.evaluator import Evaluator
from zerograd.static.interp.functions import Activations
from zerograd.static.interp.objects import Objects
from zerograd.static.read.keys import Key
from zerograd.static.read.syntax_tree import last_name, text_of
from zerograd.static.read.values import (
    NOTHING,
    Fn,
    Klass,
    KnownDict,
    Lit,
    Many,
    Origin,
    Params,
    Tensor,
    Thing,
    Value,
    mix,
    roots,
)


@dataclass(eq=False)
class FrameworkCalls:
    """Handles calls that a table knows."""

    emitter: Emitter
    known: KnownObjects
    gate: Gate
    evaluator: Evaluator
    objects: Objects
    conditions: Conditions
    effects: Effects
    constructors: Constructors
    activations: Activations

    def method(self, node: ast.Call, func: ast.Attribute, owner: Value) -> Value | None:
        """`x.name(…)`; None if no table knows it."""
        arguments = None
        for call in registry.calls_named(func.attr):
            mine = self.constructors.as_object(owner, func.value) if call.always else owner
            if self._is_on(call, func, mine):
                if arguments is None:
                    arguments = self.evaluator.arguments(node)
                if self._is_handed(call, node, arguments):
                    return self.perform(call, node, mine, arguments)
        return None

    def function(self, node: ast.Call, name: str) -> Value | None:
        """`name(…)` of a library; None if no table knows it."""
        for call in registry.calls_named(last_name(name)):
            if call.on is On.MODULE:
                arguments = self.evaluator.arguments(node)
                if self._is_handed(call, node, arguments):
                    return self.perform(call, node, None, arguments)
        return None

    def called(self, node: ast.Call, role: Role, arguments: list[Value]) -> Value | None:
        """A call of an object of this role; None if no table knows it."""
        call = registry.call_on(CALLED, role)
        if call is None or len(arguments) < call.arguments:
            return None
        if any(isinstance(one, Params) for one in arguments[: len(node.args)]):
            return None  # libraries take them by name: it is a class of somebody else, which may do more
        second = arguments[1]
        if isinstance(arguments[0], Lit) or (isinstance(second, Tensor) and second.roots):
            return None  # the name of a loss, or a second loss: there is no optimizer to step
        return self.perform(call, node, None, arguments)

    def _is_on(self, call: LibraryCall, func: ast.Attribute, owner: Value) -> bool:
        """Whether the object of a method is the one that the table asks for."""
        if call.on is On.ANYTHING:
            return True
        if call.on is On.MODULE:
            return isinstance(owner, Origin)
        if not isinstance(owner, Thing):
            return call.on is On.UNSEEN and not call.needs_owner
        if not call.always:
            method = self.objects.attribute(owner, func.attr)
            if isinstance(method, (Fn, Klass)):
                return False
            if call.on is On.UNSEEN:
                return True
            if isinstance(method, Thing) and self.objects.keeps(owner, func.attr):
                return False
        return self.objects.role(owner, func.value) is call.on

    def _is_handed(self, call: LibraryCall, node: ast.Call, arguments: list[Value]) -> bool:
        """Whether a call has the arguments that the table asks for, and that its effects need."""
        if call.on is On.MODULE and call.steps_first and node.args and arguments:
            # Whatever an unseen function returned: what a library steps is an optimizer.
            arguments[0] = self.constructors.as_optimizer(arguments[0], node.args[0])
        if call.needs_first and not (arguments and isinstance(arguments[0], Thing)):
            return False
        return call.given is None or self.is_given(call.given, node, arguments)

    def is_given(self, role: Role, node: ast.Call, arguments: list[Value]) -> bool:
        """Whether the first argument of a call is an object of this role."""
        first = arguments[0] if arguments else None
        if not isinstance(first, Thing):
            return False
        source = node.args[0] if node.args else node.keywords[0].value
        return self.objects.role(first, source) is role

    def perform(
        self, call: LibraryCall, node: ast.Call, owner: Value | None, arguments: list[Value]
    ) -> Value:
        """Emits the effects of a call, and returns its value."""
        for effect in call.does:
            self._do(effect, node, owner, arguments)
        if isinstance(call.gives, ResultOf):
            return self._configured(owner, call) if isinstance(owner, Thing) else NOTHING
        if isinstance(call.gives, HandsBack):
            return _handed_back(call.gives, node, arguments)
        if call.gives is Gives.UNKNOWN:
            return Tensor()
        if call.gives is Gives.ARGUMENTS:
            return unwrapped(arguments[: len(node.args)])
        if call.gives is Gives.SCALED_LOSS:
            scaled = None if self._is_disabled(owner) else True
            if arguments and isinstance(arguments[0], Tensor):
                return replace(arguments[0], scaled=scaled)
            return replace(mix(arguments[:1]), scaled=scaled, divided=None)
        return Lit(None)

    def _do(
        self, effect: Effect, node: ast.Call, owner: Value | None, arguments: list[Value]
    ) -> None:
        if isinstance(effect, RunsBackward):
            if not is_constant(keyword(node, effect.unless), True):
                self._backward(effect, node, owner, arguments)
        elif isinstance(effect, Steps):
            for thing in _objects(effect.whose, owner, arguments):
                for key in self._stepped_by(thing):
                    self._step(effect, node, key, owner)
        elif isinstance(effect, Clears):
            flag = keyword(node, effect.flag) or (node.args[0] if node.args else None)
            if not effect.flag or (flag is not None and not is_constant(flag, False)):
                for thing in _objects(effect.whose, owner, arguments):
                    self.effects.clear(thing, node, to_none=True)
        elif isinstance(effect, Unscales):
            self._unscale(node, owner, arguments)
        elif isinstance(effect, Updates):
            self.effects.update(node, _scaler(owner))
        elif isinstance(effect, MayTouch):
            things = _objects(effect.whose, owner, arguments)
            if things or effect.whose is Whose.ANYONE:
                keys = frozenset(thing.key for thing in things)
                self.effects.unseen(node, keys, NotFollowed.UNSEEN_CALL)
        elif isinstance(effect, Restores):
            if node.args and isinstance(node.args[0], (ast.Name, ast.Attribute, ast.Subscript)):
                self.effects.restored(node, roots(owner)[0])  # a snapshot, not a file
        else:
            self._prepare(effect, node, arguments)

    def _backward(
        self, effect: RunsBackward, node: ast.Call, owner: Value | None, arguments: list[Value]
    ) -> None:
        tensor = replace(mix(arguments[:1]), scaled=None)
        if effect.divided is Divided.BY_WINDOW and self.gate.accumulating:
            tensor = replace(tensor, divisor=WINDOW_LENGTH, divided=True)
        elif effect.divided is not Divided.BY_CODE:
            tensor = replace(tensor, divided=None)
        whose = roots(owner)[0] if effect.fills_owner else NOBODY
        self.effects.backward(node, tensor, whose, wrapped=effect.required, unknown=effect.unknown)

    def _is_disabled(self, scaler: Value | None) -> bool:
        """Whether a scaler was made to do nothing: `GradScaler(enabled=False)`."""
        return isinstance(scaler, Thing) and self.known.enabled.get(scaler.key) is False

    def _unscale(self, node: ast.Call, scaler: Value | None, arguments: list[Value]) -> None:
        if self._is_disabled(scaler):
            return
        for target in _each(arguments[0]) if arguments else ():
            keys = roots(target)[0]
            if isinstance(target, Thing):
                keys = frozenset(self._stepped_by(target))
            self.effects.act_on(Unscale, node, keys, scaled=True)
        if not arguments:
            self.effects.act_on(Unscale, node, NOBODY, may=True)

    def _stepped_by(self, thing: Thing) -> list[Key]:
        """The optimizers that an object steps: itself, or those its class hands its step on to."""
        method = self.objects.attribute(thing, "step") if thing.klass is not None else None
        if not isinstance(method, Fn) or self.objects.classes.is_optimizer_method(method):
            return [thing.key]
        flow = self.activations.effects_of(method, thing)
        acts = find(flow, Act)
        steps = (act for act in acts if isinstance(act.event, Step))
        found = [key for act in steps for key in sorted(act.whose, key=str)]
        return list(dict.fromkeys(found)) or [thing.key]

    def _step(self, effect: Steps, node: ast.Call, key: Key, owner: Value | None) -> None:
        test = keyword(node, *effect.when)
        scaler = _scaler(owner) if effect.scaled else None
        scaled = None if self._is_disabled(owner) else effect.scaled
        if test is None:
            self.effects.step(node, key, scaled=scaled, scaler=scaler, ahead=effect.ahead)
            return
        out = self.emitter.divert()
        self.effects.step(node, key, scaled=scaled, scaler=scaler)
        flow = Seq(tuple(self.emitter.restore(out)))
        decision = self.conditions.expression(test)
        self.emitter.add(Alt(decision, flow, Seq(()), self.emitter.site(node)))

    def _prepare(self, effect: Prepares, node: ast.Call, arguments: list[Value]) -> None:
        """What is prepared is gated, and its backward has to be run by who prepared it."""
        name = text_of(node.func.value) if isinstance(node.func, ast.Attribute) else ""
        for argument in arguments:
            for item in argument.items if isinstance(argument, Many) else (argument,):
                if isinstance(item, Thing):
                    self.known.prepared[item.key] = name
        self.emitter.add(Set(Synchronises(name), Const(True)))

    def _configured(self, owner: Thing, call: LibraryCall) -> Value:
        """The optimizers that a method of the same object returns, without their schedulers."""
        assert isinstance(call.gives, ResultOf)
        key = owner.key.attribute(f"{call.name}()")
        method = self.objects.attribute(owner, call.gives.method)
        found = self.activations.returned(method, owner) if isinstance(method, Fn) else NOTHING
        if isinstance(found, Many) and found.items and isinstance(found.items[0], Many):
            found = found.items[0]
        items = [
            _optimizer_in(item) for item in (found.items if isinstance(found, Many) else (found,))
        ]
        known = [
            replace(item, key=key.item(str(i)), made=False) for i, item in enumerate(items) if item
        ]
        if not known or len(known) != len(items):
            return Thing(key, Role.OPTIMIZER)
        return Many(tuple(known)) if len(known) > 1 else replace(known[0], key=key)


def _scaler(owner: Value | None) -> Key | None:
    """The scaler that is asked to do something."""
    return owner.key if isinstance(owner, Thing) else None


def _objects(whose: Whose, owner: Value | None, arguments: list[Value]) -> list[Thing]:
    """The objects that a call does something to."""
    if whose is Whose.OWNER:
        found = [owner]
    elif whose is Whose.SECOND:
        found = [*arguments[1:2]]
    else:
        found = [*arguments[:1]] if whose is not Whose.ANYONE else []
    if whose is Whose.EACH_OF_FIRST:
        found = [item for value in arguments[:1] for item in _each(value)]
    return [value for value in found if isinstance(value, Thing)]


def _handed_back(gives: HandsBack, node: ast.Call, arguments: list[Value]) -> Value:
    """The arguments of a call, in the order of the parameters."""
    named = {
        kw.arg: value for kw, value in zip(node.keywords, arguments[len(node.args) :], strict=True)
    }
    given = dict(zip(gives.parameters, arguments[: len(node.args)], strict=False)) | named
    return Many(tuple(given.get(name, NOTHING) for name in gives.parameters))


def _each(value: Value) -> Iterator[Value]:
    """The items of a collection, or the value itself."""
    if isinstance(value, Many):
        for item in value.items:
            yield from _each(item)
    else:
        yield value


def _optimizer_in(value: Value) -> Thing | None:
    if isinstance(value, KnownDict):
        value = next((item for name, item in value.items if name == "optimizer"), NOTHING)
    return value if isinstance(value, Thing) and value.role is Role.OPTIMIZER else None


def unwrapped(given: list[Value]) -> Value:
    """What a wrapper returns: each object it was handed, or the one."""
    given = [value for value in given if not isinstance(value, Lit)]
    return given[0] if len(given) == 1 else Many(tuple(given))
