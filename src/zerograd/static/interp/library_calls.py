"""Calls of what is not part of the project: builtins, torch, and everything unseen."""

from __future__ import annotations

import ast
from collections.abc import Callable
from typing import TYPE_CHECKING

from zerograd.core.records import replace
from zerograd.explore.flow import Alt, Flow, Seq, Set
from zerograd.explore.logic import Const, Count, LastIteration, Op, Synchronises
from zerograd.static.interp.constructors import built_object, make, unwrapped
from zerograd.static.interp.effects import (
    clear,
    emit_backward,
    emit_step,
    hand_to_unseen,
    handed,
    is_true,
    keyword,
    result_of,
)
from zerograd.static.interp.step_calls import clip_call, without_limit
from zerograd.static.read import vocabulary
from zerograd.static.read.file_index import text_of
from zerograd.static.read.values import (
    ACCELERATOR,
    ENGINE,
    NOTHING,
    OTHER,
    Bound,
    Fn,
    Grad,
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
)

if TYPE_CHECKING:
    from zerograd.static.interp.statements import Lower


def outside_call(lower: Lower, node: ast.Call, name: str) -> Value:
    """A call of something that is not part of the project."""
    last = name.rsplit(".", 1)[-1]
    builtin = _BUILTIN_CALLS.get(last)
    if builtin is not None:
        handled = builtin(lower, node, name)
        if handled is not None:
            return handled
    if last in vocabulary.CLIPS:
        return clip_call(lower, node, None)
    arguments = handed(lower, node)
    role = vocabulary.role_of_call(name)
    if role and not name.startswith(("os.", "logging.", "time.")):
        return make(lower, node, name, role, arguments)
    if last == "initialize" and "deepspeed" in name:
        key = f"{lower.frame.prefix}{node.lineno}:{node.col_offset}"
        inner = Thing(f"{key}.optimizer", OTHER)
        return Many((Thing(key, ENGINE), inner, NOTHING, NOTHING))
    if vocabulary.WRAPPERS.search(last) and node.args:
        return unwrapped(arguments[:1] if last[:1].isupper() else arguments[: len(node.args)])
    hand_to_unseen(lower, node, arguments, last)
    leaf = last == "Parameter" or is_true(keyword(node, "requires_grad"))
    built = last[:1].isupper() and (not name.startswith("torch.") or name.startswith("torch.nn."))
    if leaf or built:
        return built_object(lower, node, arguments)
    return result_of(lower, [], arguments, node=node)


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
    arguments = handed(lower, node)
    return arguments[0] if arguments else Many(())


def _filter(lower: Lower, node: ast.Call, name: str) -> Value | None:
    arguments = handed(lower, node)
    return arguments[1] if len(arguments) == 2 else NOTHING


def _chain(lower: Lower, node: ast.Call, name: str) -> Value | None:
    if "itertools" not in name and name != "chain":
        return None
    arguments = handed(lower, node)
    if len(arguments) == 1 and isinstance(arguments[0], Many):
        arguments = list(arguments[0].items)
    if arguments and all(isinstance(argument, Params) for argument in arguments):
        return Params(frozenset().union(*(a.keys for a in arguments if isinstance(a, Params))))
    return NOTHING


def _cast(lower: Lower, node: ast.Call, name: str) -> Value | None:
    given = handed(lower, node)
    return given[1] if len(given) == 2 else None


def _partial(lower: Lower, node: ast.Call, name: str) -> Value | None:
    arguments = handed(lower, node)
    known = bool(arguments) and isinstance(arguments[0], (Bound, Fn, Origin))
    return arguments[0] if known and not without_limit(node) else None


def _dict(lower: Lower, node: ast.Call, name: str) -> Value | None:
    if node.args:
        return _same(lower, node, name)
    pairs = [(keyword.arg, lower.value(keyword.value)) for keyword in node.keywords]
    return Table(tuple(pairs))


def _autograd_backward(lower: Lower, node: ast.Call, name: str) -> Value | None:
    if not name.endswith("autograd.backward"):
        return None
    arguments = handed(lower, node)
    first = arguments[0] if arguments else NOTHING
    emit_backward(lower, node, mix(list(first.items)) if isinstance(first, Many) else first)
    return Lit(None)


def _foreach(lower: Lower, node: ast.Call, name: str) -> Value | None:
    arguments = handed(lower, node)
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
    if (
        len(node.args) == 3
        and isinstance(node.args[1], ast.Constant)
        and node.args[1].value == "grad"
    ):
        clear(lower, lower.value(node.args[0]), node, to_none=True)
        return Lit(None)
    return None


def _optimizer_step_call(lower: Lower, node: ast.Call, name: str) -> Value | None:
    arguments = handed(lower, node)
    if arguments and isinstance(arguments[0], Thing):
        emit_step(lower, node, arguments[0].key)
        return Lit(None)
    return None


def open_context(lower: Lower, item: ast.withitem, after: list[Flow]) -> None:
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
    if (
        last == "accumulate"
        and isinstance(context, ast.Call)
        and isinstance(context.func, ast.Attribute)
    ):
        owner = lower.value(context.func.value)
        handed(lower, context)
        if isinstance(owner, Thing) and lower.role(owner, context.func.value) == ACCELERATOR:
            lower.accumulating = text_of(context.func.value)
            counter = Count(lower.accumulating)
            lower.out.append(Set(counter, Op("+", (counter, Const(1)))))
            lower.out.append(Set(Synchronises(lower.accumulating), lower.synchronises()))
            # The loader's last batch closes the window, and the count begins anew.
            ends = LastIteration(lower.loops[-1])
            after.append(Alt(ends, Set(counter, Const(0)), Seq(()), lower.site(context)))
            return
    value = lower.value(context)
    if last == "scale_loss" and isinstance(context, ast.Call):
        value = replace(mix([lower.peek(arg) for arg in context.args[:1]]), scaled=None)
    if item.optional_vars is not None:
        lower.store(item.optional_vars, value, None, context)


_BuiltinCall = Callable[["Lower", ast.Call, str], "Value | None"]
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
    "cast": _cast,
    "backward": _autograd_backward,
    "_foreach_zero_": _foreach,
    "getattr": _getattr,
    "setattr": _setattr,
    "optimizer_step": _optimizer_step_call,
}
