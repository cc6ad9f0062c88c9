"""Functions and classes of the project: gone through in place, with the values they are handed."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

from zerograd.core.records import replace
from zerograd.explore.logic import Expr
from zerograd.static.interp import conditions
from zerograd.static.interp.constructors import (
    has_own,
    make,
    parameters_of,
    role_of_class,
)
from zerograd.static.interp.effects import announce, hand_to_unseen, handed, result_of
from zerograd.static.read import vocabulary
from zerograd.static.read.file_index import parameters, text_of
from zerograd.static.read.values import (
    NOTHING,
    OPTIMIZER,
    Fn,
    Klass,
    Lit,
    Many,
    Thing,
    Value,
)

if TYPE_CHECKING:
    from zerograd.static.interp.statements import Lower

DEEPEST_CALL = 10


def construct(lower: Lower, node: ast.Call, klass: Klass) -> Value:
    """An object of a project's class; its constructor is gone through where it matters."""
    arguments = handed(lower, node)
    role = role_of_class(lower, klass)
    key = f"{lower.frame.prefix}{node.lineno}:{node.col_offset}"
    if role == OPTIMIZER and not has_own(lower, klass, "step"):
        return make(lower, node, klass.name, OPTIMIZER, arguments, klass)
    params = parameters_of(arguments[0]) if role == OPTIMIZER and arguments else None
    thing = Thing(key, "" if role == OPTIMIZER else role, params, klass, made=True)
    lower.fresh.add(key)
    announce(lower, node, key)
    for base in lower.lineage(klass):
        init = base.method("__init__")
        if init is not None:
            fn = Fn(init, base.module, "__init__", thing, None, base)
            if _class_matters(lower, klass):
                inline(lower, fn, node, arguments, force=True)
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


def inline(
    lower: Lower,
    fn: Fn,
    node: ast.Call,
    arguments: list[Value] | None,
    force: bool = False,
) -> Value:
    """Goes through the body of a function of the project with the values it is handed."""
    if arguments is None:
        arguments = handed(lower, node)
    visible = (
        len(lower.stack) < DEEPEST_CALL
        and fn.node not in lower.stack
        and not fn.module.facts[fn.node].yields
    )
    wanted = force or lower.relevant(fn) or _gives_optimizer(fn)
    if not visible or not wanted or lower.quiet > 3:
        if wanted and not lower.quiet:
            hand_to_unseen(lower, node, arguments, fn.name)
        used = _attributes_used(lower, fn) | _globals_called(lower, fn)
        result = result_of(lower, [], arguments, used, node)
        scales = any(name.endswith(".scale") for name in fn.module.facts[fn.node].calls)
        result = replace(result, scaled=None) if scales else result
        return replace(result, divided=None) if fn.module.facts[fn.node].divides else result
    formal = parameters(fn.node)
    bound = fn.owner is not None and not isinstance(fn.node, ast.Lambda)
    if bound and any(text_of(d) == "staticmethod" for d in getattr(fn.node, "decorator_list", [])):
        bound = False
    values: dict[str, Value] = {}
    aliases: dict[str, str] = {}
    tests: dict[str, Expr] = {}
    if bound and formal and fn.owner is not None:
        values[formal[0].arg] = fn.owner
        formal = formal[1:]
    _defaults(fn, values)
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
        elif isinstance(source, (ast.Compare, ast.BoolOp)):
            tests[name] = conditions.expression(lower, source)
    for arg in formal:
        values.setdefault(
            arg.arg, NOTHING if arg.arg in ("args", "kwargs") else Thing(f"{arg.arg}")
        )
    return lower.enter(fn, values, aliases, tests)


def _positional(fn: Fn, bound: bool) -> list[ast.arg]:
    args = [*fn.node.args.posonlyargs, *fn.node.args.args]
    return args[1:] if bound else args


def _defaults(fn: Fn, values: dict[str, Value]) -> None:
    args = fn.node.args
    tail = [*args.posonlyargs, *args.args][-len(args.defaults) :] if args.defaults else []
    pairs = list(zip(tail, args.defaults, strict=False))
    pairs += [
        (a, d) for a, d in zip(args.kwonlyargs, args.kw_defaults, strict=True) if d is not None
    ]
    for arg, default in pairs:
        if isinstance(default, ast.Constant) and isinstance(
            default.value, (bool, int, float, str, type(None))
        ):
            values[arg.arg] = Lit(default.value)


def _gives_optimizer(fn: Fn) -> bool:
    """A factory of the project: its body says what the optimizer steps."""
    if vocabulary.role_of_call(fn.name) != OPTIMIZER or isinstance(fn.node, ast.Lambda):
        return False
    return any(
        vocabulary.role_of_call(name) == OPTIMIZER for name in fn.module.facts[fn.node].calls
    )


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


def _globals_called(lower: Lower, fn: Fn) -> frozenset[str]:
    """What else a function may compute with: the objects outside of it that it calls."""
    keys = set()
    for name in fn.module.facts[fn.node].calls:
        if "." in name or name in fn.module.imports:
            continue
        held = fn.frame.env.get(name) if fn.frame is not None else None
        if held is None and (name in fn.module.globals or name in lower.top.env):
            held = lower.global_name(fn.module, name)
        if isinstance(held, Thing):
            keys.add(held.key)
    return frozenset(keys)
