"""What calls do to gradients: torch's own, the known frameworks', and those of the project."""

from __future__ import annotations

import ast
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING

from zerograd.events import Event, Kind
from zerograd.flow import Seq, Set, walk
from zerograd.guard import Const, Op, Var
from zerograd.static import names
from zerograd.static.acts import Act
from zerograd.static.facts import text_of
from zerograd.static.project import method_of
from zerograd.static.values import (
    ACCELERATOR,
    ENGINE,
    FABRIC,
    LOSS_SCALER,
    NOTHING,
    OPTIMIZER,
    OTHER,
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
    roots,
    within,
)

if TYPE_CHECKING:
    from zerograd.static.lower import Lower

DEEPEST_CALL = 10
WRAPPED = (ACCELERATOR, FABRIC, ENGINE)


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
        return _outside(lower, node, callee.name)
    return _call_value(lower, node, callee)


def _arguments(lower: Lower, node: ast.Call) -> list[Value]:
    positional = [lower.value(arg) for arg in node.args]
    return positional + [lower.value(keyword.value) for keyword in node.keywords]


def _keyword(node: ast.Call, *wanted: str) -> ast.expr | None:
    return next((keyword.value for keyword in node.keywords if keyword.arg in wanted), None)


def _keyword_is(node: ast.Call, name: str, value: str) -> bool:
    given = _keyword(node, name)
    return isinstance(given, ast.Constant) and given.value == value


def _is_true(node: ast.expr | None) -> bool:
    return isinstance(node, ast.Constant) and node.value is True


# Methods


def _method_call(lower: Lower, node: ast.Call, func: ast.Attribute) -> Value:
    if is_super(func.value):
        return _super_call(lower, node, func.attr)
    owner = lower.value(func.value)
    handler = _METHODS.get(func.attr)
    if handler is not None:
        handled = handler(lower, node, func, owner)
        if handled is not None:
            return handled
    if func.attr in names.CLIPS:
        return _clip(lower, node, owner)
    if isinstance(owner, Thing):
        return _thing_method(lower, node, func, owner)
    if isinstance(owner, Origin):
        value = lower.attribute(owner, func.attr)
        if isinstance(value, Origin):
            return _outside(lower, node, value.name)
        return _call_value(lower, node, value)
    if isinstance(owner, Klass):
        return _call_value(lower, node, lower.attribute(owner, func.attr))
    arguments = _arguments(lower, node)
    if isinstance(owner, (Params, Grad)):
        return _parameter_method(lower, node, func, owner, arguments)
    if isinstance(owner, Table):
        return _table_method(lower, func, owner, arguments)
    if isinstance(owner, Many):
        return _list_method(lower, func, owner, arguments)
    if func.attr in names.CUT:
        return Tensor()
    if func.attr == "sum" and isinstance(owner, Tensor) and not node.args:
        return replace(owner, divided=None)
    return _result(lower, [owner], arguments)


def is_super(node: ast.expr) -> bool:
    return isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "super"


def _super_call(lower: Lower, node: ast.Call, name: str) -> Value:
    arguments = _arguments(lower, node)
    klass, owner = lower.frame.klass, lower.frame.owner
    if klass is not None:
        for base in lower.lineage(klass)[1:]:
            method = method_of(base.node, name)
            if method is not None:
                return _inline(lower, Fn(method, base.module, name, owner, None, base), node, arguments)
        optimizer = role_of_class(lower, klass) == OPTIMIZER
        if name == "zero_grad" and isinstance(owner, Thing):
            clear(lower, owner, node, to_none=True)
        elif name == "step" and isinstance(owner, Thing) and optimizer:
            _emit_step(lower, node, owner.key)
        elif isinstance(owner, Thing) and not _benign(name):
            _unseen(lower, node, frozenset({owner.key}))
    return NOTHING


def _thing_method(lower: Lower, node: ast.Call, func: ast.Attribute, owner: Thing) -> Value:
    method = lower.attribute(owner, func.attr)
    if isinstance(method, (Fn, Klass)):
        return _call_value(lower, node, method)
    if func.attr in names.PASS_THROUGH:
        _arguments(lower, node)
        return owner
    if func.attr == "get" and node.args and isinstance(node.args[0], ast.Constant):
        return lower.item(owner, repr(node.args[0].value))
    if func.attr == "optimizers":  # Lightning gives the same ones each time
        _arguments(lower, node)
        return _lightning_optimizers(lower, owner)
    if isinstance(method, Thing) and lower.holds(owner, func.attr):
        return _call_value(lower, node, method)
    arguments = _arguments(lower, node)
    role = lower.role(owner, func.value)
    if role in (ACCELERATOR, FABRIC) and names.PREPARES.match(func.attr):
        for argument in arguments:
            for prepared in argument.items if isinstance(argument, Many) else (argument,):
                if isinstance(prepared, Thing):
                    lower.prepared[prepared.key] = text_of(func.value)
        return _wrapped(arguments[: len(node.args)])
    if owner.klass is not None or owner.key == "self":
        if names.MEDDLES.search(func.attr) and not _benign(func.attr):
            _unseen_method(lower, node, owner)
        return _result(lower, [method], arguments, frozenset({owner.key}), node)
    if role == OPTIMIZER and not _benign(func.attr) and func.attr not in _OPTIMIZER_READS:
        _unseen(lower, node, frozenset({owner.key}))
    _hand_to_unseen(lower, node, arguments, func.attr)
    if func.attr in names.CUT:
        return Tensor()
    if isinstance(method, Thing) and method.role:
        return method
    if names.role_of_call(func.attr) == OPTIMIZER and not role:
        return Thing(f"{owner.key}.{func.attr}()", OPTIMIZER)
    return _result(lower, [owner], arguments)


_OPTIMIZER_READS = frozenset({"add_param_group", "state_dict", "load_state_dict", "share_memory", "train", "eval"})


