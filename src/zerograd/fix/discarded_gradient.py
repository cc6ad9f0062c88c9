"""ZG102: the clear is moved to the start of its window or after the step; a forgotten step is added."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import partial

from zerograd.fix.context import InsertionPoint, Repair, Scene, clearing
from zerograd.fix.edits import Refused
from zerograd.fix.syntax import CLEAR_WORDS, backwards, cleared


def repairs(scene: Scene) -> Iterator[Repair]:
    """The clear is moved out from between the backward and the step."""
    if scene.finding.step is None:
        yield from _never_stepped(scene)
        return
    code = scene.code
    unit = clearing(scene, scene.here)
    backward, step = scene.statement(scene.note(0)), scene.statement(scene.step)
    block = code.meet(backward, step)
    if scene.loop(unit) is not scene.loop(block[0]):
        raise Refused("the clear is in another loop")
    if code.block(unit) is block:
        early = block[: scene.number(backward, block)]
        if cleared(unit) and any(cleared(one) == cleared(unit) for one in early):
            message = "remove the clear: there is one before the backward"
            alone = sum(len(backwards(one)) for one in block) == 1
            yield Repair(message, lambda: (code.erase(unit),), alone)
    window = scene.window(backward, step, cleared(unit))
    asked = isinstance(unit, ast.If)
    places = ((window.start, "before the backward"), (scene.after(step), "after the step"))
    for place, where in places:
        moved = partial(scene.carry, [unit], place, CLEAR_WORDS)
        yield Repair(f"move the clear {where}", moved, window.sure and not asked)


def _never_stepped(scene: Scene) -> Iterator[Repair]:
    made = scene.here
    if not isinstance(made, ast.Assign) or not isinstance(made.targets[0], ast.Name):
        raise Refused("it is unclear what has to be stepped")
    step = f"{made.targets[0].id}.step()"
    backward = scene.statement(scene.note(0))
    if scene.code.function(made) is not scene.code.function(backward):
        raise Refused("the optimizer is created in another function")
    yield scene.insertion(InsertionPoint(after=backward), step, safe=False)
