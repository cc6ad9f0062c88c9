"""Functions and classes of the project: interpreted in place, with the values they are handed."""

from __future__ import annotations

import ast
from collections.abc import Mapping
from types import MappingProxyType

from zerograd.core.records import dataclass, replace
from zerograd.core.training_loop import NotFollowed
from zerograd.explore.flow import Block, Flow, Return, Seq, Set
from zerograd.explore.logic import Const, Expr, Name
from zerograd.static.frameworks import registry
from zerograd.static.frameworks.table import Role
from zerograd.static.interp.call_graph import CallGraph
from zerograd.static.interp.conditions import Conditions
from zerograd.static.interp.constructors import Constructors
from zerograd.static.interp.effects import Effects, is_constant
from zerograd.static.interp.emitter import Emitter
from zerograd.static.interp.environment import Environment, KnownObjects, Mode, Nesting
from zerograd.static.interp.evaluator import Evaluator
from zerograd.static.interp.names import Names
from zerograd.static.interp.objects import Classes, Objects
from zerograd.static.read import vocabulary
from zerograd.static.read.keys import Key, local
from zerograd.static.read.module import Module
from zerograd.static.read.syntax_tree import last_name, nodes, parameter_names, parameters, text_of
from zerograd.static.read.values import (
    NOTHING,
    Fn,
    Frame,
    Klass,
    Lit,
    Many,
    Origin,
    Params,
    Tensor,
    Thing,
    Value,
    is_object,
    join,
    parameters_of,
    parts,
    roots,
)


@dataclass(eq=False)
class Activations:
    """Enters functions and leaves them."""

    env: Environment
    emitter: Emitter
    nesting: Nesting
    mode: Mode
    evaluator: Evaluator
    names: Names
    answer: Name | None = None
    """What holds the answer of the function that was left last."""

    def flow_of(self, fn: Fn) -> Flow:
        """A function as a flow, its parameters unknown."""
        node = fn.node
        values: dict[str, Value] = {
            arg.arg: self._unknown_argument(fn.module, arg) for arg in parameters(node)
        }
        if isinstance(fn.owner, Thing) and node.args.args:
            values[node.args.args[0].arg] = fn.owner
        out = self.emitter.divert()
        self.enter(fn, values, {})
        return Seq(tuple(self.emitter.restore(out)))

    def enter(
        self,
        fn: Fn,
        values: dict[str, Value],
        aliases: dict[str, Key],
        tests: Mapping[str, Expr] = MappingProxyType({}),
        statements: list[ast.stmt] | None = None,
    ) -> Value:
        """Interprets a function's body in a new frame; the value is that of the function.

        `tests` are the arguments that are tests themselves: `update=(i + 1) % n == 0`. `statements` are the body,
        if not as it is written.
        """
        number = self.nesting.number()
        node = fn.node
        root = self.env.frame is self.env.top and not self.nesting.stack and not self.emitter.out
        call = 0 if root else number
        assigned = frozenset(fn.module.facts[node].assigned)
        frame = Frame(
            fn.module,
            None,
            fn.frame,
            dict(values),
            aliases,
            assigned | frozenset(values),
            fn.owner,
            fn.klass,
            call=call,
        )
        for name in assigned:
            frame.aliases.pop(name, None)
        caller = self.env.enter(frame)
        self.nesting.stack.append(node)
        self.nesting.inlined.add(node)
        self.nesting.path_of[node] = fn.module.path
        mode = self.mode
        state = (mode.in_parameters, mode.some, mode.unguarded, mode.no_grad)
        mode.in_parameters, mode.some, mode.unguarded = False, False, True
        try:
            if isinstance(node, ast.Lambda):
                return self.evaluator.value(node.body)
            if any(text_of(d).rstrip("()").endswith(registry.NO_GRAD) for d in node.decorator_list):
                mode.no_grad += 1
            for name, value in values.items():
                if isinstance(value, Lit):
                    self.emitter.add(Set(Name(name, call), Const(value.value)))
            for name, test in tests.items():
                self.emitter.add(Set(Name(name, call), test))
            if call and _answers(fn.module.facts[node].returns):
                frame.answer = Name(f"what {node.name}() gives back", call)
                self.emitter.add(Set(frame.answer, Const(None)))  # where it comes to its end
            body = self.evaluator.collect(node.body if statements is None else statements)
            self.emitter.add(Block(body, Return(call)))
            # A factory may return an optimizer or its scheduler: what is stepped is the optimizer.
            made = [one for one in frame.returns if _is_optimizer(one)]
            return join(made or frame.returns) if frame.returns else Lit(None)
        finally:
            mode.in_parameters, mode.some, mode.unguarded, mode.no_grad = state
            self.nesting.stack.pop()
            self.env.frame = caller
            self.answer = frame.answer

    def returned(self, fn: Fn, owner: Thing) -> Value:
        """What a method returns, without its effects."""
        return self._look_into(fn, owner)[0]

    def effects_of(self, fn: Fn, owner: Thing) -> Flow:
        """What a method does, without doing it."""
        return self._look_into(fn, owner)[1]

    def _look_into(self, fn: Fn, owner: Thing) -> tuple[Value, Flow]:
        if fn.node in self.nesting.stack or not fn.node.args.args:
            return NOTHING, Seq(())
        before = self.emitter.silence()
        try:
            value = self.enter(fn, {fn.node.args.args[0].arg: owner}, {})
            return value, Seq(tuple(self.emitter.out))
        finally:
            self.emitter.resume(before)

    def _unknown_argument(self, module: Module, arg: ast.arg) -> Value:
        """A parameter of a root: only its annotation says what it holds."""
        key = local(arg.arg)
        if arg.annotation is None:
            return Thing(key)
        note = text_of(arg.annotation)
        if "Optimizer" in note and "List" not in note and "[" not in note:
            return Thing(key, Role.OPTIMIZER)
        return Thing(key, klass=self.names.class_of(module, arg.annotation))