def _lightning_optimizers(lower: Lower, owner: Thing) -> Value:
    """`self.optimizers()`: what `configure_optimizers` gives back, without its schedulers."""
    key = f"{owner.key}.optimizers()"
    method = lower.attribute(owner, "configure_optimizers")
    found = lower.returned(method, owner) if isinstance(method, Fn) else NOTHING
    if isinstance(found, Many) and found.items and isinstance(found.items[0], Many):
        found = found.items[0]
    items = [_optimizer_in(item) for item in (found.items if isinstance(found, Many) else (found,))]
    known = [replace(item, key=f"{key}[{i}]", made=False) for i, item in enumerate(items) if item]
    if not known or len(known) != len(items):
        return Thing(key, OPTIMIZER)
    return Many(tuple(known)) if len(known) > 1 else replace(known[0], key=key)


def _optimizer_in(value: Value) -> Thing | None:
    if isinstance(value, Table):
        value = next((item for name, item in value.items if name == "optimizer"), NOTHING)
    return value if isinstance(value, Thing) and value.role == OPTIMIZER else None


def _wrapped(given: list[Value]) -> Value:
    """What a wrapper gives back: each object it was handed, or the one."""
    given = [value for value in given if not isinstance(value, Lit)]
    return given[0] if len(given) == 1 else Many(tuple(given))


def _unseen_method(lower: Lower, node: ast.Call, owner: Thing) -> None:
    """A method that cannot be seen may do anything with what its object holds."""
    if owner.klass is not None and lower.whole(owner.klass):
        return
    _unseen(lower, node, frozenset({owner.key}))


def _parameter_method(
    lower: Lower, node: ast.Call, func: ast.Attribute, owner: Params | Grad, arguments: list[Value]
) -> Value:
    if isinstance(owner, Params):
        taken = mix([*arguments])
        if func.attr.endswith("_") and taken.grads & owner.keys:
            _step_by_hand(lower, node, owner.keys)
        return owner
    if func.attr in ("zero_", "fill_") or (func.attr == "mul_" and arguments[:1] == [Lit(0)]):
        if func.attr != "fill_" or arguments[:1] in ([Lit(0)], [Lit(0.0)]):
            clear(lower, owner, node, to_none=False, bare=lower.unguarded)
        return owner
    if func.attr in ("clamp_", "clip_"):
        _act(lower, Kind.CLIP, node, owner.keys, may=owner.some, bare=lower.unguarded)
    elif func.attr in ("div_", "mul_", "copy_", "add_", "sub_", "set_"):
        kind = Kind.ASSIGN if func.attr in ("copy_", "set_") else Kind.UNSCALE
        bare = lower.unguarded and not owner.some
        _act(lower, kind, node, owner.keys, scaled=False, may=kind is Kind.ASSIGN, bare=bare)
    return owner


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


# Gradients


def _zero_grad(lower: Lower, node: ast.Call, func: ast.Attribute, owner: Value) -> Value | None:
    owner = as_object(lower, owner, func.value)
    if isinstance(owner, Thing):
        method = lower.attribute(owner, "zero_grad")
        if isinstance(method, Fn) and not _is_optimizer_class(lower, method):
            return _own_clear(lower, node, owner, method)
        if isinstance(method, Fn) and not _clears(method):
            _arguments(lower, node)
            return Lit(None)
    _arguments(lower, node)
    flag = _keyword(node, "set_to_none") or (node.args[0] if node.args else None)
    to_none = not (isinstance(flag, ast.Constant) and flag.value is False)
    if isinstance(owner, Thing):
        lower.role(owner, func.value)
    clear(lower, owner, node, to_none=to_none)
    return Lit(None)


def clear(
    lower: Lower, owner: Value | None, node: ast.AST, *, to_none: bool, bare: bool = False
) -> None:
    """Something clears these gradients."""
    keys, perhaps = roots(owner)
    if any(key.endswith("[?]") for key in keys):
        _unseen(lower, node, frozenset(key.removesuffix("[?]") for key in keys))
        return
    some = lower.some or (isinstance(owner, (Params, Grad)) and owner.some)
    act = Act(BLANK, whose=keys | perhaps, anyone=not keys)
    act.leaf = isinstance(owner, Grad) and owner.leaf
    lower.emit(Kind.ZERO, node, act, to_none=to_none, bare=bare and not some, may=some)


def _act(lower: Lower, kind: Kind, node: ast.AST, keys: frozenset[str], **fields: object) -> None:
    lower.emit(kind, node, Act(BLANK, whose=keys, anyone=not keys), **fields)


def _step_by_hand(lower: Lower, node: ast.AST, keys: frozenset[str]) -> None:
    act = Act(BLANK, whose=frozenset(f"by hand:{key}" for key in keys))
    lower.emit(Kind.STEP, node, act, may=lower.some)


def _unseen(lower: Lower, node: ast.AST, keys: frozenset[str]) -> None:
    _act(lower, Kind.UNKNOWN, node, keys)


def _backward(lower: Lower, node: ast.Call, func: ast.Attribute, owner: Value) -> Value | None:
    if isinstance(owner, Thing):
        method = lower.attribute(owner, func.attr)
        if isinstance(method, Fn):
            return None
        role = lower.role(owner, func.value)
        if role in WRAPPED or (node.args and _is_wrapper(lower, node, func, owner)):
            return _wrapped_backward(lower, node, owner, role)
    elif isinstance(owner, (Origin, Fn, Klass)):
        arguments = _arguments(lower, node)
        if isinstance(owner, Origin) and owner.name in ("torch.autograd", "torch"):
            _emit_backward(lower, node, mix(arguments[:1]))
            return Lit(None)
        return None
    arguments = _arguments(lower, node)
    inputs = _keyword(node, "inputs")
    if inputs is not None:
        _emit_backward(lower, node, lower.peek(inputs))
        return Lit(None)
    given = node.args[0] if node.args else _keyword(node, "gradient")
    same = given is not None and text_of(given) == text_of(func.value)
    _emit_backward(lower, node, owner, own_gradient=same, bypasses=_bypassed(lower, owner))
    del arguments
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
    return "loss" in name and "loss" not in text_of(func.value).lower() and isinstance(first, (Tensor, Thing))


