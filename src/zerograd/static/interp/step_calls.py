"""Calls that use gradients: steps, scalers, clips, and wrappers that do several at once."""

from __future__ import annotations

import ast

from zerograd.core.events import Clip, Unscale
from zerograd.core.records import replace
from zerograd.explore.flow import Alt, Seq
from zerograd.static.frameworks.roles import Role
from zerograd.static.interp.conditions import Conditions
from zerograd.static.interp.constructors import Constructors
from zerograd.static.interp.effects import NOBODY, Effects, is_constant, keyword
from zerograd.static.interp.emitter import Emitter
from zerograd.static.interp.environment import Registry
from zerograd.static.interp.evaluator import Evaluator
from zerograd.static.interp.functions import Functions
from zerograd.static.interp.gradient_calls import seen_to_clear
from zerograd.static.interp.objects import Classes, Objects
from zerograd.static.read.file_index import text_of
from zerograd.static.read.values import (
    Fn,
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


class StepCalls:
    """Handles `step` of optimizers, scalers and engines, and what goes with it."""

    def __init__(
        self,
        emitter: Emitter,
        registry: Registry,
        evaluator: Evaluator,
        classes: Classes,
        objects: Objects,
        conditions: Conditions,
        effects: Effects,
        constructors: Constructors,
        functions: Functions,
    ) -> None:
        self.emitter = emitter
        self.registry = registry
        self.evaluator = evaluator
        self.classes = classes
        self.objects = objects
        self.conditions = conditions
        self.effects = effects
        self.constructors = constructors
        self.functions = functions

    def step(self, node: ast.Call, func: ast.Attribute, owner: Value) -> Value | None:
        """`x.step(…)`: an optimizer, a scaler, an engine, or something else altogether."""
        owner = self.constructors.as_object(owner, func.value)
        if not isinstance(owner, Thing):
            return None
        method = self.objects.attribute(owner, "step")
        if isinstance(method, Fn):
            if not self.classes.is_optimizer_method(method):
                return None
            return self._own_step(node, owner, method)
        arguments = self.evaluator.arguments(node)
        role = self.objects.role(owner, func.value)
        stepped = arguments[0] if arguments else None
        if role is Role.SCALER or (
            isinstance(stepped, Thing) and self._is_optimizer(stepped, node)
        ):
            return self._scaler_step(node, stepped, role)
        if role is Role.ENGINE:
            self.effects.step(node, owner.key)
            self.effects.clear(owner, node, to_none=True)
            return Lit(None)
        if role is not Role.OPTIMIZER:
            return None if role is Role.NONE and arguments else Lit(None)
        return self._optimizer_step(node, owner, arguments)

    def _own_step(self, node: ast.Call, owner: Thing, method: Fn) -> Value:
        """The step of a project's own optimizer: it uses the gradients, and may clear them as well."""
        arguments = self.evaluator.arguments(node)
        if arguments and isinstance(arguments[0], Fn):
            self.functions.call(arguments[0], node, [], force=True)
        self.objects.role(replace(owner, role=Role.OPTIMIZER))
        self.effects.step(node, owner.key)
        if seen_to_clear(method) or (arguments and not isinstance(arguments[0], (Fn, Lit))):
            self.effects.unknown(node, owner.key)
        return Lit(None)

    def _is_optimizer(self, thing: Thing, node: ast.Call) -> bool:
        source = node.args[0] if node.args else node.keywords[0].value
        return self.objects.role(thing, source) is Role.OPTIMIZER

    def _scaler_step(self, node: ast.Call, stepped: Value | None, role: Role) -> Value:
        if isinstance(stepped, Thing):
            self.registry.roles.setdefault(stepped.key, Role.OPTIMIZER)
            self.effects.step(node, stepped.key, scaled=True if role is Role.SCALER else None)
        elif isinstance(stepped, Many):
            for item in stepped.items:
                self._scaler_step(node, item, role)
        return Lit(None)

    def _optimizer_step(self, node: ast.Call, owner: Thing, arguments: list[Value]) -> Value:
        closure = arguments[0] if node.args or keyword(node, "closure") is not None else None
        if isinstance(closure, Fn):
            self.functions.call(closure, node, [], force=True)
            self.effects.step(node, owner.key)
            if not owner.made and owner.params is None:
                # Optimizers that need a closure may clear for it.
                self.effects.unknown(node, owner.key)
        elif closure is None or closure == Lit(None):
            self.effects.step(node, owner.key)
        else:
            # Wrappers that take the loss, or a closure that cannot be seen, may do the rest as well.
            self.effects.unknown(node, owner.key)
        if is_constant(keyword(node, "zero_grad", "set_to_none", "zero_grads"), True):
            self.effects.clear(owner, node, to_none=True)
        return Lit(None)

    def scale(self, node: ast.Call, func: ast.Attribute, owner: Value) -> Value | None:
        """`scaler.scale(loss)`."""
        owner = self.constructors.as_object(owner, func.value)
        if not isinstance(owner, Thing) or self.objects.role(owner, func.value) is not Role.SCALER:
            return None
        given = self.evaluator.arguments(node)[:1]
        if given and isinstance(given[0], Tensor):
            return replace(given[0], scaled=True)
        return replace(mix(given), scaled=True, divided=None)

    def unscale(self, node: ast.Call, func: ast.Attribute, owner: Value) -> Value | None:
        """`scaler.unscale_(optimizer)`."""
        arguments = self.evaluator.arguments(node)
        for item in arguments[:1]:
            for target in item.items if isinstance(item, Many) else (item,):
                keys, _ = roots(target)
                self.effects.act_on(Unscale, node, keys, scaled=True)
        if not arguments:
            self.effects.act_on(Unscale, node, NOBODY, may=True)
        return Lit(None)

    def update(self, node: ast.Call, func: ast.Attribute, owner: Value) -> Value | None:
        """`scaler.update()`."""
        owner = self.constructors.as_object(owner, func.value)
        if not isinstance(owner, Thing) or self.objects.role(owner, func.value) is not Role.SCALER:
            return None
        self.evaluator.arguments(node)
        self.effects.update(node)
        return Lit(None)

    def sharpness(self, node: ast.Call, func: ast.Attribute, owner: Value) -> Value | None:
        """SAM's two steps: each uses the gradients, and clears them where it is asked to."""
        if not isinstance(owner, Thing) or isinstance(self.objects.attribute(owner, func.attr), Fn):
            return None
        self.evaluator.arguments(node)
        self.effects.step(node, owner.key)
        flag = keyword(node, "zero_grad") or (node.args[0] if node.args else None)
        if flag is not None and not (isinstance(flag, ast.Constant) and flag.value is False):
            self.effects.clear(owner, node, to_none=True)
        return Lit(None)

    def optimizer_step(self, node: ast.Call, func: ast.Attribute, owner: Value) -> Value | None:
        """`xm.optimizer_step(optimizer)`."""
        arguments = self.evaluator.arguments(node)
        stepped = arguments[0] if arguments else None
        if not isinstance(stepped, Thing):
            return None
        if isinstance(owner, Origin):
            self.effects.step(node, stepped.key)
            return Lit(None)
        seen = isinstance(owner, Thing) and isinstance(self.objects.attribute(owner, func.attr), Fn)
        if not seen and self._is_optimizer(stepped, node):
            # Whoever it is, and whatever else is done there.
            self.effects.step(node, stepped.key)
            self.effects.unknown(node, stepped.key)
            return Lit(None)
        return None

    def clip(self, node: ast.Call, owner: Value | None) -> Value:
        """Limits gradients, however it is called; an infinite limit only measures."""
        arguments = self.evaluator.arguments(node)
        if without_limit(node):
            return Tensor()
        target: Value | None = arguments[0] if arguments else None
        role = self.objects.role(owner) if isinstance(owner, Thing) else Role.NONE
        keys, perhaps = roots(target)
        unscales = role in (Role.ACCELERATOR, Role.FABRIC, Role.SCALER)
        if isinstance(owner, Thing) and not unscales:
            method = self.objects.attribute(
                owner, node.func.attr if isinstance(node.func, ast.Attribute) else ""
            )
            if isinstance(method, Fn):
                return self.functions.call(method, node, arguments)
            if not isinstance(target, (Params, Thing, Many)) or not keys:
                keys = frozenset({owner.key})  # FSDP: model.clip_grad_norm_(1.0)
        if unscales:
            self.effects.act_on(Unscale, node, keys, scaled=None)
        partial = isinstance(target, Params) and target.some
        self.effects.act_on(Clip, node, keys | perhaps, may=partial)
        return Tensor()

    def scaled_step(self, node: ast.Call, arguments: list[Value]) -> Value:
        """`loss_scaler(loss, optimizer, …)`: backward, unscale, clip, step and update in one call."""
        update = keyword(node, "update_grad", "need_update")
        optimizer = arguments[1]
        self.effects.backward(node, replace(mix(arguments[:1]), scaled=None))
        if isinstance(optimizer, Thing):
            if update is None:
                self.effects.step(node, optimizer.key, scaled=None)
            else:
                out = self.emitter.divert()
                self.effects.step(node, optimizer.key, scaled=None)
                flow = Seq(tuple(self.emitter.restore(out)))
                test = self.conditions.expression(update)
                self.emitter.add(Alt(test, flow, Seq(()), self.emitter.site(node)))
        return Tensor()


def without_limit(node: ast.Call) -> bool:
    """Whether a call is handed infinity."""
    texts = (text_of(arg) for arg in (*node.args, *(kw.value for kw in node.keywords)))
    return any(text.replace('"', "'").lower() in _INFINITE for text in texts)


_INFINITE = frozenset({"float('inf')", "math.inf", "np.inf", "torch.inf", "inf", "numpy.inf"})
