"""What a call is: the project's own, torch's, a framework's, or one that cannot be seen."""

from __future__ import annotations

import ast
from collections.abc import Callable
from functools import cached_property

from zerograd.core.records import dataclass, replace
from zerograd.static.frameworks import registry
from zerograd.static.frameworks.table import Role
from zerograd.static.interp.call_graph import CallGraph
from zerograd.static.interp.constructors import Constructors
from zerograd.static.interp.effects import Effects
from zerograd.static.interp.emitter import Emitter
from zerograd.static.interp.environment import Environment, Nesting
from zerograd.static.interp.evaluator import Evaluator
from zerograd.static.interp.framework_calls import FrameworkCalls
from zerograd.static.interp.functions import Functions
from zerograd.static.interp.gradient_calls import BackwardCalls, ClearCalls, ParameterCalls
from zerograd.static.interp.library_calls import LibraryCalls
from zerograd.static.interp.names import Names
from zerograd.static.interp.objects import Classes, Objects, is_super
from zerograd.static.interp.registered_hooks import RegisteredHooks
from zerograd.static.interp.step_calls import StepCalls
from zerograd.static.read import vocabulary
from zerograd.static.read.keys import SELF
from zerograd.static.read.syntax_tree import (
    arguments,
    called_name,
    first_name,
    last_name,
    text_of,
)
from zerograd.static.read.values import (
    NOTHING,
    Bound,
    Fn,
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
    detached,
    mix,
    then,
)

_OPTIMIZER_READS = frozenset(
    {
        "add_param_group",
        "state_dict",
        "load_state_dict",
        "share_memory",
        "train",
        "eval",
        "keys",
        "values",
        "items",
    }
)

Handler = Callable[[ast.Call, ast.Attribute, Value], "Value | None"]