def _wrapped_backward(lower: Lower, node: ast.Call, owner: Thing, role: str) -> Value:
    arguments = _arguments(lower, node)
    tensor = mix(arguments[:1])
    whose = frozenset({owner.key}) if role == ENGINE else frozenset()
    divisor = Var("@N") if role == ACCELERATOR and lower.accumulating else None
    if divisor is None:
        tensor = replace(tensor, divided=None)
    else:
        tensor = replace(tensor, divisor=divisor, divided=True)
    _emit_backward(lower, node, replace(tensor, scaled=None), whose=whose)
    return Lit(None)


def _emit_backward(
    lower: Lower,
    node: ast.AST,
    owner: Value,
    whose: frozenset[str] = frozenset(),
    **fields: object,
) -> None:
    sure, perhaps = roots(owner)
    if isinstance(owner, Tensor):
        tensor = owner
    elif isinstance(owner, Many):
        tensor = mix(list(owner.items))
    else:
        tensor = Tensor(sure, perhaps, divided=None, scaled=None)
    frozen = {key for key in sure if key in lower.frozen}
    act = Act(BLANK, whose=(sure - frozen) | whose, perhaps=perhaps - frozen)
    act.anyone = not act.whose and not act.perhaps and not frozen
    divisor: int | None = 0
    if fields.get("bypasses"):
        divisor = 0
    elif tensor.divided and tensor.divisor is not None:
        act.divisor = tensor.divisor
    elif tensor.divided is False:
        divisor = None
    lower.emit(Kind.BACKWARD, node, act, scaled=tensor.scaled, divisor=divisor, **fields)


def _manual_backward(lower: Lower, node: ast.Call, func: ast.Attribute, owner: Value) -> Value | None:
    arguments = _arguments(lower, node)
    tensor = mix(arguments[:1])
    _emit_backward(lower, node, replace(tensor, scaled=None))
    return Lit(None)


def _step(lower: Lower, node: ast.Call, func: ast.Attribute, owner: Value) -> Value | None:
    owner = as_object(lower, owner, func.value)
    if not isinstance(owner, Thing):
        return None
    method = lower.attribute(owner, "step")
    if isinstance(method, Fn) and not _is_optimizer_class(lower, method):
        return None
    if isinstance(method, Fn):
        return _own_step(lower, node, owner, method)
    arguments = _arguments(lower, node)
    role = lower.role(owner, func.value)
    stepped = arguments[0] if arguments else None
    if role == SCALER or (isinstance(stepped, Thing) and _is_optimizer(lower, stepped, node)):
        return _scaler_step(lower, node, stepped, role)
    if role == ENGINE:
        _emit_step(lower, node, owner.key)
        clear(lower, owner, node, to_none=True)
        return Lit(None)
    if role != OPTIMIZER:
        return None if role == "" and arguments else Lit(None)
    return _optimizer_step(lower, node, owner, arguments)


def as_object(lower: Lower, value: Value, node: ast.expr) -> Value:
    """A result of an unseen call that the file uses as an object with a role is that object."""
    if isinstance(value, Tensor):
        role = lower.used_as(node)
        if isinstance(node, ast.Subscript):
            lower.note_shifting(node.slice, text_of(node))
        if role:
            text = lower.variable(node) or text_of(node)
            return Thing(f"{text}[?]" if isinstance(node, ast.Call) else text, role)
    return value


def _is_optimizer_class(lower: Lower, method: Fn) -> bool:
    return method.klass is not None and role_of_class(lower, method.klass) == OPTIMIZER


def _clears(method: Fn) -> bool:
    """Whether a method visibly clears gradients."""
    for node in ast.walk(method.node):
        if isinstance(node, ast.Attribute) and node.attr in ("zero_grad", "zero_", "_foreach_zero_"):
            return True
        if isinstance(node, ast.Assign) and any(
            isinstance(target, ast.Attribute) and target.attr == "grad" for target in node.targets
        ):
            return True
    return False


def _own_clear(lower: Lower, node: ast.Call, owner: Thing, method: Fn) -> Value:
    """A project's own `zero_grad`: what it is seen to clear, or else what it belongs to."""
    before = len(lower.out)
    value = _call_value(lower, node, method)
    seen = any(
        isinstance(part, Act) and part.event.kind in (Kind.ZERO, Kind.UNKNOWN)
        for flow in lower.out[before:]
        for part in walk(flow)
    )
    if not seen and _clears(method):
        clear(lower, owner, node, to_none=True)
    return value


def _own_step(lower: Lower, node: ast.Call, owner: Thing, method: Fn) -> Value:
    """The step of a project's own optimizer: it uses the gradients, and may clear them as well."""
    arguments = _arguments(lower, node)
    if arguments and isinstance(arguments[0], Fn):
        _inline(lower, arguments[0], node, [], force=True)
    lower.role(replace(owner, role=OPTIMIZER))
    _emit_step(lower, node, owner.key)
    if _clears(method) or (arguments and not isinstance(arguments[0], (Fn, Lit))):
        _unseen(lower, node, frozenset({owner.key}))
    return Lit(None)


def _is_optimizer(lower: Lower, thing: Thing, node: ast.Call) -> bool:
    return lower.role(thing, node.args[0] if node.args else node.keywords[0].value) == OPTIMIZER


def _scaler_step(lower: Lower, node: ast.Call, stepped: Value | None, role: str) -> Value:
    if isinstance(stepped, Thing):
        lower.roles.setdefault(stepped.key, OPTIMIZER)
        _emit_step(lower, node, stepped.key, scaled=True if role == SCALER else None)
    elif isinstance(stepped, Many):
        for item in stepped.items:
            _scaler_step(lower, node, item, role)
    return Lit(None)