DEEPEST_CALL = 10


@dataclass(eq=False)
class Functions:
    """Interprets functions where they are called."""

    env: Environment
    emitter: Emitter
    known: KnownObjects
    nesting: Nesting
    evaluator: Evaluator
    names: Names
    classes: Classes
    objects: Objects
    graph: CallGraph
    conditions: Conditions
    effects: Effects
    constructors: Constructors
    activations: Activations

    def construct(self, node: ast.Call, klass: Klass) -> Value:
        """An object of a project's class; its constructor is interpreted where it matters."""
        arguments = self.evaluator.arguments(node)
        role = self.classes.role(klass)
        if role is Role.OPTIMIZER:
            if not self.classes.defines(klass, "step"):
                return self.constructors.make(node, klass.name, role, arguments, klass)
            role, params = Role.NONE, parameters_of(arguments[0]) if arguments else None
        else:
            params = None
        key = self.env.frame.new_key(node)
        thing = Thing(key, role, params, klass, made=True)
        self.known.fresh.add(key)
        self.effects.announce(node, key)
        for base in self.classes.lineage(klass):
            init = base.method("__init__")
            if init is not None:
                fn = Fn(init, base.module, "__init__", thing, None, base)
                if (
                    self.graph.class_touches_gradients(klass)
                    or any(map(self._steps, arguments))
                    or any(map(self.objects.is_stepped, arguments))
                    or self._collects(klass)
                    or self.shares_models(arguments)
                ):
                    self.call(fn, node, arguments, force=True)
                break
        else:
            # A record: losses run through it to what computed its fields.
            fields = {one for argument in arguments for part in roots(argument) for one in part}
            inner = (self.known.holds.get(one, ()) for one in fields)
            self.known.holds[key] = fields.union(*inner)
        for argument in arguments:
            self.known.hand_on(argument)
        return thing

    def call(
        self,
        fn: Fn,
        node: ast.Call,
        arguments: list[Value] | None = None,
        force: bool = False,
    ) -> Value:
        """Interprets the body of a function of the project with the values it is handed."""
        if arguments is None:
            arguments = self.evaluator.arguments(node)
        self.nesting.answers.pop(node, None)
        facts = fn.module.facts[fn.node]
        visible = self.can_enter(fn) and not facts.yields
        wanted = (
            force
            or self.graph.touches_gradients(fn)
            or self.graph.subclass_touches_gradients(fn)
            or _gives_optimizer(fn)
            or self.graph.steps_through(facts.called, arguments)
            or self._holds_what_steps(fn)
            or self._calls_by_name(fn, arguments)
            or self._keeps(fn, arguments)
            or self._counts(fn)
            or self._hands_on(fn, arguments)
            or (bool(facts.returns) and any(map(self.known.is_optimizer, arguments)))
        )
        if not visible or not wanted or self.emitter.quiet > 3:
            if wanted and not self.emitter.quiet:
                gap = NotFollowed.UNFOLLOWED_CALL
                self.effects.hand_to_unseen(node, arguments, fn.name, gap)
            elif any(map(vocabulary.RUNS_BACKWARD.search, self._called_outside(fn))):
                self.effects.note_unseen(node, arguments, fn.name)
            held = self._held(fn)
            if held is not None:
                return held
            used = self._attributes_used(fn) | self._globals_called(fn)
            # Without gradients, what a result runs through does not matter.
            if visible and not (wanted or self.effects.mode.no_grad) and self.emitter.quiet <= 3:
                computes = facts.returns and (used or _differ(arguments))
                computes = computes and self._has_several_optimizers()
                if computes or self.runs_models([*arguments, *map(Thing, used)]):
                    return self.result(fn, node, arguments)
            result = self.effects.result_of([], arguments, used, node)
            if any(name.endswith(".scale") for name in facts.calls):
                result = replace(result, scaled=None)
                if isinstance(fn.owner, Thing) and _overwrites(fn):
                    self.known.overwritten.add(fn.owner.key)
            left_open = not facts.returns and not isinstance(fn.node, ast.Lambda)
            return replace(result, divided=None) if facts.divides or left_open else result
        self._decorate(fn, node, arguments)
        values, aliases, tests = self._bind(fn, node, arguments)
        self.nesting.call_sites[fn.node] = self.emitter.site(node)
        try:
            returned = self.activations.enter(fn, values, aliases, tests)
        finally:
            del self.nesting.call_sites[fn.node]
        if self.activations.answer is not None:
            self.nesting.answers[node] = self.activations.answer
        if isinstance(returned, Origin):
            return returned  # a class, of which the caller makes an object
        if not is_object(returned) and vocabulary.role_of_call(fn.name) is Role.OPTIMIZER:
            # It looks its class up in a table: `REGISTRY[name](params)`.
            made = self.constructors.make(node, fn.name, Role.OPTIMIZER, arguments)
            return self._of_factory(made, _asked_parameters(fn, values))
        return self._of_factory(returned, arguments) if _gives_optimizer(fn) else returned

    def _called_outside(self, fn: Fn) -> set[str]:
        """The last names of what a function calls, and its file does not define."""
        called = fn.module.facts[fn.node].called - fn.module.functions.keys()
        return {name for name in called if not fn.module.methods_named(name)}

    def _decorate(self, fn: Fn, node: ast.Call, arguments: list[Value]) -> None:
        """What a decorator around a function may do to what the function is handed."""
        for decorator in getattr(fn.node, "decorator_list", ()):
            called = decorator.func if isinstance(decorator, ast.Call) else decorator
            name = last_name(text_of(called))
            made = self.evaluator.peek_in(Frame(fn.module), called)
            if isinstance(made, Fn):
                wraps = self.graph.touches_gradients(made)
            elif isinstance(made, Origin) and made.name.startswith("torch."):
                wraps = False
            else:
                wraps = vocabulary.meddles(name) and registry.context_named(name) is None
            if wraps:
                given = [*arguments, fn.owner] if fn.owner is not None else arguments
                gap = NotFollowed.UNFOLLOWED_CALL
                for item in (one for value in given for one in parts(value)):
                    if isinstance(item, Thing):
                        self.effects.unknown(node, item.key, gap)

    def can_enter(self, fn: Fn) -> bool:
        """Whether a function is not entered already, and not too deep in others."""
        stack = self.nesting.stack
        return len(stack) < DEEPEST_CALL and fn.node not in stack

    def enter(self, fn: Fn, node: ast.Call, statements: list[ast.stmt]) -> Value:
        """Interprets these statements as the body of a function, with the values that a call hands it."""
        values, aliases, tests = self._bind(fn, node, self.evaluator.arguments(node))
        return self.activations.enter(fn, values, aliases, tests, statements)

    def runs_models(self, arguments: list[Value]) -> bool:
        """Whether there are several optimizers, and a function gets a module of one: it matters what its result runs through."""
        return self._has_several_optimizers() and any(map(self.objects.is_stepped, arguments))

    def shares_models(self, arguments: list[Value]) -> bool:
        """Whether there are several optimizers, and a new object may be handed their modules: its losses run through them."""
        objects = any(isinstance(one, Thing) and not one.role for one in arguments)
        return objects and self._has_several_optimizers()

    def _has_several_optimizers(self) -> bool:
        klass = self.env.frame.klass
        roles = (self.known.roles.get(key) for key in self.known.params)
        return sum(role is Role.OPTIMIZER for role in roles) > 1 or (
            klass is not None and self.objects.has_several_optimizers(klass)
        )

    def _of_factory(self, made: Value, arguments: list[Value]) -> Value:
        """An optimizer that a factory makes steps the parameters that the factory is handed, or fewer."""
        if not isinstance(made, Thing) or made.role is not Role.OPTIMIZER or made.params:
            return made
        given = [argument for argument in arguments if isinstance(argument, Params)]
        if len(given) != 1:
            return made
        params = self.known.params[made.key] = parameters_of(given[0])
        return replace(made, params=params)

    def _steps(self, value: Value) -> bool:
        """Whether a function, an object of a class, or one of several does something to gradients."""
        for part in parts(value):
            if isinstance(part, Fn) and self.graph.touches_gradients(part):
                return True
            if isinstance(part, Thing) and part.klass is not None:
                if self.graph.class_touches_gradients(part.klass):
                    return True
        return False

    def _calls_by_name(self, fn: Fn, arguments: list[Value]) -> bool:
        """Whether a function is handed the name of a method that does something to gradients: `each("zero_grad")`.

        It is one of an optimizer, of the object of the function, or of one that this keeps:
        `getattr(callback, f"on_{name}")(self)`.
        """
        facts = fn.module.facts[fn.node]
        if "getattr" not in facts.called:
            return False
        literals = (one.value for one in arguments if isinstance(one, Lit))
        ends = tuple(one for one in literals if isinstance(one, str) and one)
        if not vocabulary.HELD_METHODS.isdisjoint(ends):
            return True
        if not isinstance(fn.owner, Thing):
            return False
        kept = (self.objects.attribute(fn.owner, attr) for attr in self._mentioned(fn))
        owners = [fn.owner, *(part for value in kept for part in parts(value))]
        return any(
            method.name.endswith(ends) and self.graph.touches_gradients(method)
            for owner in (owners if ends else ())
            if isinstance(owner, Thing) and owner.klass is not None
            for base in self.classes.lineage(owner.klass)
            for method in self.classes.methods(base)
        )

    def _mentioned(self, fn: Fn) -> list[str]:
        """The attributes of its object that a method mentions."""
        me = fn.node.args.args[0].arg if fn.node.args.args else ""
        return sorted(attr for name, attr in fn.module.facts[fn.node].attributes if name == me)

    def _keeps(self, fn: Fn, arguments: list[Value]) -> bool:
        """Whether a method keeps an argument that does something to gradients: `runner.register(hook)`."""
        if not isinstance(fn.owner, Thing):
            return False
        facts = fn.module.facts[fn.node]
        return ("append" in facts.called or bool(facts.stored)) and any(map(self._steps, arguments))

    def _counts(self, fn: Fn) -> bool:
        """Whether a method changes a count of its object that a test reads, here or in the file of its class."""
        if not isinstance(fn.owner, Thing) or fn.klass is None:
            return False
        counted = fn.module.counts_of(fn.node)
        return bool(counted) and not counted.isdisjoint(
            fn.module.tested | self.env.frame.module.tested
        )

    def _hands_on(self, fn: Fn, arguments: list[Value]) -> bool:
        """Whether a function is handed an optimizer, and calls a function that it is handed or finds in a collection."""
        facts = fn.module.facts[fn.node]
        formal = set(parameter_names(fn.node))
        if facts.called.isdisjoint(facts.assigned | formal):
            return False
        given = [part for one in arguments for part in parts(one)]
        return any(map(self.objects.is_used_as_optimizer, given))

    def _collects(self, klass: Klass) -> bool:
        """Whether the methods of a class add to a list of its object: `self.hooks.append(hook)`."""
        calls = (
            base.module.facts[method].calls
            for base in self.classes.lineage(klass)
            for name, method in base.module.methods_of(base.node).items()
            if name != "__init__"
        )
        return any(
            name.startswith("self.") and name.endswith(".append")
            for called in calls
            for name in called
        )

    def _holds_what_steps(self, fn: Fn) -> bool:
        """Whether the object of a method keeps another one through which its methods step."""
        if not isinstance(fn.owner, Thing) or fn.klass is None:
            return False
        names, called = self.classes.members(fn.owner.klass or fn.klass)
        key, heap = fn.owner.key, self.env.heap
        kept = [value for name in names if (value := heap.get(key.attribute(name))) is not None]
        held = [
            part
            for value in kept
            for part in parts(value)
            if isinstance(part, Fn) or (isinstance(part, Thing) and part.klass is not None)
        ]
        by_name = "getattr" in called and any(map(self._steps, held))
        return by_name or self.graph.steps_through(called, held)

    def result(self, fn: Fn, node: ast.Call, arguments: list[Value]) -> Value:
        """What a function of the project returns, without its effects."""
        before = self.emitter.silence()
        try:
            return self.call(fn, node, arguments, force=True)
        finally:
            self.emitter.resume(before)

    def _bind(
        self, fn: Fn, node: ast.Call, arguments: list[Value]
    ) -> tuple[dict[str, Value], dict[str, Key], dict[str, Expr]]:
        """What the parameters of a function hold in a call: values, variables and tests."""
        formal = parameters(fn.node)
        bound = fn.owner is not None and not isinstance(fn.node, ast.Lambda)
        decorators = getattr(fn.node, "decorator_list", [])
        if bound and any(text_of(d) == "staticmethod" for d in decorators):
            bound = False
        values: dict[str, Value] = {}
        aliases: dict[str, Key] = {}
        tests: dict[str, Expr] = {}
        if bound and formal and fn.owner is not None:
            values[formal[0].arg] = fn.owner
            formal = formal[1:]
        values.update(_defaults(fn))
        earlier = dict(fn.named)
        earlier.update(zip((a.arg for a in _positional(fn, bound)), fn.given, strict=False))
        values.update(earlier)
        aliases.update((name, one.key) for name, one in earlier.items() if isinstance(one, Thing))
        given: list[tuple[str, Value, ast.expr]] = []
        handed = _spread(node, arguments)
        if handed is not None:
            positional = _positional(fn, bound)[len(fn.given) :]
            surplus = handed[len(positional) :]
            if fn.node.args.vararg is not None:
                values[fn.node.args.vararg.arg] = Many(tuple(value for value, _ in surplus))
            pairs = zip(positional, handed, strict=False)
            given += [(arg.arg, value, source) for arg, (value, source) in pairs]
        for keyword, value in zip(node.keywords, arguments[len(node.args) :], strict=False):
            if keyword.arg is not None:
                given.append((keyword.arg, value, keyword.value))
        for name, value, source in given:
            variable = self.env.variable(source)
            if isinstance(value, Tensor) and _uses_as_object(fn, name):
                value = Thing(self.env.frame.new_key(source) if variable is None else variable)
            values[name] = value
            if variable is not None:
                aliases[name] = variable
            elif isinstance(source, (ast.Compare, ast.BoolOp)):
                tests[name] = self.conditions.expression(source)
        for arg in formal:
            unknown = NOTHING if arg.arg in ("args", "kwargs") else Thing(local(arg.arg))
            values.setdefault(arg.arg, unknown)
        return values, aliases, tests

    def _held(self, fn: Fn) -> Thing | Many | None:
        """The object that a method returns, or all of them, if it only looks it up: `return self.optimizer`."""
        facts = fn.module.facts[fn.node]
        if not isinstance(fn.owner, Thing) or not fn.node.args.args or not facts.returns:
            return None
        me, *others = (arg.arg for arg in parameters(fn.node))
        looked_up = [node for node in facts.returns if not is_constant(node, None)]
        computed = {*others, *facts.assigned}
        if any(isinstance(one, ast.Name) and one.id in computed for one in nodes(*looked_up)):
            return None
        frame = Frame(fn.module, env={me: fn.owner}, klass=fn.klass, owner=fn.owner)
        if len(looked_up) == 1:
            value = self.evaluator.peek_in(frame, looked_up[0])
            if isinstance(value, Many) and all(isinstance(one, Thing) for one in value.items):
                return value
        if not all(text_of(node).startswith(f"{me}.") for node in looked_up):
            return None
        if not all(isinstance(node, ast.Attribute) for node in looked_up):
            return None
        # The one that the object is seen to have, or the first.
        looked_up.sort(key=lambda node: node.lineno)
        values = [self.evaluator.peek_in(frame, node) for node in looked_up]
        things = [value for value in values if isinstance(value, Thing)]
        things.sort(key=lambda thing: not self.objects.role(thing))
        return things[0] if things else None

    def _attributes_used(self, fn: Fn) -> frozenset[Key]:
        """What a method may compute with: the attributes of its object that it mentions."""
        if not isinstance(fn.owner, Thing) or isinstance(fn.node, ast.Lambda):
            return frozenset()
        keys = set()
        for attr in self._mentioned(fn):
            value = self.objects.attribute(fn.owner, attr)
            if isinstance(value, Thing):
                keys.add(value.key)
            elif isinstance(value, Fn):
                keys.add(fn.owner.key)
            elif isinstance(value, Tensor):  # an unseen function has made it
                keys.add(fn.owner.key.attribute(attr))
        return frozenset(keys)

    def _globals_called(self, fn: Fn) -> frozenset[Key]:
        """What else a function may compute with: the objects outside of it that it calls."""
        keys = set()
        for name in fn.module.facts[fn.node].calls:
            if "." in name or name in fn.module.imports:
                continue
            held = fn.frame.env.get(name) if fn.frame is not None else None
            if held is None and (name in fn.module.globals or name in self.env.top.env):
                held = self.names.of_module(fn.module, name)
            if isinstance(held, Thing):
                keys.add(held.key)
        return frozenset(keys)


