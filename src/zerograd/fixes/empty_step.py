"""ZG104: the backward of the loss that is handed to nothing."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import partial

from zerograd.fixes.scene import Place, Repair, Scene
from zerograd.static.edits import Refused


def repairs(scene: Scene) -> Iterator[Repair]:
    """The backward is put after the loss, among the statements of the step."""
    step, loss = scene.here, scene.statement(scene.note(1))
    if not isinstance(loss, ast.Assign) or not isinstance(loss.targets[0], ast.Name):
        raise Refused("it cannot be seen which loss is meant")
    block = scene.code.meet(loss, step)
    after = scene.code.within(loss, block)
    if not isinstance(after, (ast.Assign, ast.With)):
        raise Refused("the loss is not always computed")
    name = loss.targets[0].id
    call = scene.call(scene.finding.site)
    scaler = scene.scaler(call)
    backward = f"{scaler}.scale({name}).backward()" if scaler else f"{name}.backward()"
    yield Repair(f"insert {backward}", partial(scene.put, Place(after=after), backward), safe=False)