def _emit_step(lower: Lower, node: ast.AST, key: str, **fields: object) -> None:
    if key.endswith("[?]"):
        _unseen(lower, node, frozenset({key[:-3]}))
        return
    lower.roles.setdefault(key, OPTIMIZER)
    act = Act(BLANK, whose=frozenset({key}))
    lower.emit(Kind.STEP, node, act, **fields)


def _optimizer_step(lower: Lower, node: ast.Call, owner: Thing, arguments: list[Value]) -> Value:
    closure = arguments[0] if node.args or _keyword(node, "closure") is not None else None
    if isinstance(closure, Fn):
        _inline(lower, closure, node, [], force=True)
        _emit_step(lower, node, owner.key)
        if not owner.made and owner.params is None:
            # Optimizers that take a closure in earnest may clear for it.
            _unseen(lower, node, frozenset({owner.key}))
    elif closure is None or closure == Lit(None):
        _emit_step(lower, node, owner.key)
    else:
        # Wrappers that take the loss, or a closure that cannot be seen, may do the rest as well.
        _unseen(lower, node, frozenset({owner.key}))
    if _is_true(_keyword(node, "zero_grad", "set_to_none", "zero_grads")):
        clear(lower, owner, node, to_none=True)
    return Lit(None)


def _scale(lower: Lower, node: ast.Call, func: ast.Attribute, owner: Value) -> Value | None:
    owner = as_object(lower, owner, func.value)
    if not isinstance(owner, Thing) or lower.role(owner, func.value) != SCALER:
        return None
    value = mix(_arguments(lower, node)[:1])
    return replace(value, scaled=True)


def _unscale(lower: Lower, node: ast.Call, func: ast.Attribute, owner: Value) -> Value | None:
    arguments = _arguments(lower, node)
    for item in arguments[:1]:
        targets = item.items if isinstance(item, Many) else (item,)
        for target in targets:
            keys, _ = roots(target)
            _act(lower, Kind.UNSCALE, node, keys, scaled=True)
    if not arguments:
        _act(lower, Kind.UNSCALE, node, frozenset(), may=True)
    return Lit(None)


def _update(lower: Lower, node: ast.Call, func: ast.Attribute, owner: Value) -> Value | None:
    owner = as_object(lower, owner, func.value)
    if not isinstance(owner, Thing) or lower.role(owner, func.value) != SCALER:
        return None
    _arguments(lower, node)
    lower.emit(Kind.UPDATE, node, Act(BLANK, anyone=True))
    return Lit(None)


def _sharpness(lower: Lower, node: ast.Call, func: ast.Attribute, owner: Value) -> Value | None:
    """SAM's two steps: each uses the gradients, and clears them where it is told to."""
    if not isinstance(owner, Thing) or isinstance(lower.attribute(owner, func.attr), Fn):
        return None
    _arguments(lower, node)
    _emit_step(lower, node, owner.key)
    flag = _keyword(node, "zero_grad") or (node.args[0] if node.args else None)
    if flag is not None and not (isinstance(flag, ast.Constant) and flag.value is False):
        clear(lower, owner, node, to_none=True)
    return Lit(None)


def _optimizer_step_helper(
    lower: Lower, node: ast.Call, func: ast.Attribute, owner: Value
) -> Value | None:
    """`xm.optimizer_step(optimizer)`."""
    arguments = _arguments(lower, node)
    if isinstance(owner, Origin) and arguments and isinstance(arguments[0], Thing):
        _emit_step(lower, node, arguments[0].key)
        return Lit(None)
    return None


def _clip(lower: Lower, node: ast.Call, owner: Value | None) -> Value:
    """Limits gradients, however it is called; an infinite limit only measures."""
    arguments = _arguments(lower, node)
    if any(_is_infinite(arg) for arg in [*node.args, *(kw.value for kw in node.keywords)]):
        return Tensor()
    target: Value | None = arguments[0] if arguments else None
    role = lower.role(owner) if isinstance(owner, Thing) else ""
    keys, perhaps = roots(target)
    if isinstance(owner, Thing) and role not in (ACCELERATOR, FABRIC, SCALER):
        method = lower.attribute(owner, node.func.attr if isinstance(node.func, ast.Attribute) else "")
        if isinstance(method, Fn):
            return _inline(lower, method, node, arguments)
        if not isinstance(target, (Params, Thing, Many)) or not keys:
            keys = frozenset({owner.key})  # FSDP: model.clip_grad_norm_(1.0)
    if role in (ACCELERATOR, FABRIC, SCALER):
        _act(lower, Kind.UNSCALE, node, keys, scaled=None)
    partial = isinstance(target, Params) and target.some
    _act(lower, Kind.CLIP, node, keys | perhaps, may=partial)
    return Tensor()


def _is_infinite(node: ast.expr) -> bool:
    text = text_of(node).replace('"', "'").lower()
    return text in ("float('inf')", "math.inf", "np.inf", "torch.inf", "inf", "numpy.inf")


def _parameters(lower: Lower, node: ast.Call, func: ast.Attribute, owner: Value) -> Value | None:
    _arguments(lower, node)
    if isinstance(owner, Thing) and isinstance(lower.attribute(owner, func.attr), Fn):
        return Params(frozenset({owner.key}))
    keys, _ = roots(owner)
    if isinstance(owner, Tensor):
        # What has parameters is an object, whatever it was computed from.
        keys = frozenset({lower.variable(func.value) or text_of(func.value)})
    params = Params(keys)
    return Many((Lit("name"), params)) if func.attr.startswith("named") else params


def _requires_grad(lower: Lower, node: ast.Call, func: ast.Attribute, owner: Value) -> Value | None:
    arguments = _arguments(lower, node)
    on = not arguments or arguments[0] != Lit(False)
    freeze(lower, owner, not on)
    if isinstance(owner, Tensor) and on:
        return _built(lower, node)
    return owner


def freeze(lower: Lower, owner: Value, frozen: bool) -> None:
    keys, _ = roots(owner)
    if frozen:
        lower.frozen |= keys
    else:
        lower.frozen -= keys


