"""ZG106: the clear is moved before the optimizer's own backward."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from zerograd.fix.context import Repair, Scene
from zerograd.fix.edits import Refused
from zerograd.fix.syntax import CLEAR_WORDS, cleared


def repairs(scene: Scene) -> Iterator[Repair]:
    """A clear right after the step is moved; without one, a clear is inserted."""
    code, backward, step = scene.code, scene.here, scene.statement(scene.step)
    if code.function(backward) is not code.function(step):
        raise Refused("the backward and the step are in different functions")
    owner = scene.stepped(scene.call(scene.step))
    start = scene.window(backward, step, owner).start
    block = code.block(step)
    for one in block[block.index(step) + 1 :]:
        if cleared(one) == owner:
            moved = partial(scene.carry, [one], start, CLEAR_WORDS)
            yield Repair("move the clear before the backward", moved, safe=False)
    clear = f"{owner}.zero_grad()"
    yield Repair(f"insert {clear}", partial(scene.put, start, clear), safe=False)
