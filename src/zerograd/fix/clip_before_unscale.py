"""ZG201: `scaler.unscale_(optimizer)` before the clip."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import partial

from zerograd.fix.clipping import clip_of
from zerograd.fix.context import InsertionPoint, Repair, Scene
from zerograd.fix.edits import Function, Refused
from zerograd.fix.syntax import CLIP_WORDS, clips, is_call_of, own_nodes, steps
from zerograd.static.read.syntax_tree import LOOPS


def repairs(scene: Scene) -> Iterator[Repair]:
    """An `unscale_` that comes too late is moved; if there is none, one is inserted."""
    code, here = scene.code, scene.here
    around = scene.around(here)
    for node in own_nodes(around):
        if isinstance(node, ast.stmt) and is_call_of(node, "unscale_"):
            if code.span(node) > code.span(here):
                unit, holder = node, code.holder(node)
                while isinstance(holder, ast.If) and not holder.orelse and len(holder.body) == 1:
                    unit, holder = holder, code.holder(holder)
                block = code.block(unit)
                alone = not any(clips(one) for one in block[block.index(unit) + 1 :])
                moved = partial(scene.carry, [unit], InsertionPoint(before=here), CLIP_WORDS)
                yield Repair("move the unscale_ before the clip", moved, alone)
    tests = _tests(scene)
    inside = around if isinstance(around, LOOPS) else ast.Module(_body(around), [])
    through = [call for call in steps(inside) if scene.scaler(call)]
    for scaler, optimizer in dict.fromkeys((scene.scaler(c), scene.stepped(c)) for c in through):
        unscale = f"{scaler}.unscale_({optimizer})"
        lines = [f"if {tests}:", code.level(here) + unscale] if tests else [unscale]
        yield Repair(f"insert {unscale}", partial(scene.put, InsertionPoint(before=here), *lines))
        unit = clip_of(scene, here).unit[-1]
        if unit is not here and tests:
            yield Repair(
                f"insert {unscale}", partial(scene.put, InsertionPoint(before=unit), *lines)
            )


def _body(function: ast.AST) -> list[ast.stmt]:
    body = getattr(function, "body", [])
    return body if isinstance(body, list) else []


def _tests(scene: Scene) -> str:
    """The test under which the loss is scaled, if the clip is not under it."""
    backward, here = scene.statement(scene.note(0)), scene.here
    found = []
    child: ast.AST = backward
    for above in scene.code.ancestors(backward):
        if isinstance(above, Function) or above in scene.code.ancestors(here):
            break
        if isinstance(above, ast.If):
            if child not in above.body:
                raise Refused("the loss is scaled only in the other branch of a test")
            found.append(scene.code.text(above.test))
        child = above
    if len(found) > 1:
        raise Refused("the loss is scaled only under several tests at once")
    return found[0] if found else ""