_Handler = Callable[["Lower", ast.Call, ast.Attribute, Value], "Value | None"]
_METHODS: dict[str, _Handler] = {
    "zero_grad": _zero_grad,
    "backward": _backward,
    "manual_backward": _manual_backward,
    "step": _step,
    "scale": _scale,
    "unscale_": _unscale,
    "unscale_gradients": _unscale,
    "update": _update,
    "first_step": _sharpness,
    "second_step": _sharpness,
    "optimizer_step": _optimizer_step_helper,
    "parameters": _parameters,
    "named_parameters": _parameters,
    "trainable_parameters": _parameters,
    "requires_grad_": _requires_grad,
}


# Functions


def _call_value(lower: Lower, node: ast.Call, callee: Value) -> Value:
    if isinstance(callee, Fn):
        return _inline(lower, callee, node, None)
    if isinstance(callee, Klass):
        return _construct(lower, node, callee)
    arguments = _arguments(lower, node)
    if isinstance(callee, Thing):
        role = lower.role(callee, node.func)
        if callee.klass is not None:
            method = lower.attribute(callee, "__call__")
            if isinstance(method, Fn) and lower.relevant(method):
                return _inline(lower, method, node, arguments)
        optimizers = [a for a in arguments if isinstance(a, Thing) and a.role == OPTIMIZER]
        if role in (LOSS_SCALER, SCALER) and len(arguments) >= 2:
            return _loss_scaler(lower, node, arguments)
        if optimizers or role == "":
            _hand_to_unseen(lower, node, arguments, text_of(node.func).rsplit(".", 1)[-1])
        last = callee.key.split(".")[-1]
        made = names.role_of_call(last) if role == "" else ""
        if made:
            return _make(lower, node, last, made, arguments)
        if last[:1].isupper() and not last.isupper() and callee.klass is None:
            return _built(lower, node, arguments)
    return _result(lower, [callee], arguments, node=node)


def _loss_scaler(lower: Lower, node: ast.Call, arguments: list[Value]) -> Value:
    """`loss_scaler(loss, optimizer, …)`: backward, unscale, clip, step and update in one call."""
    update = _keyword(node, "update_grad", "need_update")
    optimizer = arguments[1]
    _emit_backward(lower, node, replace(mix(arguments[:1]), scaled=None))
    if isinstance(optimizer, Thing):
        if update is None:
            _emit_step(lower, node, optimizer.key, scaled=None)
        else:
            from zerograd.flow import Alt
            from zerograd.static import conditions

            out, lower.out = lower.out, []
            _emit_step(lower, node, optimizer.key, scaled=None)
            flow, lower.out = Seq(tuple(lower.out)), out
            test = conditions.expression(lower, update)
            lower.out.append(Alt(test, flow, Seq(()), lower.site(node)))
    return Tensor()


def _construct(lower: Lower, node: ast.Call, klass: Klass) -> Value:
    arguments = _arguments(lower, node)
    role = role_of_class(lower, klass)
    key = f"{lower.frame.prefix}{node.lineno}:{node.col_offset}"
    if role == OPTIMIZER and not _has_own(lower, klass, "step"):
        return _make(lower, node, klass.name, OPTIMIZER, arguments, klass)
    params = _parameters_of(arguments[0]) if role == OPTIMIZER and arguments else None
    thing = Thing(key, "" if role == OPTIMIZER else role, params, klass, made=True)
    lower.fresh.add(key)
    announce(lower, node, key)
    for base in lower.lineage(klass):
        init = method_of(base.node, "__init__")
        if init is not None:
            fn = Fn(init, base.module, "__init__", thing, None, base)
            if _class_matters(lower, klass):
                _inline(lower, fn, node, arguments, force=True)
            break
    for argument in arguments:
        lower.hand_on(argument)
    return thing


def _class_matters(lower: Lower, klass: Klass) -> bool:
    """Whether a class has anything to do with gradients, so that its attributes are worth knowing."""
    known = klass.module.reached.get((klass.node, "mentions"))
    if known is None:
        known = any(
            lower.relevant(Fn(method, base.module, method.name, None, None, base))
            for base in lower.lineage(klass)
            for method in base.node.body
            if isinstance(method, (ast.FunctionDef, ast.AsyncFunctionDef))
        )
        klass.module.reached[(klass.node, "mentions")] = known
    return known


def _has_own(lower: Lower, klass: Klass, name: str) -> bool:
    return any(method_of(base.node, name) is not None for base in lower.lineage(klass))


def role_of_class(lower: Lower, klass: Klass) -> str:
    """The role of a project's class, from what it inherits or is called."""
    for base in lower.lineage(klass):
        for parent in base.node.bases:
            role = names.role_of_call(text_of(parent))
            if role:
                return role
    if klass.name in names.CONSTRUCTORS:
        return names.CONSTRUCTORS[klass.name] if not _has_own(lower, klass, "__call__") else ""
    return ""


def _make(
    lower: Lower,
    node: ast.Call,
    name: str,
    role: str,
    arguments: list[Value],
    klass: Klass | None = None,
) -> Value:
    """An object of a known role; an optimizer knows what it steps."""
    key = f"{lower.frame.prefix}{node.lineno}:{node.col_offset}"
    if role != OPTIMIZER:
        return Thing(key, role if role != OTHER else OTHER)
    wrapped = [a for a in arguments if isinstance(a, Thing) and lower.roles.get(a.key, a.role) == OPTIMIZER]
    if wrapped:
        # A wrapper shares the groups of the optimizer inside: whatever it does, it does to those.
        return wrapped[0]
    given = _keyword(node, "params", "parameters") or (node.args[0] if node.args else None)
    params = None
    built = name[:1].isupper() or name.startswith("torch.optim.") or name.rsplit(".", 1)[-1][:1].isupper()
    if given is not None and built:
        params = _parameters_of(lower.peek(given))
    thing = Thing(key, OPTIMIZER, params, klass, made=True)
    lower.roles[key] = OPTIMIZER
    lower.params[key] = params
    if not lower.quiet:
        lower.made[key] = lower.site(node)
        if params is None:
            # Who knows what it steps: another optimizer may have left something there.
            lower.emit(Kind.UNKNOWN, node, Act(BLANK, whose=frozenset({key})))
    return thing


