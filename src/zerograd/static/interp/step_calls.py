"""Calls that use gradients: steps and clips."""

from __future__ import annotations

import ast

from zerograd.core.events import Clip, Unscale
from zerograd.core.records import dataclass, replace
from zerograd.core.training_loop import NotFollowed
from zerograd.static.frameworks import registry
from zerograd.static.frameworks.table import LibraryCall, Role, Steps, Whose
from zerograd.static.frameworks.torch import SCALER
from zerograd.static.interp.constructors import Constructors
from zerograd.static.interp.effects import NOBODY, Effects, is_constant, keyword
from zerograd.static.interp.environment import KnownObjects
from zerograd.static.interp.evaluator import Evaluator
from zerograd.static.interp.framework_calls import FrameworkCalls
from zerograd.static.interp.functions import Functions
from zerograd.static.interp.gradient_calls import seen_to_clear, seen_to_clear_after_use
from zerograd.static.interp.names import Names
from zerograd.static.interp.objects import Classes, Objects
from zerograd.static.read import vocabulary
from zerograd.static.read.keys import Key
from zerograd.static.read.syntax_tree import (
    arguments,
    called_name,
    parameters,
    reached,
    text_of,
)
from zerograd.static.read.values import (
    Fn,
    Klass,
    Lit,
    Many,
    Params,
    Tensor,
    Thing,
    Value,
    mix,
    roots,
)

_WRAPPER = LibraryCall("step", Steps(Whose.FIRST, scaled=None))
"""What the `step` of an unknown library's object does with an optimizer."""
HELPERS = 2
"""Calls that are followed from the step of a project's optimizer to what clears for it."""
_CLEARS_AFTER = ("zero_grad", "set_to_none", "zero_grads")
"""Arguments of a step that make it clear afterwards."""


@dataclass(eq=False)
class StepCalls:
    """Handles steps and clips."""

    known: KnownObjects
    evaluator: Evaluator
    names: Names
    classes: Classes
    objects: Objects
    effects: Effects
    constructors: Constructors
    functions: Functions
    frameworks: FrameworkCalls

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
        call = registry.call_on("step", role)
        given = self.frameworks.is_given(Role.OPTIMIZER, node, arguments)
        handed = (given or role is SCALER) and bool(node.args)
        stepped = node.args[0] if handed else func.value
        if (handed or role is Role.OPTIMIZER) and self.names.is_misspelt(stepped):
            self.effects.unseen(node, NOBODY, NotFollowed.UNSEEN_STEP)  # it ends in a NameError
            return Lit(None)
        if given and role is Role.OTHER:
            return Lit(None)  # a scheduler sets the rates of the optimizer that it is handed
        if given and (call is None or call.needs_owner):
            call = _WRAPPER
        if call is not None:
            return self.frameworks.perform(call, node, owner, arguments)
        if role is not Role.OPTIMIZER:
            return None if role is Role.NONE and arguments else Lit(None)
        return self._optimizer_step(node, owner, arguments)

    def _own_step(self, node: ast.Call, owner: Thing, method: Fn) -> Value:
        """The step of a project's own optimizer: it uses the gradients, and may clear them as well."""
        arguments = self.evaluator.arguments(node)
        if arguments and isinstance(arguments[0], Fn):
            self.functions.call(arguments[0], node, [], force=True)
        self.objects.role(replace(owner, role=Role.OPTIMIZER))
        if not _only_uses_gradients(method):
            self.known.own_steps[owner.key] = owner.params
        self.effects.step(node, owner.key)
        unseen = bool(arguments) and not isinstance(arguments[0], (Fn, Lit))
        if seen_to_clear_after_use(method) or self._has_clearing_helper(method, method.klass):
            self.effects.unknown(node, owner.key, NotFollowed.UNCLEAR_CLEAR)
        elif unseen and _runs_what_it_is_handed(method):
            self.effects.unknown(node, owner.key, NotFollowed.UNSEEN_STEP)
        return Lit(None)

    def _has_clearing_helper(self, method: Fn, klass: Klass | None, deep: int = 0) -> bool:
        """Whether a step of the project calls a function or a method that clears: `_update(self)` for a few classes."""
        facts = method.module.facts[method.node]
        return any(
            seen_to_clear(one)
            or (deep < HELPERS and self._has_clearing_helper(one, one.klass or klass, deep + 1))
            for one, _ in self.functions.graph.callees(method.module, facts, klass, deep)
            if one.name != "step"
        )

    def _optimizer_step(self, node: ast.Call, owner: Thing, arguments: list[Value]) -> Value:
        closure = arguments[0] if node.args or keyword(node, "closure") is not None else None
        if isinstance(closure, Fn):
            self.functions.call(closure, node, [], force=True)
            if owner.key not in self.known.of_torch:
                # It may run the backward of what the closure returns, or compute gradients in its own way.
                self.effects.note_unseen(node, [closure], "step")
            self.effects.step(node, owner.key)
            if not owner.made and owner.params is None:
                # Optimizers that need a closure may clear for it.
                self.effects.unknown(node, owner.key, NotFollowed.UNSEEN_STEP)
        elif closure is None or closure == Lit(None):
            self.effects.step(node, owner.key)
            if any(one.arg not in ("closure", *_CLEARS_AFTER) for one in node.keywords):
                # No optimizer of torch takes it: what else this one's step does is not seen.
                self.effects.unknown(node, owner.key, NotFollowed.UNSEEN_STEP)
        else:
            if self._gets_no_loss(node, arguments):
                self.effects.step(node, owner.key)  # it has no loss that it could run backward
            # Wrappers that take the loss, or a closure that cannot be seen, may do the rest as well.
            self.effects.unknown(node, owner.key, NotFollowed.UNSEEN_STEP)
        if is_constant(keyword(node, *_CLEARS_AFTER), True):
            self.effects.clear(owner, node, to_none=True)
        return Lit(None)

    def _gets_no_loss(self, node: ast.Call, given: list[Value]) -> bool:
        """Whether a step is handed only numbers, and modules that are called before it."""
        modules = set[Key]().union(*self.effects.nesting.forwards.values())
        pairs = zip(arguments(node), given, strict=True)
        return all(
            isinstance(value, Lit)
            or (isinstance(value, Thing) and value.key in modules)
            or (isinstance(asked, ast.Call) and called_name(asked) == "item")
            for asked, value in pairs
        )

    def clip(self, node: ast.Call, owner: Value | None) -> Value:
        """Limits gradients, however it is called; an infinite limit only measures."""
        arguments = self.evaluator.arguments(node)
        if without_limit(node):
            return Tensor()
        target: Value | None = arguments[0] if arguments else None
        role = self.objects.role(owner) if isinstance(owner, Thing) else Role.NONE
        keys, perhaps = roots(target)
        unscales = role in registry.UNSCALES_TO_CLIP
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
        partial = isinstance(target, Params) and (target.some or _leaves_out(node))
        unsure = partial or self._is_scaled(arguments)
        self.effects.act_on(Clip, node, keys | perhaps, may=unsure)
        return Tensor()

    def only_clips(self, name: str, arguments: list[Value]) -> bool:
        """Whether an unseen function has the name of a clip, and gets parameters, but no optimizer or scaler."""
        if not vocabulary.clips(name) or not any(isinstance(one, Params) for one in arguments):
            return False
        return not any(isinstance(one, Thing) and one.role for one in arguments)

    def _is_scaled(self, limits: list[Value]) -> bool:
        """Whether a limit was computed with a scaler: it limits gradients that are still scaled."""
        return any(self.known.roles.get(key) is SCALER for key in roots(mix(limits))[0])


