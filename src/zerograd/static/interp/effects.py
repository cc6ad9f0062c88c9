"""What code does to gradients before it is known whose, and the words in which calls say it."""

from __future__ import annotations

import ast
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING

from zerograd.core.events import Event, Kind
from zerograd.core.records import replace
from zerograd.explore.flow import Emit, Flow, walk
from zerograd.static.read import vocabulary
from zerograd.static.read.values import (
    OPTIMIZER,
    Grad,
    Many,
    Params,
    Tensor,
    Thing,
    Value,
    mix,
    roots,
)

if TYPE_CHECKING:
    from zerograd.static.interp.statements import Lower


@dataclass(eq=False)
class Act(Emit):
    """An event of the code. `whose` are keys of optimizers, modules or leaf tensors."""

    whose: frozenset[str] = frozenset()
    anyone: bool = False
    """It cannot be seen whose gradients it touches."""
    perhaps: frozenset[str] = frozenset()
    """backward: things that the loss may run through."""
    wrapped: bool = False
    """backward: run by accelerate, Fabric or an engine."""
    leaf: bool = False
    """zero: of one tensor, not of all that a module or an optimizer holds."""
    within: tuple[ast.AST, ...] = ()
    """backward of a whole loss: its loop, and the functions between that and the call."""


BLANK = Event(Kind.UNKNOWN, site=None)  # type: ignore[arg-type]


def handed(lower: Lower, node: ast.Call) -> list[Value]:
    """The values that a call is handed, keywords last."""
    positional = [lower.value(arg) for arg in node.args]
    return positional + [lower.value(keyword.value) for keyword in node.keywords]


def keyword(node: ast.Call, *wanted: str) -> ast.expr | None:
    """What a call hands over under one of these keywords."""
    return next((keyword.value for keyword in node.keywords if keyword.arg in wanted), None)


def _keyword_is(node: ast.Call, name: str, value: str) -> bool:
    given = keyword(node, name)
    return isinstance(given, ast.Constant) and given.value == value


def is_true(node: ast.expr | None) -> bool:
    """Whether an argument is the literal True."""
    return isinstance(node, ast.Constant) and node.value is True


def clear(
    lower: Lower, owner: Value | None, node: ast.AST, *, to_none: bool, bare: bool = False
) -> None:
    """Something clears these gradients."""
    keys, perhaps = roots(owner)
    if any(key.endswith("[?]") for key in keys):
        unseen(lower, node, frozenset(key.removesuffix("[?]") for key in keys))
        return
    some = lower.some or (isinstance(owner, (Params, Grad)) and owner.some)
    act = Act(BLANK, whose=keys | perhaps, anyone=not keys)
    act.leaf = isinstance(owner, Grad) and owner.leaf
    lower.emit(Kind.ZERO, node, act, to_none=to_none, bare=bare and not some, may=some)


def act_on(lower: Lower, kind: Kind, node: ast.AST, keys: frozenset[str], **fields: object) -> None:
    """Something is done to the gradients of these."""
    lower.emit(kind, node, Act(BLANK, whose=keys, anyone=not keys), **fields)


def step_by_hand(lower: Lower, node: ast.AST, keys: frozenset[str]) -> None:
    """Parameters are updated from their gradients without an optimizer."""
    act = Act(BLANK, whose=frozenset(f"by hand:{key}" for key in keys))
    lower.emit(Kind.STEP, node, act, may=lower.some)


def unseen(lower: Lower, node: ast.AST, keys: frozenset[str]) -> None:
    """Something that cannot be seen may have been done to these."""
    act_on(lower, Kind.UNKNOWN, node, keys)


def emit_backward(
    lower: Lower,
    node: ast.AST,
    owner: Value,
    whose: frozenset[str] = frozenset(),
    wrapped: bool = False,
    **fields: object,
) -> None:
    """A backward of this loss, or of these losses."""
    sure, perhaps = roots(owner)
    if isinstance(owner, Tensor):
        tensor = owner
    elif isinstance(owner, Many):
        tensor = mix(list(owner.items))
    else:
        tensor = Tensor(sure, perhaps, divided=None, scaled=None)
    lower.wrapped |= wrapped
    frozen = {key for key in sure if key in lower.frozen}
    act = Act(BLANK, whose=(sure - frozen) | whose, perhaps=perhaps - frozen, wrapped=wrapped)
    act.anyone = not act.whose and not act.perhaps and not frozen
    divisor: int | None = 0
    if fields.get("bypasses"):
        divisor = 0
    elif tensor.divided and tensor.divisor is not None:
        act.divisor = tensor.divisor
    elif tensor.divided is False:
        divisor = None
        act.within = lower.around()
    lower.emit(Kind.BACKWARD, node, act, scaled=tensor.scaled, divisor=divisor, **fields)


def emit_step(lower: Lower, node: ast.AST, key: str, **fields: object) -> None:
    """A step of the optimizer with this key."""
    if key.endswith("[?]"):
        unseen(lower, node, frozenset({key[:-3]}))
        return
    lower.roles.setdefault(key, OPTIMIZER)
    act = Act(BLANK, whose=frozenset({key}))
    lower.emit(Kind.STEP, node, act, **fields)


def freeze(lower: Lower, owner: Value, frozen: bool) -> None:
    """From here on no gradient reaches these, or again does."""
    keys, _ = roots(owner)
    if frozen:
        lower.frozen |= keys
    else:
        lower.frozen -= keys


def result_of(
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
    summed = node is not None and _keyword_is(node, "reduction", "sum")
    return replace(
        result,
        maybe=(result.maybe | things | perhaps) - result.roots,
        divisor=None,
        divided=None if summed else False,
        scaled=bool(result.scaled),
    )


@lru_cache(maxsize=4096)
def is_benign(name: str) -> bool:
    """Whether an unseen function of this name only reads what it is handed."""
    return vocabulary.BENIGN.search(name) is not None


def hand_to_unseen(lower: Lower, node: ast.Call, arguments: list[Value], name: str) -> None:
    """An optimizer in unseen hands is unknown afterwards, unless they only read it."""
    if vocabulary.CLEARS.search(name) and not lower.quiet:
        lower.emit(Kind.ZERO, node, Act(BLANK, anyone=True), may=True)
    for argument in arguments:
        for item in argument.items if isinstance(argument, Many) else (argument,):
            if isinstance(item, Thing) and lower.roles.get(item.key, item.role) == OPTIMIZER:
                if not vocabulary.SCHEDULER.search(name):
                    lower.handed.add(item.key)
                if not is_benign(name) and not lower.quiet:
                    unseen(lower, node, frozenset({item.key}))


def announce(lower: Lower, node: ast.AST, key: str) -> None:
    """New parameters have no gradients; those of a module are its own affair."""
    if not lower.quiet and lower.frame.owner is None:
        act_on(lower, Kind.NEW, node, frozenset({key}))


def excuse_bypass(lower: Lower, then: Flow, orelse: Flow) -> None:
    """Where one arm lets the wrapper run backward, the other one does without it on purpose."""
    if not lower.wrapped:
        return
    arms = [[act for act in walk(arm) if isinstance(act, Act)] for arm in (then, orelse)]
    for arm, other in (arms, arms[::-1]):
        if any(act.wrapped for act in other):
            for act in arm:
                act.event = replace(act.event, bypasses="")
