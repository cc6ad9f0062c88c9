"""Calls that use gradients: steps, scalers, clips, and the wrappers that do several at once."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

from zerograd.core.events import Kind
from zerograd.core.records import replace
from zerograd.explore.flow import Alt, Seq
from zerograd.static.interp import conditions
from zerograd.static.interp.constructors import (
    as_object,
    is_optimizer_class,
    seen_to_clear,
)
from zerograd.static.interp.effects import (
    BLANK,
    Act,
    act_on,
    clear,
    emit_backward,
    emit_step,
    handed,
    is_true,
    keyword,
    unseen,
)
from zerograd.static.interp.inline import inline
from zerograd.static.read.file_index import text_of
from zerograd.static.read.values import (
    ACCELERATOR,
    ENGINE,
    FABRIC,
    OPTIMIZER,
    SCALER,
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

if TYPE_CHECKING:
    from zerograd.static.interp.statements import Lower


def step_call(lower: Lower, node: ast.Call, func: ast.Attribute, owner: Value) -> Value | None:
    """`x.step(…)`: an optimizer, a scaler, an engine, or something else altogether."""
    owner = as_object(lower, owner, func.value)
    if not isinstance(owner, Thing):
        return None
    method = lower.attribute(owner, "step")
    if isinstance(method, Fn) and not is_optimizer_class(lower, method):
        return None
    if isinstance(method, Fn):
        return _own_step(lower, node, owner, method)
    arguments = handed(lower, node)
    role = lower.role(owner, func.value)
    stepped = arguments[0] if arguments else None
    if role == SCALER or (isinstance(stepped, Thing) and _is_optimizer(lower, stepped, node)):
        return _scaler_step(lower, node, stepped, role)
    if role == ENGINE:
        emit_step(lower, node, owner.key)
        clear(lower, owner, node, to_none=True)
        return Lit(None)
    if role != OPTIMIZER:
        return None if role == "" and arguments else Lit(None)
    return _optimizer_step(lower, node, owner, arguments)


def _own_step(lower: Lower, node: ast.Call, owner: Thing, method: Fn) -> Value:
    """The step of a project's own optimizer: it uses the gradients, and may clear them as well."""
    arguments = handed(lower, node)
    if arguments and isinstance(arguments[0], Fn):
        inline(lower, arguments[0], node, [], force=True)
    lower.role(replace(owner, role=OPTIMIZER))
    emit_step(lower, node, owner.key)
    if seen_to_clear(method) or (arguments and not isinstance(arguments[0], (Fn, Lit))):
        unseen(lower, node, frozenset({owner.key}))
    return Lit(None)


def _is_optimizer(lower: Lower, thing: Thing, node: ast.Call) -> bool:
    return lower.role(thing, node.args[0] if node.args else node.keywords[0].value) == OPTIMIZER


def _scaler_step(lower: Lower, node: ast.Call, stepped: Value | None, role: str) -> Value:
    if isinstance(stepped, Thing):
        lower.roles.setdefault(stepped.key, OPTIMIZER)
        emit_step(lower, node, stepped.key, scaled=True if role == SCALER else None)
    elif isinstance(stepped, Many):
        for item in stepped.items:
            _scaler_step(lower, node, item, role)
    return Lit(None)


def _optimizer_step(lower: Lower, node: ast.Call, owner: Thing, arguments: list[Value]) -> Value:
    closure = arguments[0] if node.args or keyword(node, "closure") is not None else None
    if isinstance(closure, Fn):
        inline(lower, closure, node, [], force=True)
        emit_step(lower, node, owner.key)
        if not owner.made and owner.params is None:
            # Optimizers that take a closure in earnest may clear for it.
            unseen(lower, node, frozenset({owner.key}))
    elif closure is None or closure == Lit(None):
        emit_step(lower, node, owner.key)
    else:
        # Wrappers that take the loss, or a closure that cannot be seen, may do the rest as well.
        unseen(lower, node, frozenset({owner.key}))
    if is_true(keyword(node, "zero_grad", "set_to_none", "zero_grads")):
        clear(lower, owner, node, to_none=True)
    return Lit(None)


def scale_call(lower: Lower, node: ast.Call, func: ast.Attribute, owner: Value) -> Value | None:
    """`scaler.scale(loss)`."""
    owner = as_object(lower, owner, func.value)
    if not isinstance(owner, Thing) or lower.role(owner, func.value) != SCALER:
        return None
    given = handed(lower, node)[:1]
    if given and isinstance(given[0], Tensor):
        return replace(given[0], scaled=True)
    return replace(mix(given), scaled=True, divided=None)