def _only_uses_gradients(method: Fn) -> bool:
    """Whether a step of the project computes with gradients, calls no other method, and leaves them as they are."""
    read = False
    for node in reached(method.node):
        if isinstance(node, ast.Call) and text_of(node.func).startswith(("self.", "super(")):
            return False
        if isinstance(node, ast.Attribute):
            if node.attr in ("step", "zero_grad", "zero_", "backward"):
                return False
            if node.attr == "grad":
                read = True
                if isinstance(node.ctx, ast.Store):
                    return False
    return read


def _runs_what_it_is_handed(method: Fn) -> bool:
    """Whether a step of the project calls its argument, hands the argument to another step, or runs a backward."""
    if isinstance(method.node, ast.Lambda) or "backward" in method.module.facts[method.node].called:
        return True
    handed = {arg.arg for arg in parameters(method.node)[1:]}
    for node in reached(method.node):
        if isinstance(node, ast.Call):
            called = [node.func]
            if isinstance(node.func, ast.Attribute) and node.func.attr == "step":
                called += arguments(node)
            if any(isinstance(one, ast.Name) and one.id in handed for one in called):
                return True
    return False


def _leaves_out(clip: ast.Call) -> bool:
    """Whether a clip is handed a comprehension that leaves parameters out, not only those without gradients."""
    given = clip.args[0] if clip.args else None
    if not isinstance(given, (ast.ListComp, ast.GeneratorExp)):
        return False
    tests = (text_of(test) for part in given.generators for test in part.ifs)
    return any("grad" not in test for test in tests)


def without_limit(node: ast.Call) -> bool:
    """Whether a call is handed infinity, or a number that no norm reaches."""
    given = arguments(node)
    if any(isinstance(arg, ast.Constant) and _is_huge(arg.value) for arg in given):
        return True
    return any(text_of(arg).replace('"', "'").lower() in _INFINITE for arg in given)


def _is_huge(value: object) -> bool:
    return isinstance(value, (int, float)) and value >= 1e6


_INFINITE = frozenset({"float('inf')", "math.inf", "np.inf", "torch.inf", "inf", "numpy.inf"})
