"""ZG105: the second of two equal steps is removed."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import partial

from zerograd.core.finding import Edit
from zerograd.fix.context import Repair, Scene
from zerograd.fix.edits import Refused


def repairs(scene: Scene) -> Iterator[Repair]:
    """`optimizer.step()` twice in one block becomes `optimizer.step()`."""
    yield Repair("delete the second step", partial(_edits, scene), safe=False)


def _edits(scene: Scene) -> tuple[Edit, ...]:
    code = scene.code
    again, first = scene.here, scene.statement(scene.note(0))
    if code.block(again) is not code.block(first) or ast.dump(again) != ast.dump(first):
        raise Refused("the two steps differ, or are in different blocks")
    return (code.erase(again),)
