"""ZG207: `scaler.update()` after the step; an `unscale_` of every micro-batch is moved to the step."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import partial

from zerograd.fix.clipping import passable
from zerograd.fix.context import InsertionPoint, Repair, Scene
from zerograd.fix.edits import Refused
from zerograd.fix.syntax import CLIP_WORDS, clips, is_call_of, own_nodes, steps


def repairs(scene: Scene) -> Iterator[Repair]:
    """An update after the scaler's last step, or where the step is skipped."""
    code, here = scene.code, scene.here
    around = scene.around(here)
    through = [call for call in steps(around) if scene.scaler(call)]
    if not through:
        raise Refused("the step of the scaler is elsewhere")
    step = code.statement_of(through[0])
    scaler = scene.scaler(through[0])
    update = f"{scaler}.update()"
    if scene.statement(scene.note(0)) is here and is_call_of(here, "unscale_"):
        if code.block(step) is not code.block(here):
            yield from _moves(scene, here, step, safe=len(through) == 1)
        for leaving in own_nodes(around):
            if isinstance(leaving, ast.Continue) and code.span(here) < code.span(leaving):
                put = partial(scene.put, InsertionPoint(before=leaving), update)
                yield Repair(f"insert {update} where the step is skipped", put)
    own = [one for one in through if scene.scaler(one) == scaler]
    yield scene.insertion(scene.behind(own), update)


def _moves(scene: Scene, here: ast.stmt, step: ast.stmt, *, safe: bool) -> Iterator[Repair]:
    """An `unscale_` of every micro-batch is moved under the guard of the step, with its clip."""
    block = scene.code.meet(here, step)
    first, last = scene.number(here, block), scene.number(step, block)
    together = [one for one in block[first + 1 : last] if clips(one)][:1]
    for unit in (
        ([here, *together], [here]) if together == block[first + 1 : first + 2] else ([here],)
    ):
        passable(unit, block[first + len(unit) : last])
        moved = partial(scene.carry, unit, InsertionPoint(before=step), CLIP_WORDS)
        yield Repair("move the unscale_ before the step", moved, safe)
