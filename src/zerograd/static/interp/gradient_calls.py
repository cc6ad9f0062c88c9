"""Calls and statements that fill, clear or change gradients."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

from zerograd.core.events import Kind
from zerograd.core.records import replace
from zerograd.explore.flow import walk
from zerograd.explore.logic import WINDOW_LENGTH
from zerograd.static.interp.constructors import (
    as_object,
    built_object,
    is_optimizer_class,
    seen_to_clear,
)
from zerograd.static.interp.effects import (
    Act,
    act_on,
    clear,
    emit_backward,
    freeze,
    handed,
    keyword,
    step_by_hand,
)
from zerograd.static.interp.inline import inline
from zerograd.static.read.file_index import text_of
from zerograd.static.read.values import (
    ACCELERATOR,
    ENGINE,
    FABRIC,
    Fn,
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
    within,
)

if TYPE_CHECKING:
    from zerograd.static.interp.statements import Lower

WRAPPED = (ACCELERATOR, FABRIC, ENGINE)


def parameter_method(
    lower: Lower, node: ast.Call, func: ast.Attribute, owner: Params | Grad, arguments: list[Value]
) -> Value:
    """A method of a parameter or of its gradient."""
    if isinstance(owner, Params):
        taken = mix([*arguments])
        if func.attr.endswith("_") and taken.grads & owner.keys:
            step_by_hand(lower, node, owner.keys)
        return owner
    if func.attr in ("zero_", "fill_") or (func.attr == "mul_" and arguments[:1] == [Lit(0)]):
        if func.attr != "fill_" or arguments[:1] in ([Lit(0)], [Lit(0.0)]):
            clear(lower, owner, node, to_none=False, bare=lower.unguarded)
        return owner
    if func.attr in ("clamp_", "clip_"):
        act_on(lower, Kind.CLIP, node, owner.keys, may=owner.some, bare=lower.unguarded)
    elif func.attr in ("div_", "mul_", "copy_", "add_", "sub_", "set_"):
        kind = Kind.ASSIGN if func.attr in ("copy_", "set_") else Kind.UNSCALE
        bare = lower.unguarded and not owner.some
        act_on(lower, kind, node, owner.keys, scaled=False, may=kind is Kind.ASSIGN, bare=bare)
    return owner


def zero_grad_call(lower: Lower, node: ast.Call, func: ast.Attribute, owner: Value) -> Value | None:
    """`x.zero_grad()`, whatever x is."""
    owner = as_object(lower, owner, func.value)
    if isinstance(owner, Thing):
        method = lower.attribute(owner, "zero_grad")
        if isinstance(method, Fn) and not is_optimizer_class(lower, method):
            return _own_clear(lower, node, owner, method)
        if isinstance(method, Fn) and not seen_to_clear(method):
            handed(lower, node)
            return Lit(None)
    handed(lower, node)
    flag = keyword(node, "set_to_none") or (node.args[0] if node.args else None)
    to_none = not (isinstance(flag, ast.Constant) and flag.value is False)
    if isinstance(owner, Thing):
        lower.role(owner, func.value)
    clear(lower, owner, node, to_none=to_none)
    return Lit(None)


def backward_call(lower: Lower, node: ast.Call, func: ast.Attribute, owner: Value) -> Value | None:
    """`loss.backward()`, `engine.backward(loss)`, `torch.autograd.backward(loss)`."""
    if isinstance(owner, Thing):
        method = lower.attribute(owner, func.attr)
        if isinstance(method, Fn):
            return None
        role = lower.role(owner, func.value)
        if role in WRAPPED or (node.args and _is_wrapper(lower, node, func, owner)):
            return _wrapped_backward(lower, node, owner, role)
    elif isinstance(owner, (Origin, Fn, Klass)):
        arguments = handed(lower, node)
        if isinstance(owner, Origin) and owner.name in ("torch.autograd", "torch"):
            emit_backward(lower, node, mix(arguments[:1]))
            return Lit(None)
        return None
    handed(lower, node)
    inputs = keyword(node, "inputs")
    if inputs is not None:
        emit_backward(lower, node, lower.peek(inputs))
        return Lit(None)
    given = node.args[0] if node.args else keyword(node, "gradient")
    same = given is not None and text_of(given) == text_of(func.value)
    emit_backward(lower, node, owner, own_gradient=same, bypasses=_bypassed(lower, owner))
    return Lit(None)


def _bypassed(lower: Lower, owner: Value) -> str:
    """The wrapper that had to run this backward."""
    if lower.accumulating:
        return lower.accumulating
    for key in roots(owner)[0]:
        if lower.roles.get(key) == ENGINE:
            return "the engine"
        for prepared, wrapper in lower.prepared.items():
            if within(key, prepared):
                return wrapper
    return ""


def _is_wrapper(lower: Lower, node: ast.Call, func: ast.Attribute, owner: Thing) -> bool:
    """`trainer.backward(loss)` against `loss.backward(gradient)`."""
    if owner.klass is not None:
        return True
    first = lower.peek(node.args[0])
    name = text_of(node.args[0]).lower()
    return (
        "loss" in name
        and "loss" not in text_of(func.value).lower()
        and isinstance(first, (Tensor, Thing))
    )


def _wrapped_backward(lower: Lower, node: ast.Call, owner: Thing, role: str) -> Value:
    arguments = handed(lower, node)
    tensor = mix(arguments[:1])
    whose = frozenset({owner.key}) if role == ENGINE else frozenset()
    divisor = WINDOW_LENGTH if role == ACCELERATOR and lower.accumulating else None
    if divisor is None:
        tensor = replace(tensor, divided=None)
    else:
        tensor = replace(tensor, divisor=divisor, divided=True)
    emit_backward(lower, node, replace(tensor, scaled=None), whose, wrapped=True)
    return Lit(None)


def manual_backward_call(
    lower: Lower, node: ast.Call, func: ast.Attribute, owner: Value
) -> Value | None:
    """Lightning's `self.manual_backward(loss)`."""
    arguments = handed(lower, node)
    tensor = mix(arguments[:1])
    emit_backward(lower, node, replace(tensor, scaled=None))
    return Lit(None)


