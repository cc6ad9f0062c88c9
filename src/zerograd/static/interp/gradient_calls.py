"""Calls and assignments that fill, clear or change gradients."""

from __future__ import annotations

import ast

from zerograd.core.events import Assign, Unknown, Unscale, Zero
from zerograd.core.late_pattern import pattern
from zerograd.core.records import dataclass, replace
from zerograd.core.training_loop import NotFollowed
from zerograd.explore.flow import walk
from zerograd.static.frameworks import registry
from zerograd.static.frameworks.table import Divided, LibraryCall, Role, RunsBackward
from zerograd.static.interp.constructors import Constructors
from zerograd.static.interp.effects import NOBODY, Effects, is_constant, keyword
from zerograd.static.interp.emitter import Act, Emitter, Gate
from zerograd.static.interp.environment import Environment, KnownObjects, Mode
from zerograd.static.interp.evaluator import Evaluator
from zerograd.static.interp.framework_calls import FrameworkCalls
from zerograd.static.interp.functions import Functions
from zerograd.static.interp.objects import Classes, Objects, is_super
from zerograd.static.interp.scalars import is_scalar
from zerograd.static.read import vocabulary
from zerograd.static.read.file_index import Facts
from zerograd.static.read.keys import AllocationSite, Key
from zerograd.static.read.syntax_tree import (
    called_name,
    last_name,
    nodes,
    parameter_names,
    reached,
    spans,
    text_of,
)
from zerograd.static.read.values import (
    NOTHING,
    Each,
    Fn,
    Frame,
    Grad,
    Klass,
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
class ClearCalls:
    """Handles `zero_grad()` of optimizers, modules and the project's own classes."""

    emitter: Emitter
    evaluator: Evaluator
    classes: Classes
    objects: Objects
    effects: Effects
    constructors: Constructors
    functions: Functions

    def zero_grad(self, node: ast.Call, func: ast.Attribute, owner: Value) -> Value | None:
        """`x.zero_grad()`, whatever x is."""
        owner = self.constructors.as_object(owner, func.value)
        if isinstance(owner, Thing):
            method = self.objects.attribute(owner, "zero_grad")
            if isinstance(method, Fn) and not self.classes.is_optimizer_method(method):
                return self._own_clear(node, owner, method)
            if isinstance(method, Fn) and not seen_to_clear(method):
                self.evaluator.arguments(node)
                return Lit(None)
        self.evaluator.arguments(node)
        flag = keyword(node, "set_to_none") or (node.args[0] if node.args else None)
        to_none = not (isinstance(flag, ast.Constant) and flag.value is False)
        if isinstance(owner, Thing):
            self.objects.role(owner, func.value)
        self.effects.clear(owner, node, to_none=to_none)
        return Lit(None)

    def _own_clear(self, node: ast.Call, owner: Thing, method: Fn) -> Value:
        """A project's own `zero_grad`: what it is seen to clear, or else what it belongs to."""
        before = len(self.emitter.out)
        value = self.functions.call(method, node)
        seen = any(
            isinstance(part, Act) and isinstance(part.event, (Zero, Unknown))
            for flow in self.emitter.out[before:]
            for part in walk(flow)
        )
        if not seen and seen_to_clear(method):
            self.effects.clear(owner, node, to_none=True)
        return value


def seen_to_clear(method: Fn) -> bool:
    """Whether a method visibly clears gradients."""
    return any(map(_clears, reached(method.node)))


def seen_to_clear_after_use(method: Fn) -> bool:
    """The same of the step of an optimizer: what it clears before the step that it inherits, it does not use."""
    nodes = list(reached(method.node))
    uses = [node.lineno for node in nodes if isinstance(node, ast.Call) and _is_inherited(node)]
    first = min(uses, default=0)
    return any(_clears(node) and node.lineno >= first for node in nodes)  # type: ignore[attr-defined]


def _clears(node: ast.AST) -> bool:
    if isinstance(node, ast.Attribute):
        return node.attr in ("zero_grad", "zero_", "_foreach_zero_")
    return isinstance(node, ast.Assign) and any(
        isinstance(target, ast.Attribute) and target.attr == "grad" for target in node.targets
    )


def _is_inherited(node: ast.Call) -> bool:
    """Whether a call is `super().step(…)`."""
    func = node.func
    return isinstance(func, ast.Attribute) and func.attr == "step" and is_super(func.value)


_WRAPPER = LibraryCall(
    "backward", RunsBackward(required=True, unknown=True, divided=Divided.BY_LIBRARY)
)
"""What the `backward` of an unknown library's object does with a loss."""


@dataclass(eq=False)
class BackwardCalls:
    """Handles `backward` of losses, wrappers and torch."""

    known: KnownObjects
    env: Environment
    gate: Gate
    evaluator: Evaluator
    classes: Classes
    objects: Objects
    effects: Effects
    frameworks: FrameworkCalls

    def backward(self, node: ast.Call, func: ast.Attribute, owner: Value) -> Value | None:
        """`loss.backward()`, `engine.backward(loss)`, `torch.autograd.backward(loss)`."""
        if isinstance(owner, Thing):
            if isinstance(self.objects.attribute(owner, func.attr), Fn):
                return None
            call = registry.call_on("backward", self.objects.role(owner, func.value))
            loss = keyword(node, "loss", "losses")
            if call is None and (loss or (node.args and self._is_wrapper(node, func, owner))):
                call = _WRAPPER
            if call is not None:
                arguments = self.evaluator.arguments(node)
                if loss is not None and not node.args:
                    arguments.insert(0, self.evaluator.peek(loss))
                return self.frameworks.perform(call, node, owner, arguments)
        elif isinstance(owner, (Origin, Fn, Klass)):
            arguments = self.evaluator.arguments(node)
            if isinstance(owner, Origin) and owner.name in ("torch.autograd", "torch"):
                self.effects.backward(node, mix(arguments[:1]))
                return Lit(None)
            return None
        self.evaluator.arguments(node)
        if self._is_layer(node, func.value):
            self.effects.unseen(node, NOBODY, NotFollowed.UNCLEAR_BACKWARD)
            return NOTHING
        inputs = keyword(node, "inputs")
        if inputs is not None:
            self.effects.backward(node, self.evaluator.peek(inputs))
            return Lit(None)
        given = node.args[0] if node.args else keyword(node, "gradient")
        text = text_of(func.value)
        same = given is not None and text_of(given) == text
        same = same and self._is_one_number(func.value)
        scaled = given is not None and mix([self.evaluator.peek(given)]).scaled
        if scaled is not False and isinstance(owner, Tensor):
            # `features.backward(scaler.scale(gradient))`: the gradient brings the scale.
            owner = replace(owner, scaled=scaled)
        bypassed = self._bypassed(owner)
        # `accelerator.backward(loss)`, where it cannot be seen what the accelerator is.
        handed = not same and any(vocabulary.LOSS.search(text_of(arg)) for arg in node.args)
        self.effects.backward(
            node, owner, own_gradient=same, bypasses=bypassed, wrapped=handed, unknown=handed
        )
        return Lit(None)

    def _is_layer(self, node: ast.Call, owner: ast.expr) -> bool:
        """Whether an object runs forward, too: its own backward is not autograd's, and may set gradients."""
        text = text_of(owner)
        methods = self.env.frame.module.methods.get(text, frozenset())
        if "forward" in methods or methods & vocabulary.OBJECT_METHODS:
            return True
        return bool(node.args) and text in self._facts_around(node).calls

    def _facts_around(self, node: ast.expr) -> Facts:
        """What the function does that an expression is in."""
        module = self.env.frame.module
        around = [one for one in module.facts if spans(one, node.lineno)]
        inner = max(around, key=lambda one: getattr(one, "lineno", 0), default=module.tree)
        return module.facts[inner]

    def _is_one_number(self, node: ast.expr) -> bool:
        """Whether a value is a loss: by its name, or by all that the function assigns to the variable."""
        if vocabulary.LOSS.search(last_name(text_of(node))):
            return True
        if not isinstance(node, ast.Name):
            return is_scalar(node)
        values = [value for *_, value in self._facts_around(node).locals.get(node.id, ())]
        return bool(values) and all(map(is_scalar, values))

    def _bypassed(self, owner: Value) -> str:
        """The wrapper that had to run this backward; an optimizer that runs it knows what it does.

        What is a wrapper only by its use, and was not seen to be made, may be a plain module here.
        """
        if self._is_in_optimizer():
            return ""
        if self.gate.accumulating:
            return self._unless_unprepared(self.gate.accumulating)
        for key in roots(owner)[0]:
            name = registry.bypassed_name(self.known.roles.get(key, Role.NONE))
            if name and isinstance(key[0], AllocationSite):
                return name
            for prepared, wrapper in self.known.prepared.items():
                if key.is_inside(prepared):
                    return self._unless_unprepared(wrapper)
        return ""

    def _unless_unprepared(self, accelerator: str) -> str:
        """The accelerator, unless the class of the object replaces the methods of its bases that have things prepared."""
        return "" if self._leaves_unprepared(accelerator) else accelerator

    def _leaves_unprepared(self, accelerator: str) -> bool:
        this = self.env.frame.owner
        if not isinstance(this, Thing) or this.klass is None:
            return False
        kept: list[tuple[str, set[str]]] = []
        replaced = set[str]()
        goes_on: dict[str, bool] = {}
        """By name: whether the method calls the one of its base."""
        for base in self.classes.lineage(this.klass):
            for name, method in base.module.methods_of(base.node).items():
                calls = base.module.facts[method].calls
                if not goes_on.get(name, True):
                    replaced |= calls
                    continue
                kept.append((name, calls))
                goes_on[name] = any(call.endswith(f").{name}") for call in calls)
        prepare = f"{accelerator}.prepare"
        prepares = {f"self.{name}" for name, calls in kept if prepare in calls}
        if any(calls & prepares for _, calls in kept):
            return False
        return prepares <= replaced and (bool(prepares) or prepare in replaced)

    def _is_in_optimizer(self) -> bool:
        klass = self.env.frame.klass
        return klass is not None and self.classes.role(klass) is Role.OPTIMIZER

    def _is_wrapper(self, node: ast.Call, func: ast.Attribute, owner: Thing) -> bool:
        """`trainer.backward(loss)` against `loss.backward(gradient)`."""
        if owner.klass is not None:
            return True
        first = self.evaluator.peek(node.args[0])
        name = text_of(node.args[0]).lower()
        return (
            "loss" in name
            and "loss" not in text_of(func.value).lower()
            and isinstance(first, (Tensor, Thing))
        )


@dataclass(eq=False)
class ParameterCalls:
    """Handles what is done to parameters and gradients directly."""

    env: Environment
    mode: Mode
    evaluator: Evaluator
    objects: Objects
    effects: Effects
    constructors: Constructors

    def method(
        self, node: ast.Call, func: ast.Attribute, owner: Params | Grad, arguments: list[Value]
    ) -> Value:
        """A method of a parameter or of its gradient."""
        effects = self.effects
        if isinstance(owner, Params):
            given = mix(arguments)
            if func.attr.endswith("_") and given.grads & owner.keys:
                effects.step_by_hand(node, owner.keys, given)
            elif func.attr == "copy_" and not given.roots & owner.keys:
                effects.restored(node, owner.keys)
            return owner
        if func.attr in _COPIES:
            return mix([owner])
        if func.attr == "sign":
            return replace(mix([owner]), scaled=None)
        bare = self.mode.unguarded
        if func.attr in ("zero_", "fill_") or (func.attr == "mul_" and arguments[:1] == [Lit(0)]):
            if func.attr != "fill_" or arguments[:1] in ([Lit(0)], [Lit(0.0)]):
                effects.clear(owner, node, to_none=False, bare=bare)
            return owner
        if func.attr in ("clamp_", "clip_"):
            effects.clip_by_hand(node, owner, bare=bare)
        elif func.attr in ("add_", "sub_"):
            effects.act_on(Assign, node, owner.keys, adds=True, bare=bare and not owner.some)
        elif func.attr == "div_" and _WORLD_SIZE.search(text_of(node)):
            pass  # the ranks have added their gradients: the mean has the scale of the sum
        elif func.attr in ("div_", "mul_") and self._clips(arguments, owner):
            effects.clip_by_hand(node, owner, bare=bare and not owner.some)
        elif func.attr in ("div_", "mul_", "copy_", "set_"):
            assigns = func.attr in ("copy_", "set_")
            effects.act_on(
                Assign if assigns else Unscale,
                node,
                owner.keys,
                may=assigns,
                bare=bare and not owner.some,
            )
        return owner

    def _clips(self, factors: list[Value], owner: Grad) -> bool:
        """Whether a function that is called a clip changes gradients by a factor of their norm.

        It has computed the factor from them, or is handed a norm.
        """
        stack = self.effects.nesting.stack
        if not stack or not isinstance(stack[-1], (ast.FunctionDef, ast.AsyncFunctionDef)):
            return False
        if not vocabulary.clips(stack[-1].name):
            return False
        handed_norm = any("norm" in name for name in parameter_names(stack[-1]))
        if handed_norm and not all(isinstance(one, Lit) for one in factors):
            return True
        return bool(mix(factors).grads & owner.keys)

    def parameters(self, node: ast.Call, func: ast.Attribute, owner: Value) -> Value | None:
        """`module.parameters()` and its like."""
        self.evaluator.arguments(node)
        if isinstance(owner, Thing):
            if owner.klass is not None:
                self.objects.known.classes[owner.key] = owner.klass
            method = self.objects.attribute(owner, func.attr)
            if isinstance(method, Fn):
                return self._own_parameters(owner, method)
        keys, _ = roots(owner)
        if isinstance(owner, Tensor):
            # What has parameters is an object, whatever it was computed from.
            keys = frozenset({self.env.key(func.value)})
        params = Params(keys)
        return Each(Many((NOTHING, params))) if func.attr.startswith("named") else params

    def state_dict(self, node: ast.Call, func: ast.Attribute, owner: Value) -> Value | None:
        """`module.state_dict(keep_vars=True)` has the parameters themselves; otherwise it has copies without gradients."""
        kept = keyword(node, "keep_vars")
        return self.parameters(node, func, owner) if is_constant(kept, True) else None

    def _own_parameters(self, owner: Thing, method: Fn) -> Params:
        """What a project's own `parameters` returns: those of some parts, or all."""
        return self.returned_by(owner, method) or Params(frozenset({owner.key}))

    def returned_by(self, owner: Thing, method: Fn) -> Params | None:
        """The parameters that a method of the project looks up: `return self.head.parameters()`."""
        returns = method.module.facts[method.node].returns
        if len(returns) != 1 or not method.node.args.args:
            return None
        env: dict[str, Value] = {method.node.args.args[0].arg: owner}
        frame = Frame(method.module, env=env, klass=method.klass, owner=owner)
        value = self.evaluator.peek_in(frame, returns[0])
        return value if isinstance(value, Params) and value.keys else None

    def requires_grad(self, node: ast.Call, func: ast.Attribute, owner: Value) -> Value | None:
        """`x.requires_grad_(…)`: freezes, thaws, or makes a leaf."""
        arguments = self.evaluator.arguments(node)
        trains = arguments[0] if arguments else Lit(True)
        self.effects.freeze(owner, trains)
        if isinstance(owner, Tensor) and trains != Lit(False):
            return self.constructors.built_leaf(node)
        return owner

    def store(
        self, owner: Value, attr: str, value: Value, source: ast.expr | None, node: ast.AST
    ) -> None:
        """`p.grad = …`, `p.data = …`, `p.requires_grad = …`."""
        if attr == "requires_grad":
            self.effects.freeze(owner, value)
        elif attr == "grad":
            self._store_gradient(owner, value, source, node)
        elif isinstance(owner, Grad):
            self._store_gradient(Params(owner.keys, owner.some), value, source, node)
        elif isinstance(owner, (Params, Thing)):
            keys, _ = roots(owner)
            given = mix([value])
            if given.grads & keys:
                self.effects.step_by_hand(node, keys, given)
            elif not given.roots & keys and not self._is_moved(keys, source):
                self.effects.restored(node, keys)

    def _is_moved(self, keys: frozenset[Key], source: ast.expr | None) -> bool:
        """Whether new weights are computed from the old ones: `p.data = p.data.clamp(0, 1)`."""
        return any(
            isinstance(part, ast.Attribute)
            and part.attr in ("data", "detach", "clone")
            and keys & roots(self.evaluator.peek(part.value))[0]
            for part in (nodes(source) if source is not None else ())
        )

    def made_leaf(self, owner: Value, target: ast.Attribute, value: Value) -> Thing | None:
        """`x.requires_grad = True` makes a leaf of a computed tensor."""
        if target.attr != "requires_grad" or value != Lit(True) or not isinstance(owner, Tensor):
            return None
        return self.constructors.built_leaf(target)

    def _store_gradient(
        self, owner: Value, value: Value, source: ast.expr | None, node: ast.AST
    ) -> None:
        keys, _ = roots(owner)
        if isinstance(owner, Tensor) and keys:
            return  # the gradient of a result, not of a parameter
        if value == Lit(None) or (source is not None and _is_zeros(source)):
            self.effects.clear(owner, node, to_none=value == Lit(None))
        elif mix([value]).grads & keys:
            adds = isinstance(source, ast.BinOp) and isinstance(source.op, (ast.Add, ast.Sub))
            if adds:
                self.effects.act_on(Assign, node, keys, adds=True)
            else:
                self.effects.act_on(Unscale, node, keys, may=True)
        else:
            borrowed = isinstance(value, Grad) and isinstance(source, ast.Attribute)
            self.effects.act_on(Assign, node, keys, borrowed, may=self.mode.some)

    def update_by_hand(self, node: ast.AugAssign, old: Value, new: Value) -> bool:
        """`p.data -= lr * p.grad`, `w -= lr * w.grad`, `p.grad /= n`, `p.grad *= 0`."""
        if isinstance(old, Grad):
            if new == Lit(0) and isinstance(node.op, ast.Mult):
                self.effects.clear(old, node, to_none=False, bare=self.mode.unguarded)
            elif isinstance(node.op, (ast.Div, ast.Mult)):
                self.effects.act_on(Unscale, node, old.keys, may=True)
            else:
                self.effects.act_on(Assign, node, old.keys, may=True)
            return True
        keys, _ = roots(old)
        if isinstance(old, (Params, Thing)) and mix([new]).grads & keys:
            self.effects.step_by_hand(node, keys, mix([new]))
            return True
        return False


_WORLD_SIZE = pattern(r"world_size(\(\))?\)$")
_COPIES = frozenset({"clone", "to", "float", "double", "half", "bfloat16", "cpu", "numpy"})
"""Methods of a gradient that give a tensor of its own: clearing the gradient does not change it."""


def _is_zeros(node: ast.expr) -> bool:
    if not isinstance(node, ast.Call):
        return False
    if called_name(node) in ("zeros_like", "zeros", "new_zeros"):
        return True
    return isinstance(node.func, ast.Attribute) and _is_zeros(node.func.value)