@dataclass(eq=False)
class Calls:
    """Finds out what is called, and hands the call to the part that handles it."""

    env: Environment
    emitter: Emitter
    nesting: Nesting
    evaluator: Evaluator
    names: Names
    classes: Classes
    objects: Objects
    graph: CallGraph
    effects: Effects
    constructors: Constructors
    functions: Functions
    frameworks: FrameworkCalls
    parameters: ParameterCalls
    clears: ClearCalls
    backwards: BackwardCalls
    steps: StepCalls
    libraries: LibraryCalls
    hooks: RegisteredHooks

    @cached_property
    def methods(self) -> dict[str, Handler]:
        """Methods of torch's own objects."""
        return {
            "zero_grad": self.clears.zero_grad,
            "backward": self.backwards.backward,
            "step": self.steps.step,
            "parameters": self.parameters.parameters,
            "named_parameters": self.parameters.parameters,
            "trainable_parameters": self.parameters.parameters,
            "state_dict": self.parameters.state_dict,
            "requires_grad_": self.parameters.requires_grad,
        }

    def call(self, node: ast.Call) -> Value:
        """The value of a call; what it does to gradients is emitted."""
        hooks = self.graph.hooks(node) if self.nesting.stack and not self.emitter.quiet else []
        if not hooks:
            return self._call(node)
        out = self.emitter.divert()
        value = self._call(node)
        done = self.emitter.restore(out)
        # Other hooks may do anything, so what they leave unknown comes after the clips.
        for flow in (*self.hooks.run(node, hooks), *done):
            self.emitter.add(flow)
        return value

    def _call(self, node: ast.Call) -> Value:
        if isinstance(node.func, ast.Attribute):
            return self.method_call(node, node.func)
        callee = self.evaluator.value(node.func)
        if isinstance(callee, Origin) and self.is_opened_for(node):
            callee = self.evaluator.value(node.func)
        if isinstance(callee, Bound):
            return self.bound_call(node, callee)
        if isinstance(callee, Origin):
            return self.libraries.call(node, callee.name)
        return self.call_value(node, callee)

    def bound_call(self, node: ast.Call, callee: Bound) -> Value:
        """A call of a method by another name: `clear = optimizer.zero_grad`, then `clear()`."""
        func = ast.copy_location(ast.Attribute(node.func, callee.name, ast.Load()), node.func)
        handled = self.methods[callee.name](node, func, callee.owner)
        return handled if handled is not None else NOTHING

    def is_opened_for(self, node: ast.Call) -> bool:
        """Reads the file of a function or class that says nothing of gradients, if it is handed what trains or is trained."""
        module = self.env.frame.module
        name = text_of(node.func)
        first = first_name(name)
        if first not in module.imports or not self.names.is_closed(module, first):
            return False
        handed = arguments(node)
        given = [self.evaluator.peek(arg) for arg in handed if not isinstance(arg, ast.Call)]
        wanted = self.functions.runs_models(given) or any(
            (isinstance(one, Fn) and self.graph.touches_gradients(one))
            or self.objects.is_used_as_optimizer(one)
            for one in given
        )
        if not wanted and vocabulary.is_class_name(last_name(name)):
            wanted = self.functions.shares_models(given) or node in module.made_in_parts
        elif not wanted and not vocabulary.is_benign(last_name(name)):
            wanted = any(map(self.effects.has_backward, given))
        return wanted and self.names.open(module, first)

    def method_call(self, node: ast.Call, func: ast.Attribute) -> Value:
        """A call of `x.name(…)`."""
        if is_super(func.value):
            return self.super_call(node, func.attr)
        owner = self.evaluator.value(func.value)
        handled = self.methods.get(func.attr, self.frameworks.method)(node, func, owner)
        if handled is not None:
            return handled
        if func.attr in registry.CLIPS:
            return self.steps.clip(node, owner)
        if isinstance(owner, Thing):
            return self.object_method(node, func, owner)
        if isinstance(owner, Origin):
            if owner.path is not None and self.is_opened_for(node):
                owner = self.evaluator.peek(func.value)
            value = self.objects.attribute(owner, func.attr)
            if isinstance(value, Origin):
                return self.libraries.call(node, value.name)
            return self.call_value(node, value)
        if isinstance(owner, Klass):
            return self.call_value(node, self.objects.attribute(owner, func.attr))
        arguments = self.evaluator.arguments(node)
        if isinstance(owner, (Params, Grad)):
            return self.parameters.method(node, func, owner, arguments)
        if isinstance(owner, KnownDict):
            return _table_method(func, owner, arguments)
        if isinstance(owner, Many):
            return self.list_method(func, owner, arguments)
        if isinstance(owner, Tensor):
            return self.tensor_method(node, func, owner, arguments)
        if owner != Lit(None):  # a program without a scaler does not reach `scaler.step(optimizer)`
            self.effects.note_unseen(node, arguments, func.attr)
        return self.effects.result_of([owner], arguments)

    def tensor_method(
        self, node: ast.Call, func: ast.Attribute, owner: Tensor, arguments: list[Value]
    ) -> Value:
        """A method of something computed."""
        if func.attr in vocabulary.CUT:
            if func.attr == "detach_" and isinstance(func.value, ast.Name):
                self.env.frame.env[func.value.id] = detached(owner)
            return detached(owner) if func.attr in ("detach", "detach_") else Tensor()
        if func.attr in ("to", "type", "type_as", "cuda"):
            return owner  # on the device, or of the type, of what it is handed
        if func.attr in ("div_", "mul_", "div", "mul") or (func.attr == "sum" and not arguments):
            changed = replace(owner, divided=None, divisor=None)
            if func.attr.endswith("_") and isinstance(func.value, ast.Name):
                self.env.frame.env[func.value.id] = changed
            return changed
        self.effects.note_unseen(node, arguments, func.attr)
        return self.effects.result_of([then(owner, f".{func.attr}")], arguments)

    def super_call(self, node: ast.Call, name: str) -> Value:
        """`super().name(…)`: the method of a visible base, or what one that cannot be seen may do."""
        arguments = self.evaluator.arguments(node)
        klass, owner = self.env.frame.klass, self.env.frame.owner
        if klass is None:
            return NOTHING
        for base in self.classes.after(klass, owner):
            method = base.method(name)
            if method is not None:
                fn = Fn(method, base.module, name, owner, None, base)
                return self.functions.call(fn, node, arguments, force=name == "__init__")
        if not isinstance(owner, Thing):
            return NOTHING
        if name == "zero_grad":
            self.effects.clear(owner, node, to_none=True)
        elif name == "step" and self.classes.role(klass) is Role.OPTIMIZER:
            self.effects.step(node, owner.key)
        elif name != "__init__" and not vocabulary.is_benign(name):
            self.effects.note_unseen(node, [owner, *arguments], name)
            self.effects.unknown(node, owner.key)  # what is being made has no gradients yet
        return NOTHING

    def object_method(self, node: ast.Call, func: ast.Attribute, owner: Thing) -> Value:
        """A method of an object."""
        method = self.objects.attribute(owner, func.attr)
        if isinstance(method, Fn) and func.attr.endswith("parameters"):
            some = self.parameters.returned_by(owner, method)
            if some is not None:
                return some
        if isinstance(method, (Fn, Klass)):
            return self.call_value(node, method)
        if isinstance(method, Bound):
            return self.bound_call(node, method)
        if isinstance(method, Origin) and method.path is None and owner.klass is not None:
            return self.libraries.call(node, method.name)  # `self.criterion = F.mse_loss`
        if func.attr in vocabulary.PASS_THROUGH:
            for argument in self.evaluator.arguments(node):
                if isinstance(argument, Fn):
                    self.functions.call(argument, node, [owner])  # `model.apply(function)`
            return owner
        if func.attr == "get" and node.args and isinstance(node.args[0], ast.Constant):
            return self.objects.item(owner, repr(node.args[0].value))
        if isinstance(method, Thing) and self.objects.keeps(owner, func.attr):
            return self.call_value(node, method)
        arguments = self.evaluator.arguments(node)
        self.objects.role(owner, func.value)
        if owner.klass is not None or owner.key == SELF:
            of_base = self.objects.may_inherit(owner, func.attr)
            self.effects.note_unseen(node, [owner, *arguments] if of_base else arguments, func.attr)
            if vocabulary.meddles(func.attr) and not self.asks(node, func.attr):
                self.unseen_method(node, owner)
            return self.effects.result_of([method], arguments, frozenset({owner.key}), node)
        return self.foreign_method(node, func, owner, method, arguments)

    def foreign_method(
        self,
        node: ast.Call,
        func: ast.Attribute,
        owner: Thing,
        method: Value,
        arguments: list[Value],
    ) -> Value:
        """A method of an object whose class cannot be seen."""
        role = self.objects.role(owner, func.value)
        if role is Role.OPTIMIZER and not (
            vocabulary.is_benign(func.attr) or func.attr in _OPTIMIZER_READS
        ):
            own = self.graph.only_method(func.attr)
            if own is not None:
                return self.functions.call(replace(own, owner=owner), node, arguments)
            self.effects.unknown(node, owner.key)
            if func.attr.startswith("register_"):
                self.effects.known.kept.add(owner.key)  # a hook that runs with each step
        elif not role and self.works_on(owner, func.attr):
            self.effects.may_touch_inside(node, owner, func.attr)
        self.effects.hand_to_unseen(node, arguments, func.attr)
        self.effects.note_unseen(node, arguments, func.attr, owner)
        if func.attr in vocabulary.CUT:
            return Tensor()
        known = method.role if isinstance(method, Thing) else Role.NONE
        if not role and Role.OPTIMIZER in (known, vocabulary.role_of_call(func.attr)):
            if any(isinstance(argument, Params) for argument in arguments):
                return self.constructors.make(node, func.attr, Role.OPTIMIZER, arguments)
            if not known:
                return Thing(owner.key.attribute(f"{func.attr}()"), Role.OPTIMIZER)
        if known:
            return method
        return self.effects.result_of([owner], arguments)

    def works_on(self, owner: Thing, name: str) -> bool:
        """Whether a method may do something to an optimizer that its object holds."""
        if self.effects.known.holds.get(owner.key):
            return not vocabulary.is_benign(name)
        return vocabulary.meddles(name)

    def asks(self, node: ast.Call, name: str) -> bool:
        """Whether an unseen method is called for its answer, `if self.on_master():`, and not for what it does."""
        is_used = self.effects.mode.statement is not node
        return is_used and not (node.args or node.keywords) and vocabulary.is_hook(name)

    def unseen_method(self, node: ast.Call, owner: Thing) -> None:
        """A method that cannot be seen may do anything with what its object holds."""
        if owner.klass is not None and self.objects.leaves_gradients_alone(owner.klass):
            return
        self.effects.unknown(node, owner.key)

    def list_method(self, func: ast.Attribute, owner: Many, arguments: list[Value]) -> Value:
        """A method of a list whose items are known."""
        if func.attr in ("append", "extend") and arguments:
            added = arguments[0].items if isinstance(arguments[0], Many) else (arguments[0],)
            grown = Many((*owner.items, *added))
            if isinstance(func.value, ast.Name):
                self.env.frame.env[func.value.id] = grown
            elif isinstance(func.value, ast.Attribute):
                holder = self.evaluator.peek(func.value.value)
                if isinstance(holder, Thing):
                    self.env.heap[holder.key.attribute(func.value.attr)] = grown
            return Lit(None)
        return mix(list(owner.items))

    def call_value(self, node: ast.Call, callee: Value) -> Value:
        """A call of something that a name or an expression holds."""
        if isinstance(callee, Fn):
            return self.functions.call(callee, node)
        if isinstance(callee, Klass):
            return self.functions.construct(node, callee)
        if isinstance(callee, Thing):
            self.nesting.note_inputs(node)
            if not self.effects.mode.no_grad:
                self.nesting.forwards.setdefault(self.nesting.loop, set()).add(callee.key)
        arguments = self.evaluator.arguments(node)
        if isinstance(callee, Tensor) and any(isinstance(one, Params) for one in arguments):
            name = text_of(node.func)
            if role := vocabulary.role_of_call(name):  # a class out of a table of classes
                return self.constructors.make(node, name, role, arguments)
        if isinstance(callee, Tensor):
            self.effects.hand_to_unseen(node, arguments, called_name(node))
            # What was computed from a module, such as its differentiable clone, may run through it.
            result = self.effects.result_of([], arguments, callee.roots | callee.maybe, node)
            return replace(result, scaled=None, divided=None)
        if isinstance(callee, Thing):
            called = self.call_object(node, callee, arguments)
            if called is not None:
                return called
        return self.effects.result_of([callee], arguments, node=node)

    def call_object(self, node: ast.Call, callee: Thing, arguments: list[Value]) -> Value | None:
        """A call of an object: a model, a scaler, or a class that cannot be seen."""
        role = self.objects.role(callee, node.func)
        forward: Value | None = None
        if callee.klass is not None:
            method = self.objects.attribute(callee, "__call__")
            if isinstance(method, Fn):
                if self.graph.touches_gradients(method):
                    return self.functions.call(method, node, arguments)
                if self.objects.holds_stepped(callee):
                    return _through(callee, self.functions.result(method, node, arguments))
            forward = self.objects.attribute(callee, "forward")
            if isinstance(forward, Fn):
                if self.graph.reaches(forward, "runs_backward", 0):
                    self.functions.call(forward, node, arguments)
                elif self._is_stepped_in_parts(callee) or self.objects.holds_stepped(callee):
                    return _through(callee, self.functions.result(forward, node, arguments))
        handled = self.frameworks.called(node, role, arguments)
        if handled is not None:
            return handled
        optimizers = [a for a in arguments if isinstance(a, Thing) and a.role is Role.OPTIMIZER]
        name = called_name(node)
        if self.steps.only_clips(name, arguments):
            return self.steps.clip(node, None)
        if optimizers or not (role or isinstance(forward, Fn)):
            self.effects.hand_to_unseen(node, arguments, name)
            held = self.effects.known.holds.get(callee.key, ())
            self.effects.note_unseen(node, [*map(Thing, held)], name)
            if callee.key[:1] == SELF and not vocabulary.is_benign(name):
                self.effects.hand_models(node, arguments)
        last = callee.key.last_name
        made = Role.NONE if role else vocabulary.role_of_call(last)
        if made:
            return self.constructors.make(node, last, made, arguments)
        if vocabulary.is_class_name(last) and callee.klass is None:
            return self.constructors.record(node, last, arguments)
        return None

    def _is_stepped_in_parts(self, module: Thing) -> bool:
        """Whether an optimizer steps a part of a module: then it matters what its forward uses."""
        stepped = self.objects.known.params.values()
        parts = (part for params in stepped for part in params or ())
        return any(part != module.key and part.is_inside(module.key) for part in parts)


def _table_method(func: ast.Attribute, owner: KnownDict, arguments: list[Value]) -> Value:
    if func.attr == "values":
        return Many(tuple(value for _, value in owner.items))
    if func.attr == "items":
        pairs = ((Lit(str(name)), value) for name, value in owner.items)
        return Many(tuple(Many(pair) for pair in pairs))
    if func.attr == "get" and arguments and isinstance(arguments[0], Lit):
        found = [value for name, value in owner.items if name == arguments[0].value]
        return found[0] if found else NOTHING
    return NOTHING


def _through(module: Thing, result: Value) -> Value:
    """What a call of a module returns: where none of its parts is seen to compute it, one of them may."""
    if not isinstance(result, Tensor):
        return result
    seen = result.roots | result.maybe | result.cut
    if any(root.is_inside(module.key) for root in seen):
        return result
    return replace(result, maybe=result.maybe | {module.key})