def _parameters_of(value: Value) -> frozenset[str] | None:
    """The keys of what an optimizer is given to step."""
    if isinstance(value, Params):
        return value.keys or None
    if isinstance(value, Thing):
        return frozenset({value.key})
    if isinstance(value, Table):
        found = [item for name, item in value.items if name == "params"]
        return _parameters_of(found[0]) if found else None
    if isinstance(value, Many) and value.items:
        parts = [_parameters_of(item) for item in value.items]
        known = [part for part in parts if part is not None]
        return frozenset().union(*known) if len(known) == len(parts) else None
    return None


def _inline(
    lower: Lower,
    fn: Fn,
    node: ast.Call,
    arguments: list[Value] | None,
    force: bool = False,
) -> Value:
    """Goes through the body of a function of the project with the values it is handed."""
    from zerograd.static.lower import _parameters as parameters

    if arguments is None:
        arguments = _arguments(lower, node)
    visible = len(lower.stack) < DEEPEST_CALL and fn.node not in lower.stack and not fn.module.facts[fn.node].yields
    wanted = force or lower.relevant(fn) or _gives_optimizer(fn)
    if not visible or not wanted or lower.quiet > 3:
        if wanted and not lower.quiet:
            _hand_to_unseen(lower, node, arguments, fn.name)
        result = _result(lower, [], arguments, _attributes_used(lower, fn), node)
        scales = any(name.endswith(".scale") for name in fn.module.facts[fn.node].calls)
        return replace(result, scaled=None) if scales else result
    formal = parameters(fn.node)
    bound = fn.owner is not None and not isinstance(fn.node, ast.Lambda)
    if bound and any(text_of(d) == "staticmethod" for d in getattr(fn.node, "decorator_list", [])):
        bound = False
    values: dict[str, Value] = {}
    aliases: dict[str, str] = {}
    if bound and formal and fn.owner is not None:
        values[formal[0].arg] = fn.owner
        formal = formal[1:]
    _defaults(lower, fn, values)
    starred = any(isinstance(arg, ast.Starred) for arg in node.args)
    given: list[tuple[str, Value, ast.expr | None]] = []
    if not starred:
        surplus = arguments[len(_positional(fn, bound)) : len(node.args)]
        if fn.node.args.vararg is not None:
            values[fn.node.args.vararg.arg] = Many(tuple(surplus))
        nodes: list[ast.expr | None] = [*node.args]
        positional = arguments[: len(node.args)]
        given += [
            (arg.arg, value, source)
            for arg, value, source in zip(_positional(fn, bound), positional, nodes, strict=False)
        ]
    for keyword, value in zip(node.keywords, arguments[len(node.args) :], strict=False):
        if keyword.arg is not None:
            given.append((keyword.arg, value, keyword.value))
    for name, value, source in given:
        values[name] = value
        variable = lower.variable(source) if source is not None else None
        if variable is not None and isinstance(source, (ast.Name, ast.Attribute)):
            aliases[name] = variable
    for arg in formal:
        values.setdefault(arg.arg, NOTHING if arg.arg in ("args", "kwargs") else Thing(f"{arg.arg}"))
    return lower.enter(fn, values, aliases)


def _positional(fn: Fn, bound: bool) -> list[ast.arg]:
    args = [*fn.node.args.posonlyargs, *fn.node.args.args]
    return args[1:] if bound else args


def _defaults(lower: Lower, fn: Fn, values: dict[str, Value]) -> None:
    args = fn.node.args
    tail = [*args.posonlyargs, *args.args][-len(args.defaults) :] if args.defaults else []
    pairs = list(zip(tail, args.defaults, strict=False))
    pairs += [(a, d) for a, d in zip(args.kwonlyargs, args.kw_defaults, strict=True) if d is not None]
    for arg, default in pairs:
        if isinstance(default, ast.Constant) and isinstance(default.value, (bool, int, float, str, type(None))):
            values[arg.arg] = Lit(default.value)
    del lower


def _gives_optimizer(fn: Fn) -> bool:
    """A factory of the project: its body says what the optimizer steps."""
    if names.role_of_call(fn.name) != OPTIMIZER or isinstance(fn.node, ast.Lambda):
        return False
    return any(names.role_of_call(name) == OPTIMIZER for name in fn.module.facts[fn.node].calls)


def _attributes_used(lower: Lower, fn: Fn) -> frozenset[str]:
    """What a method may compute with: the attributes of its object that it mentions."""
    if not isinstance(fn.owner, Thing) or isinstance(fn.node, ast.Lambda) or not fn.node.args.args:
        return frozenset()
    me = fn.node.args.args[0].arg
    used = {attr for name, attr in fn.module.facts[fn.node].attributes if name == me}
    keys = set()
    for attr in used:
        value = lower.attribute(fn.owner, attr)
        keys |= {value.key} if isinstance(value, Thing) else set()
        if isinstance(value, Fn):
            keys.add(fn.owner.key)
    return frozenset(keys)


def _result(
    lower: Lower,
    callees: list[Value],
    arguments: list[Value],
    perhaps: frozenset[str] = frozenset(),
    node: ast.Call | None = None,
) -> Tensor:
    """What an unseen function gives back: computed from its arguments, for all we know."""
    if lower.no_grad:
        return Tensor()
    things = frozenset(a.key for a in arguments if isinstance(a, Thing))
    result = mix([*callees, *(a for a in arguments if not isinstance(a, Thing))])
    result = replace(result, maybe=(result.maybe | things | perhaps) - result.roots, divisor=None, divided=False)
    if node is not None and _keyword_is(node, "reduction", "sum"):
        result = replace(result, divided=None)
    return replace(result, scaled=False if result.scaled is None else result.scaled)


def _benign(name: str) -> bool:
    return names.BENIGN.search(name) is not None