def _spread(node: ast.Call, arguments: list[Value]) -> list[tuple[Value, ast.expr]] | None:
    """The positional arguments of a call, those of `f(*known)` one by one; None if it is unknown how many there are."""
    found: list[tuple[Value, ast.expr]] = []
    for source, value in zip(node.args, arguments, strict=False):
        if not isinstance(source, ast.Starred):
            found.append((value, source))
        elif isinstance(value, Many):
            found += ((item, source) for item in value.items)
        else:
            return None
    return found


def _uses_as_object(fn: Fn, name: str) -> bool:
    """Whether a function uses a parameter as an object: then it is one, although unseen code has made it."""
    return not vocabulary.OBJECT_METHODS.isdisjoint(fn.module.methods.get(name, ()))


def _is_optimizer(value: Value) -> bool:
    return isinstance(value, Thing) and value.role is Role.OPTIMIZER


def _answers(returns: list[ast.expr]) -> bool:
    """Whether a function returns True on one path and False or a test on another."""
    said = {one.value for one in returns if isinstance(one, ast.Constant)}
    tests = [one for one in returns if isinstance(one, (ast.Compare, ast.BoolOp))]
    others = any(not isinstance(one, (ast.Constant, ast.Compare, ast.BoolOp)) for one in returns)
    return said <= {True, False, None} and len(said - {None}) + bool(tests) > 1 and not others


