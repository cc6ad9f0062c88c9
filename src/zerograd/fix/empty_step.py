"""ZG104: the backward of the unused loss is inserted."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from zerograd.fix.context import InsertionPoint, Repair, Scene
from zerograd.fix.edits import Refused
from zerograd.fix.syntax import is_clear


def repairs(scene: Scene) -> Iterator[Repair]:
    """The backward is inserted after the loss, in the block of the step."""
    step, loss = scene.here, scene.statement(scene.note(1))
    if not isinstance(loss, ast.Assign) or not isinstance(loss.targets[0], ast.Name):
        raise Refused("it is unclear which loss is meant")
    block = scene.code.meet(loss, step)
    first, last = scene.number(loss, block), scene.number(step, block)
    if not isinstance(block[first], (ast.Assign, ast.With)):
        raise Refused("the loss is not always computed")
    # A clear between the loss and the step comes before the backward.
    after = max(n for n in range(first, last) if n == first or is_clear(block[n]))
    name = loss.targets[0].id
    node = scene.code.node(scene.finding.site)
    scaler = scene.scaler(node) if isinstance(node, ast.Call) else ""
    backward = f"{scaler}.scale({name}).backward()" if scaler else f"{name}.backward()"
    yield scene.insertion(InsertionPoint(after=block[after]), backward, safe=False)