def _hand_to_unseen(lower: Lower, node: ast.Call, arguments: list[Value], name: str) -> None:
    """An optimizer in unseen hands is unknown afterwards, unless they only read it."""
    if names.CLEARS.search(name) and not lower.quiet:
        lower.emit(Kind.ZERO, node, Act(BLANK, anyone=True), may=True)
    for argument in arguments:
        for item in argument.items if isinstance(argument, Many) else (argument,):
            if isinstance(item, Thing) and lower.roles.get(item.key, item.role) == OPTIMIZER:
                if not names.SCHEDULER.search(name):
                    lower.handed.add(item.key)
                if not _benign(name) and not lower.quiet:
                    _unseen(lower, node, frozenset({item.key}))


def _outside(lower: Lower, node: ast.Call, name: str) -> Value:
    """A call of something that is not part of the project."""
    last = name.rsplit(".", 1)[-1]
    builtin = _BUILTIN_CALLS.get(last)
    if builtin is not None:
        handled = builtin(lower, node, name)
        if handled is not None:
            return handled
    if last in names.CLIPS:
        return _clip(lower, node, None)
    arguments = _arguments(lower, node)
    role = names.role_of_call(name)
    if role and not name.startswith(("os.", "logging.", "time.")):
        return _make(lower, node, name, role, arguments)
    if last == "initialize" and "deepspeed" in name:
        key = f"{lower.frame.prefix}{node.lineno}:{node.col_offset}"
        inner = Thing(f"{key}.optimizer", OTHER)
        return Many((Thing(key, ENGINE), inner, NOTHING, NOTHING))
    if names.WRAPPERS.search(last) and node.args:
        return _wrapped(arguments[:1] if last[:1].isupper() else arguments[: len(node.args)])
    _hand_to_unseen(lower, node, arguments, last)
    leaf = last == "Parameter" or _is_true(_keyword(node, "requires_grad"))
    built = last[:1].isupper() and (not name.startswith("torch.") or name.startswith("torch.nn."))
    if leaf or built:
        return _built(lower, node, arguments)
    return _result(lower, [], arguments, node=node)


def _built(lower: Lower, node: ast.Call, arguments: list[Value] | None = None) -> Thing:
    """A new object of a class that cannot be seen; it may share what it was handed."""
    key = f"{lower.frame.prefix}{node.lineno}:{node.col_offset}"
    if not any(isinstance(argument, (Thing, Params)) for argument in arguments or ()):
        lower.fresh.add(key)
        announce(lower, node, key)
    return Thing(key, made=True)


def announce(lower: Lower, node: ast.AST, key: str) -> None:
    """New parameters have no gradients; those of a module are its own affair."""
    if not lower.quiet and lower.frame.owner is None:
        _act(lower, Kind.NEW, node, frozenset({key}))


_BuiltinCall = Callable[["Lower", ast.Call, str], "Value | None"]


def _zip(lower: Lower, node: ast.Call, name: str) -> Value | None:
    columns = [lower.value(arg) for arg in node.args]
    if columns and all(isinstance(column, Many) for column in columns):
        rows = zip(*(column.items for column in columns if isinstance(column, Many)), strict=False)
        return Many(tuple(Many(row) for row in rows))
    if columns and all(isinstance(column, Params) for column in columns):
        return Many(tuple(columns))
    return NOTHING


def _enumerate(lower: Lower, node: ast.Call, name: str) -> Value | None:
    inner = lower.value(node.args[0]) if node.args else NOTHING
    if isinstance(inner, Many):
        return Many(tuple(Many((Lit(index), item)) for index, item in enumerate(inner.items)))
    if isinstance(inner, Params):
        return Many((NOTHING, inner))
    return Tensor()


def _same(lower: Lower, node: ast.Call, name: str) -> Value | None:
    arguments = _arguments(lower, node)
    return arguments[0] if arguments else Many(())


def _filter(lower: Lower, node: ast.Call, name: str) -> Value | None:
    arguments = _arguments(lower, node)
    return arguments[1] if len(arguments) == 2 else NOTHING


def _chain(lower: Lower, node: ast.Call, name: str) -> Value | None:
    if "itertools" not in name and name != "chain":
        return None
    arguments = _arguments(lower, node)
    if len(arguments) == 1 and isinstance(arguments[0], Many):
        arguments = list(arguments[0].items)
    if arguments and all(isinstance(argument, Params) for argument in arguments):
        return Params(frozenset().union(*(a.keys for a in arguments if isinstance(a, Params))))
    return NOTHING


def _partial(lower: Lower, node: ast.Call, name: str) -> Value | None:
    arguments = _arguments(lower, node)
    return arguments[0] if arguments and isinstance(arguments[0], (Bound, Fn)) else None


def _dict(lower: Lower, node: ast.Call, name: str) -> Value | None:
    if node.args:
        return _same(lower, node, name)
    pairs = [(keyword.arg, lower.value(keyword.value)) for keyword in node.keywords]
    return Table(tuple(pairs))


def _autograd_backward(lower: Lower, node: ast.Call, name: str) -> Value | None:
    if not name.endswith("autograd.backward"):
        return None
    arguments = _arguments(lower, node)
    first = arguments[0] if arguments else NOTHING
    _emit_backward(lower, node, mix(list(first.items)) if isinstance(first, Many) else first)
    return Lit(None)


def _foreach(lower: Lower, node: ast.Call, name: str) -> Value | None:
    arguments = _arguments(lower, node)
    if arguments:
        first = arguments[0]
        keys, _ = roots(first)
        clear(lower, Grad(keys), node, to_none=False)
    return Lit(None)


def _getattr(lower: Lower, node: ast.Call, name: str) -> Value | None:
    if len(node.args) >= 2 and isinstance(node.args[1], ast.Constant):
        owner = lower.value(node.args[0])
        attr = node.args[1].value
        return lower.attribute(owner, attr) if isinstance(attr, str) else NOTHING
    return NOTHING