def _overwrites(fn: Fn) -> bool:
    """Whether a method gives attributes of its object other values."""
    assigned = fn.module.attributes_of(fn.klass.node).values() if fn.klass is not None else ()
    return "setattr" in fn.module.facts[fn.node].called or any(
        method is fn.node for values in assigned for method, *_ in values
    )


def _asked_parameters(fn: Fn, values: dict[str, Value]) -> list[Value]:
    """The parameters of its arguments that a function asks for: `network.parameters()`."""
    calls = fn.module.facts[fn.node].calls
    return [
        Params(frozenset({value.key}))
        for name, value in values.items()
        if isinstance(value, Thing) and f"{name}.parameters" in calls
    ]


def _positional(fn: Fn, bound: bool) -> list[ast.arg]:
    args = [*fn.node.args.posonlyargs, *fn.node.args.args]
    return args[1:] if bound else args


def _defaults(fn: Fn) -> dict[str, Value]:
    """The parameters whose defaults are literals."""
    args = fn.node.args
    tail = [*args.posonlyargs, *args.args][-len(args.defaults) :] if args.defaults else []
    pairs: list[tuple[ast.arg, ast.expr | None]] = [
        *zip(tail, args.defaults, strict=False),
        *zip(args.kwonlyargs, args.kw_defaults, strict=True),
    ]
    return {
        arg.arg: Lit(default.value)
        for arg, default in pairs
        if isinstance(default, ast.Constant)
        and isinstance(default.value, (bool, int, float, str, type(None)))
    }


def _differ(arguments: list[Value]) -> bool:
    """Whether some tensors are computed through other objects than others: a result may be computed through a few of them."""
    return len({roots(one) for one in arguments if isinstance(one, Tensor)}) > 1


def _gives_optimizer(fn: Fn) -> bool:
    """A factory of the project: its body says what the optimizer steps."""
    facts = fn.module.facts[fn.node]
    if isinstance(fn.node, ast.Lambda) or not facts.returns:
        return False
    return any(vocabulary.role_of_call(name) is Role.OPTIMIZER for name in (fn.name, *facts.calls))