def _own_clear(lower: Lower, node: ast.Call, owner: Thing, method: Fn) -> Value:
    """A project's own `zero_grad`: what it is seen to clear, or else what it belongs to."""
    before = len(lower.out)
    value = inline(lower, method, node, None)
    seen = any(
        isinstance(part, Act) and part.event.kind in (Kind.ZERO, Kind.UNKNOWN)
        for flow in lower.out[before:]
        for part in walk(flow)
    )
    if not seen and seen_to_clear(method):
        clear(lower, owner, node, to_none=True)
    return value


def parameters_call(
    lower: Lower, node: ast.Call, func: ast.Attribute, owner: Value
) -> Value | None:
    """`module.parameters()` and its like."""
    handed(lower, node)
    if isinstance(owner, Thing) and isinstance(lower.attribute(owner, func.attr), Fn):
        return Params(frozenset({owner.key}))
    keys, _ = roots(owner)
    if isinstance(owner, Tensor):
        # What has parameters is an object, whatever it was computed from.
        keys = frozenset({lower.variable(func.value) or text_of(func.value)})
    params = Params(keys)
    return Many((Lit("name"), params)) if func.attr.startswith("named") else params


def requires_grad_call(
    lower: Lower, node: ast.Call, func: ast.Attribute, owner: Value
) -> Value | None:
    """`x.requires_grad_(…)`: freezes, thaws, or makes a leaf."""
    arguments = handed(lower, node)
    on = not arguments or arguments[0] != Lit(False)
    freeze(lower, owner, not on)
    if isinstance(owner, Tensor) and on:
        return built_object(lower, node)
    return owner


def store_attribute(
    lower: Lower, target: ast.Attribute, value: Value, source: ast.expr | None, node: ast.AST
) -> None:
    """`p.grad = …`, `p.data = …`, `p.requires_grad = …`."""
    owner = lower.peek(target.value)
    if target.attr == "requires_grad":
        if isinstance(value, Lit):
            freeze(lower, owner, value.value is False)
        else:
            freeze(lower, owner, True)
        return
    if target.attr == "data":
        if isinstance(owner, Grad):
            _assign_gradient(lower, Params(owner.keys, owner.some), value, source, node)
        elif isinstance(owner, (Params, Thing)):
            keys, _ = roots(owner)
            if mix([value]).grads & keys:
                step_by_hand(lower, node, keys)
        return
    _assign_gradient(lower, owner, value, source, node)


def _assign_gradient(
    lower: Lower, owner: Value, value: Value, source: ast.expr | None, node: ast.AST
) -> None:
    if isinstance(owner, Tensor) and roots(owner)[0]:
        return  # the gradient of a result, not of a parameter
    if value == Lit(None) or (source is not None and _is_zeros(source)):
        clear(lower, owner, node, to_none=value == Lit(None))
        return
    keys, _ = roots(owner)
    if mix([value]).grads & keys:
        act_on(lower, Kind.UNSCALE, node, keys, scaled=False, may=True)
        return
    act_on(lower, Kind.ASSIGN, node, keys, may=lower.some)


def _is_zeros(node: ast.expr) -> bool:
    if not isinstance(node, ast.Call):
        return False
    name = text_of(node.func).rsplit(".", 1)[-1]
    if name in ("zeros_like", "zeros", "new_zeros"):
        return True
    return isinstance(node.func, ast.Attribute) and _is_zeros(node.func.value)


def updates_by_hand(lower: Lower, target: ast.expr, old: Value, new: Value, node: ast.AST) -> bool:
    """`p.data -= lr * p.grad`, `w -= lr * w.grad`, `p.grad /= n`, `p.grad *= 0`."""
    if isinstance(old, Grad):
        if isinstance(node, ast.AugAssign) and new == Lit(0) and isinstance(node.op, ast.Mult):
            clear(lower, old, node, to_none=False, bare=lower.unguarded)
        elif isinstance(node, ast.AugAssign) and isinstance(node.op, (ast.Div, ast.Mult)):
            act_on(lower, Kind.UNSCALE, node, old.keys, scaled=False, may=True)
        else:
            act_on(lower, Kind.ASSIGN, node, old.keys, may=True)
        return True
    keys, _ = roots(old)
    if isinstance(old, (Params, Thing)) and mix([new]).grads & keys:
        step_by_hand(lower, node, keys)
        return True
    return False
