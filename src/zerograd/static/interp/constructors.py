"""Objects: optimizers, modules and wrappers, as constructors, factories and frameworks make them."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

from zerograd.core.events import Kind
from zerograd.core.records import replace
from zerograd.static.interp.effects import BLANK, Act, announce, keyword
from zerograd.static.read import vocabulary
from zerograd.static.read.file_index import text_of
from zerograd.static.read.values import (
    NOTHING,
    OPTIMIZER,
    OTHER,
    Fn,
    Klass,
    Lit,
    Many,
    Params,
    Table,
    Tensor,
    Thing,
    Value,
)

if TYPE_CHECKING:
    from zerograd.static.interp.statements import Lower


def lightning_optimizers(lower: Lower, owner: Thing) -> Value:
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


def unwrapped(given: list[Value]) -> Value:
    """What a wrapper gives back: each object it was handed, or the one."""
    given = [value for value in given if not isinstance(value, Lit)]
    return given[0] if len(given) == 1 else Many(tuple(given))


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


def is_optimizer_class(lower: Lower, method: Fn) -> bool:
    """Whether a method belongs to an optimizer of the project."""
    return method.klass is not None and role_of_class(lower, method.klass) == OPTIMIZER


def seen_to_clear(method: Fn) -> bool:
    """Whether a method visibly clears gradients."""
    for node in ast.walk(method.node):
        if isinstance(node, ast.Attribute) and node.attr in (
            "zero_grad",
            "zero_",
            "_foreach_zero_",
        ):
            return True
        if isinstance(node, ast.Assign) and any(
            isinstance(target, ast.Attribute) and target.attr == "grad" for target in node.targets
        ):
            return True
    return False


def has_own(lower: Lower, klass: Klass, name: str) -> bool:
    """Whether a class or a visible base of it defines a method."""
    return any(base.method(name) is not None for base in lower.lineage(klass))


def role_of_class(lower: Lower, klass: Klass) -> str:
    """The role of a project's class, from what it inherits or is called."""
    for base in lower.lineage(klass):
        for parent in base.node.bases:
            role = vocabulary.role_of_call(text_of(parent))
            if role:
                return role
    if klass.name in vocabulary.CONSTRUCTORS:
        return vocabulary.CONSTRUCTORS[klass.name] if not has_own(lower, klass, "__call__") else ""
    return ""


def make(
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
    wrapped = [
        a for a in arguments if isinstance(a, Thing) and lower.roles.get(a.key, a.role) == OPTIMIZER
    ]
    if wrapped:
        # A wrapper shares the groups of the optimizer inside: whatever it does, it does to those.
        return wrapped[0]
    given = keyword(node, "params", "parameters") or (node.args[0] if node.args else None)
    params = None
    built = (
        name[:1].isupper()
        or name.startswith("torch.optim.")
        or name.rsplit(".", 1)[-1][:1].isupper()
    )
    if given is not None and built:
        params = parameters_of(lower.peek(given))
        for key_of in params if params and len(params) == 1 else ():
            if lower.roles.get(key_of) == OPTIMIZER:
                # Made from another one's `param_groups`.
                return Thing(key_of, OPTIMIZER, lower.params.get(key_of))
    thing = Thing(key, OPTIMIZER, params, klass, made=True)
    lower.roles[key] = OPTIMIZER
    lower.params[key] = params
    if not lower.quiet:
        lower.made[key] = lower.site(node)
        if params is None:
            # Who knows what it steps: another optimizer may have left something there.
            lower.emit(Kind.UNKNOWN, node, Act(BLANK, whose=frozenset({key})))
    return thing


def parameters_of(value: Value) -> frozenset[str] | None:
    """The keys of what an optimizer is given to step."""
    if isinstance(value, Params):
        return value.keys or None
    if isinstance(value, Thing):
        return frozenset({value.key})
    if isinstance(value, Table):
        found = [item for name, item in value.items if name == "params"]
        return parameters_of(found[0]) if found else None
    if isinstance(value, Many) and value.items:
        parts = [parameters_of(item) for item in value.items]
        known = [part for part in parts if part is not None]
        return frozenset().union(*known) if len(known) == len(parts) else None
    return None


def built_object(lower: Lower, node: ast.Call, arguments: list[Value] | None = None) -> Thing:
    """A new object of a class that cannot be seen; it may share what it was handed."""
    key = f"{lower.frame.prefix}{node.lineno}:{node.col_offset}"
    if not any(isinstance(argument, (Thing, Params)) for argument in arguments or ()):
        lower.fresh.add(key)
        announce(lower, node, key)
    return Thing(key, made=True)
