"""What a call is: the project's own, torch's, a framework's, or one that cannot be seen."""

from __future__ import annotations

import ast
from collections.abc import Callable
from typing import TYPE_CHECKING

from zerograd.core.records import replace
from zerograd.explore.flow import Set
from zerograd.explore.logic import Const, Synchronises
from zerograd.static.interp.constructors import (
    built_object,
    lightning_optimizers,
    make,
    role_of_class,
    unwrapped,
)
from zerograd.static.interp.effects import (
    clear,
    emit_step,
    hand_to_unseen,
    handed,
    is_benign,
    result_of,
    unseen,
)
from zerograd.static.interp.gradient_calls import (
    backward_call,
    manual_backward_call,
    parameter_method,
    parameters_call,
    requires_grad_call,
    zero_grad_call,
)
from zerograd.static.interp.inline import construct, inline
from zerograd.static.interp.library_calls import outside_call
from zerograd.static.interp.step_calls import (
    clip_call,
    loss_scaler_call,
    optimizer_step_call,
    scale_call,
    sharpness_call,
    step_call,
    unscale_call,
    update_call,
)
from zerograd.static.read import vocabulary
from zerograd.static.read.file_index import text_of
from zerograd.static.read.values import (
    ACCELERATOR,
    FABRIC,
    LOSS_SCALER,
    NOTHING,
    OPTIMIZER,
    SCALER,
    Bound,
    Fn,
    Grad,
    Klass,
    Lit,
    Many,
    Origin,
    Params,
    Table,
    Tensor,
    Thing,
    Value,
    mix,
)

if TYPE_CHECKING:
    from zerograd.static.interp.statements import Lower

_OPTIMIZER_READS = frozenset(
    {"add_param_group", "state_dict", "load_state_dict", "share_memory", "train", "eval"}
)


def call(lower: Lower, node: ast.Call) -> Value:
    """The value of a call; what it does to gradients is emitted."""
    if isinstance(node.func, ast.Attribute):
        return _method_call(lower, node, node.func)
    callee = lower.value(node.func)
    if isinstance(callee, Bound):
        func = ast.copy_location(ast.Attribute(node.func, callee.name, ast.Load()), node.func)
        handled = _METHODS[callee.name](lower, node, func, callee.owner)
        return handled if handled is not None else NOTHING
    if isinstance(callee, Origin):
        return outside_call(lower, node, callee.name)
    return call_value(lower, node, callee)


def _method_call(lower: Lower, node: ast.Call, func: ast.Attribute) -> Value:
    if is_super(func.value):
        return _super_call(lower, node, func.attr)
    owner = lower.value(func.value)
    handler = _METHODS.get(func.attr)
    if handler is not None:
        handled = handler(lower, node, func, owner)
        if handled is not None:
            return handled
    if func.attr in vocabulary.CLIPS:
        return clip_call(lower, node, owner)
    if isinstance(owner, Thing):
        return _thing_method(lower, node, func, owner)
    if isinstance(owner, Origin):
        value = lower.attribute(owner, func.attr)
        if isinstance(value, Origin):
            return outside_call(lower, node, value.name)
        return call_value(lower, node, value)
    if isinstance(owner, Klass):
        return call_value(lower, node, lower.attribute(owner, func.attr))
    arguments = handed(lower, node)
    if isinstance(owner, (Params, Grad)):
        return parameter_method(lower, node, func, owner, arguments)
    if isinstance(owner, Table):
        return _table_method(lower, func, owner, arguments)
    if isinstance(owner, Many):
        return _list_method(lower, func, owner, arguments)
    if isinstance(owner, Tensor):
        return _tensor_method(lower, func, owner, arguments)
    return result_of(lower, [owner], arguments)


def _tensor_method(
    lower: Lower, func: ast.Attribute, owner: Tensor, arguments: list[Value]
) -> Value:
    if func.attr in vocabulary.CUT:
        return Tensor()
    if func.attr in ("div_", "mul_", "div", "mul") or (func.attr == "sum" and not arguments):
        changed = replace(owner, divided=None, divisor=None)
        if func.attr.endswith("_") and isinstance(func.value, ast.Name):
            lower.frame.env[func.value.id] = changed
        return changed
    return result_of(lower, [owner], arguments)


def is_super(node: ast.expr) -> bool:
    """Whether an expression is `super()`."""
    return (
        isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "super"
    )


def _super_call(lower: Lower, node: ast.Call, name: str) -> Value:
    arguments = handed(lower, node)
    klass, owner = lower.frame.klass, lower.frame.owner
    if klass is not None:
        for base in lower.lineage(klass)[1:]:
            method = base.method(name)
            if method is not None:
                return inline(
                    lower, Fn(method, base.module, name, owner, None, base), node, arguments
                )
        optimizer = role_of_class(lower, klass) == OPTIMIZER
        if name == "zero_grad" and isinstance(owner, Thing):
            clear(lower, owner, node, to_none=True)
        elif name == "step" and isinstance(owner, Thing) and optimizer:
            emit_step(lower, node, owner.key)
        elif isinstance(owner, Thing) and not is_benign(name):
            unseen(lower, node, frozenset({owner.key}))
    return NOTHING


