"""ZG107: a test for None around the use, or `zero_grad()` if the line has no room for a test."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from zerograd.fix.context import Repair, Scene
from zerograd.fix.edits import Refused
from zerograd.fix.syntax import backwards, is_gradient, own_nodes
from zerograd.static.read.syntax_tree import text_of


def repairs(scene: Scene) -> Iterator[Repair]:
    """The statement moves under `if p.grad is not None`."""
    code, here = scene.code, scene.here
    if not isinstance(here, (ast.Expr, ast.AugAssign)):
        raise Refused("its result is used")
    if any(isinstance(node, (ast.comprehension, ast.Lambda)) for node in ast.walk(here)):
        raise Refused("it is part of a larger expression")
    if any(
        one.site == scene.finding.site for one in scene.others if one.code != scene.finding.code
    ):
        raise Refused("another finding at this place has to be repaired first")
    if not backwards(code.function(here)):
        raise Refused("the function around it calls no backward()")
    found = {code.text(node) for node in own_nodes(here) if is_gradient(node)}
    if len(found) != 1:
        raise Refused("the statement uses several gradients")
    gradient = found.pop()
    test = f"{gradient} is not None"
    unit = _run(scene, here, gradient)
    yield Repair(f"add `if {test}`", lambda: (code.wrap(unit, test),))
    loop = code.holder(here)
    if isinstance(loop, ast.For) and len(loop.body) == 1 and _clears_all(loop, here):
        assert isinstance(loop.iter, ast.Call)
        assert isinstance(loop.iter.func, ast.Attribute)
        clear = f"{code.text(loop.iter.func.value)}.zero_grad(set_to_none=False)"
        yield Repair(f"call {clear}", lambda: (code.edit(code.span(loop), clear),))


def _run(scene: Scene, here: ast.stmt, gradient: str) -> list[ast.stmt]:
    """The statement with its neighbours that use the same gradient."""

    def uses(one: ast.stmt) -> bool:
        found = {text_of(node) for node in own_nodes(one) if isinstance(node, ast.Attribute)}
        return isinstance(one, (ast.Expr, ast.AugAssign)) and gradient in found

    block = scene.code.block(here)
    first = last = block.index(here)
    while first > 0 and uses(block[first - 1]):
        first -= 1
    while last + 1 < len(block) and uses(block[last + 1]):
        last += 1
    return block[first : last + 1]


def _clears_all(loop: ast.For, here: ast.stmt) -> bool:
    """Whether a loop is `for p in module.parameters(): p.grad.zero_()` and nothing more."""
    call = here.value if isinstance(here, ast.Expr) else None
    return (
        isinstance(loop.target, ast.Name)
        and isinstance(loop.iter, ast.Call)
        and isinstance(loop.iter.func, ast.Attribute)
        and loop.iter.func.attr == "parameters"
        and not loop.iter.args
        and not loop.orelse
        and isinstance(call, ast.Call)
        and ast.unparse(call)
        in (f"{loop.target.id}.grad.zero_()", f"{loop.target.id}.grad.data.zero_()")
    )