def unscale_call(lower: Lower, node: ast.Call, func: ast.Attribute, owner: Value) -> Value | None:
    """`scaler.unscale_(optimizer)`."""
    arguments = handed(lower, node)
    for item in arguments[:1]:
        targets = item.items if isinstance(item, Many) else (item,)
        for target in targets:
            keys, _ = roots(target)
            act_on(lower, Kind.UNSCALE, node, keys, scaled=True)
    if not arguments:
        act_on(lower, Kind.UNSCALE, node, frozenset(), may=True)
    return Lit(None)


def update_call(lower: Lower, node: ast.Call, func: ast.Attribute, owner: Value) -> Value | None:
    """`scaler.update()`."""
    owner = as_object(lower, owner, func.value)
    if not isinstance(owner, Thing) or lower.role(owner, func.value) != SCALER:
        return None
    handed(lower, node)
    lower.emit(Kind.UPDATE, node, Act(BLANK, anyone=True))
    return Lit(None)


def sharpness_call(lower: Lower, node: ast.Call, func: ast.Attribute, owner: Value) -> Value | None:
    """SAM's two steps: each uses the gradients, and clears them where it is told to."""
    if not isinstance(owner, Thing) or isinstance(lower.attribute(owner, func.attr), Fn):
        return None
    handed(lower, node)
    emit_step(lower, node, owner.key)
    flag = keyword(node, "zero_grad") or (node.args[0] if node.args else None)
    if flag is not None and not (isinstance(flag, ast.Constant) and flag.value is False):
        clear(lower, owner, node, to_none=True)
    return Lit(None)


def optimizer_step_call(
    lower: Lower, node: ast.Call, func: ast.Attribute, owner: Value
) -> Value | None:
    """`xm.optimizer_step(optimizer)`."""
    arguments = handed(lower, node)
    stepped = arguments[0] if arguments else None
    if not isinstance(stepped, Thing):
        return None
    if isinstance(owner, Origin):
        emit_step(lower, node, stepped.key)
        return Lit(None)
    seen = isinstance(owner, Thing) and isinstance(lower.attribute(owner, func.attr), Fn)
    if not seen and _is_optimizer(lower, stepped, node):
        # Whoever it is, and whatever else is done there.
        emit_step(lower, node, stepped.key)
        unseen(lower, node, frozenset({stepped.key}))
        return Lit(None)
    return None


def clip_call(lower: Lower, node: ast.Call, owner: Value | None) -> Value:
    """Limits gradients, however it is called; an infinite limit only measures."""
    arguments = handed(lower, node)
    if without_limit(node):
        return Tensor()
    target: Value | None = arguments[0] if arguments else None
    role = lower.role(owner) if isinstance(owner, Thing) else ""
    keys, perhaps = roots(target)
    if isinstance(owner, Thing) and role not in (ACCELERATOR, FABRIC, SCALER):
        method = lower.attribute(
            owner, node.func.attr if isinstance(node.func, ast.Attribute) else ""
        )
        if isinstance(method, Fn):
            return inline(lower, method, node, arguments)
        if not isinstance(target, (Params, Thing, Many)) or not keys:
            keys = frozenset({owner.key})  # FSDP: model.clip_grad_norm_(1.0)
    if role in (ACCELERATOR, FABRIC, SCALER):
        act_on(lower, Kind.UNSCALE, node, keys, scaled=None)
    partial = isinstance(target, Params) and target.some
    act_on(lower, Kind.CLIP, node, keys | perhaps, may=partial)
    return Tensor()


def without_limit(node: ast.Call) -> bool:
    """Whether a call is handed infinity."""
    texts = (text_of(arg) for arg in (*node.args, *(kw.value for kw in node.keywords)))
    return any(text.replace('"', "'").lower() in _INFINITE for text in texts)


_INFINITE = frozenset({"float('inf')", "math.inf", "np.inf", "torch.inf", "inf", "numpy.inf"})


def loss_scaler_call(lower: Lower, node: ast.Call, arguments: list[Value]) -> Value:
    """`loss_scaler(loss, optimizer, …)`: backward, unscale, clip, step and update in one call."""
    update = keyword(node, "update_grad", "need_update")
    optimizer = arguments[1]
    emit_backward(lower, node, replace(mix(arguments[:1]), scaled=None))
    if isinstance(optimizer, Thing):
        if update is None:
            emit_step(lower, node, optimizer.key, scaled=None)
        else:
            out, lower.out = lower.out, []
            emit_step(lower, node, optimizer.key, scaled=None)
            flow, lower.out = Seq(tuple(lower.out)), out
            test = conditions.expression(lower, update)
            lower.out.append(Alt(test, flow, Seq(()), lower.site(node)))
    return Tensor()