def _thing_method(lower: Lower, node: ast.Call, func: ast.Attribute, owner: Thing) -> Value:
    method = lower.attribute(owner, func.attr)
    if isinstance(method, (Fn, Klass)):
        return call_value(lower, node, method)
    if func.attr in vocabulary.PASS_THROUGH:
        handed(lower, node)
        return owner
    if func.attr == "get" and node.args and isinstance(node.args[0], ast.Constant):
        return lower.item(owner, repr(node.args[0].value))
    if func.attr == "optimizers":  # Lightning gives the same ones each time
        handed(lower, node)
        return lightning_optimizers(lower, owner)
    if isinstance(method, Thing) and lower.holds(owner, func.attr):
        return call_value(lower, node, method)
    arguments = handed(lower, node)
    role = lower.role(owner, func.value)
    if role in (ACCELERATOR, FABRIC) and vocabulary.PREPARES.match(func.attr):
        return _prepared(lower, node, func, arguments)
    if owner.klass is not None or owner.key == "self":
        if vocabulary.MEDDLES.search(func.attr) and not is_benign(func.attr):
            _unseen_method(lower, node, owner)
        return result_of(lower, [method], arguments, frozenset({owner.key}), node)
    return _foreign_method(lower, node, func, owner, method, arguments)


def _prepared(lower: Lower, node: ast.Call, func: ast.Attribute, arguments: list[Value]) -> Value:
    """Accelerate and Fabric give back what they are handed, and want to run its backward."""
    for argument in arguments:
        for item in argument.items if isinstance(argument, Many) else (argument,):
            if isinstance(item, Thing):
                lower.prepared[item.key] = text_of(func.value)
    lower.out.append(Set(Synchronises(text_of(func.value)), Const(True)))
    return unwrapped(arguments[: len(node.args)])


def _foreign_method(
    lower: Lower,
    node: ast.Call,
    func: ast.Attribute,
    owner: Thing,
    method: Value,
    arguments: list[Value],
) -> Value:
    """A method of an object whose class cannot be seen."""
    role = lower.role(owner, func.value)
    if role == OPTIMIZER and not is_benign(func.attr) and func.attr not in _OPTIMIZER_READS:
        unseen(lower, node, frozenset({owner.key}))
    hand_to_unseen(lower, node, arguments, func.attr)
    if func.attr in vocabulary.CUT:
        return Tensor()
    if isinstance(method, Thing) and method.role:
        return method
    if vocabulary.role_of_call(func.attr) == OPTIMIZER and not role:
        return Thing(f"{owner.key}.{func.attr}()", OPTIMIZER)
    return result_of(lower, [owner], arguments)


def _unseen_method(lower: Lower, node: ast.Call, owner: Thing) -> None:
    """A method that cannot be seen may do anything with what its object holds."""
    if owner.klass is not None and lower.whole(owner.klass):
        return
    unseen(lower, node, frozenset({owner.key}))


def _table_method(lower: Lower, func: ast.Attribute, owner: Table, arguments: list[Value]) -> Value:
    if func.attr == "values":
        return Many(tuple(value for _, value in owner.items))
    if func.attr == "items":
        pairs = ((Lit(str(name)), value) for name, value in owner.items)
        return Many(tuple(Many(pair) for pair in pairs))
    if func.attr == "get" and arguments and isinstance(arguments[0], Lit):
        found = [value for name, value in owner.items if name == arguments[0].value]
        return found[0] if found else NOTHING
    return NOTHING


def _list_method(lower: Lower, func: ast.Attribute, owner: Many, arguments: list[Value]) -> Value:
    if func.attr in ("append", "extend") and arguments:
        added = arguments[0].items if isinstance(arguments[0], Many) else (arguments[0],)
        grown = Many((*owner.items, *added))
        if isinstance(func.value, ast.Name):
            lower.frame.env[func.value.id] = grown
        elif isinstance(func.value, ast.Attribute):
            holder = lower.peek(func.value.value)
            if isinstance(holder, Thing):
                lower.heap[(holder.key, func.value.attr)] = grown
        return Lit(None)
    return mix(list(owner.items))


def call_value(lower: Lower, node: ast.Call, callee: Value) -> Value:
    """A call of something that a name or an expression holds."""
    if isinstance(callee, Fn):
        return inline(lower, callee, node, None)
    if isinstance(callee, Klass):
        return construct(lower, node, callee)
    arguments = handed(lower, node)
    if isinstance(callee, Tensor):
        return replace(result_of(lower, [], arguments, node=node), scaled=None, divided=None)
    if isinstance(callee, Thing):
        role = lower.role(callee, node.func)
        if callee.klass is not None:
            method = lower.attribute(callee, "__call__")
            if isinstance(method, Fn) and lower.relevant(method):
                return inline(lower, method, node, arguments)
        optimizers = [a for a in arguments if isinstance(a, Thing) and a.role == OPTIMIZER]
        if role in (LOSS_SCALER, SCALER) and len(arguments) >= 2:
            return loss_scaler_call(lower, node, arguments)
        if optimizers or role == "":
            hand_to_unseen(lower, node, arguments, text_of(node.func).rsplit(".", 1)[-1])
        last = callee.key.split(".")[-1]
        made = vocabulary.role_of_call(last) if role == "" else ""
        if made:
            return make(lower, node, last, made, arguments)
        if last[:1].isupper() and not last.isupper() and callee.klass is None:
            return built_object(lower, node, arguments)
    return result_of(lower, [callee], arguments, node=node)


_Handler = Callable[["Lower", ast.Call, ast.Attribute, Value], "Value | None"]
_METHODS: dict[str, _Handler] = {
    "zero_grad": zero_grad_call,
    "backward": backward_call,
    "manual_backward": manual_backward_call,
    "step": step_call,
    "scale": scale_call,
    "unscale_": unscale_call,
    "unscale_gradients": unscale_call,
    "update": update_call,
    "first_step": sharpness_call,
    "second_step": sharpness_call,
    "optimizer_step": optimizer_step_call,
    "parameters": parameters_call,
    "named_parameters": parameters_call,
    "trainable_parameters": parameters_call,
    "requires_grad_": requires_grad_call,
}