def _setattr(lower: Lower, node: ast.Call, name: str) -> Value | None:
    if len(node.args) == 3 and isinstance(node.args[1], ast.Constant) and node.args[1].value == "grad":
        clear(lower, lower.value(node.args[0]), node, to_none=True)
        return Lit(None)
    return None


def _optimizer_step_call(lower: Lower, node: ast.Call, name: str) -> Value | None:
    arguments = _arguments(lower, node)
    if arguments and isinstance(arguments[0], Thing):
        _emit_step(lower, node, arguments[0].key)
        return Lit(None)
    return None


_BUILTIN_CALLS: dict[str, _BuiltinCall] = {
    "zip": _zip,
    "enumerate": _enumerate,
    "list": _same,
    "tuple": _same,
    "iter": _same,
    "sorted": _same,
    "reversed": _same,
    "filter": _filter,
    "chain": _chain,
    "from_iterable": _chain,
    "dict": _dict,
    "partial": _partial,
    "backward": _autograd_backward,
    "_foreach_zero_": _foreach,
    "getattr": _getattr,
    "setattr": _setattr,
    "optimizer_step": _optimizer_step_call,
}


# Statements that act on gradients


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
                _step_by_hand(lower, node, keys)
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
        _act(lower, Kind.UNSCALE, node, keys, scaled=False, may=True)
        return
    _act(lower, Kind.ASSIGN, node, keys, may=lower.some)


def _is_zeros(node: ast.expr) -> bool:
    if not isinstance(node, ast.Call):
        return False
    name = text_of(node.func).rsplit(".", 1)[-1]
    if name in ("zeros_like", "zeros", "new_zeros"):
        return True
    return isinstance(node.func, ast.Attribute) and _is_zeros(node.func.value)


def updates_by_hand(
    lower: Lower, target: ast.expr, old: Value, new: Value, node: ast.AST
) -> bool:
    """`p.data -= lr * p.grad`, `w -= lr * w.grad`, `p.grad /= n`, `p.grad *= 0`."""
    if isinstance(old, Grad):
        if isinstance(node, ast.AugAssign) and new == Lit(0) and isinstance(node.op, ast.Mult):
            clear(lower, old, node, to_none=False, bare=lower.unguarded)
        elif isinstance(node, ast.AugAssign) and isinstance(node.op, (ast.Div, ast.Mult)):
            _act(lower, Kind.UNSCALE, node, old.keys, scaled=False, may=True)
        else:
            _act(lower, Kind.ASSIGN, node, old.keys, may=True)
        return True
    keys, _ = roots(old)
    if isinstance(old, (Params, Thing)) and mix([new]).grads & keys:
        _step_by_hand(lower, node, keys)
        return True
    return False


def open_context(lower: Lower, item: ast.withitem, after: list[Act]) -> None:
    """What a `with` changes for its body."""
    context = item.context_expr
    name = text_of(context.func) if isinstance(context, ast.Call) else text_of(context)
    last = name.rsplit(".", 1)[-1]
    if last in ("no_grad", "inference_mode"):
        lower.no_grad += 1
        return
    if last in ("enable_grad", "set_grad_enabled"):
        lower.no_grad = 0
        return
    if last == "accumulate" and isinstance(context, ast.Call) and isinstance(context.func, ast.Attribute):
        owner = lower.value(context.func.value)
        _arguments(lower, context)
        if isinstance(owner, Thing) and lower.role(owner, context.func.value) == ACCELERATOR:
            lower.accumulating = text_of(context.func.value)
            counter = f"@count:{lower.accumulating}"
            lower.out.append(Set(counter, Op("+", (Var(counter), Const(1)))))
            return
    value = lower.value(context)
    if last == "scale_loss" and isinstance(context, ast.Call):
        value = replace(mix([lower.peek(arg) for arg in context.args[:1]]), scaled=None)
    if item.optional_vars is not None:
        lower.store(item.optional_vars, value, None, context)
    del after


def idle_loss(loop: ast.For | ast.While) -> ast.AST | None:
    """A loss that a loop computes and then only logs: where it is assigned."""
    assigned: dict[str, ast.AST] = {}
    for node in ast.walk(loop):
        if isinstance(node, ast.Assign) and isinstance(node.value, (ast.Call, ast.BinOp)):
            for target in node.targets:
                if isinstance(target, ast.Name) and "loss" in target.id.lower():
                    assigned[target.id] = node
    if not assigned:
        return None
    parents = {child: node for node in ast.walk(loop) for child in ast.iter_child_nodes(node)}
    for node in ast.walk(loop):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load) and node.id in assigned:
            if not _only_logs(node, parents, assigned):
                return None
    return next(reversed(list(assigned.values())))


def _only_logs(node: ast.AST, parents: dict[ast.AST, ast.AST], assigned: dict[str, ast.AST]) -> bool:
    child, parent = node, parents.get(node)
    while parent is not None:
        if isinstance(parent, ast.Attribute) and parent.attr == "backward":
            user = parents.get(parent)
            return not (isinstance(user, ast.Call) and user.func is parent)
        if isinstance(parent, ast.Attribute):
            return parent.attr in ("item", "data", "detach", "cpu", "mean", "sum")
        if isinstance(parent, ast.Call) and child is not parent.func:
            name = text_of(parent.func).rsplit(".", 1)[-1]
            return names.BENIGN.search(name) is not None or name in ("float", "isnan", "isfinite", "update")
        if isinstance(parent, ast.FormattedValue):
            return True
        if isinstance(parent, ast.AugAssign):
            return True
        if isinstance(parent, ast.Assign):
            return all(isinstance(t, ast.Name) and t.id in assigned for t in parent.targets)
        if isinstance(parent, ast.stmt):
            return isinstance(parent, ast.Expr)
        child, parent = parent, parents.get(parent)
    return False


BLANK = Event(Kind.UNKNOWN, site=None)  # type: ignore[arg-type]
__all__ = [
    "call",
    "clear",
    "idle_loss",
    "open_context",
    "role_of_class",
    "store_attribute",
    "updates_by_hand",
]
