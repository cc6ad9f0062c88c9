"""ZG202: the clip goes after the backward, right before the step."""

from __future__ import annotations

from collections.abc import Iterator

from zerograd.fix.clipping import carried, clip_of, closing, moves, passable
from zerograd.fix.context import Repair, Scene


def repairs(scene: Scene) -> Iterator[Repair]:
    """The clip is moved before the step, under the step's guard."""
    clip = clip_of(scene, scene.here)
    call, step = scene.call(scene.step), scene.statement(scene.step)
    place, arms = closing(scene, step, call)
    block = scene.code.meet(clip.unit[0], step)
    start, end = scene.number(clip.unit[-1], block), scene.number(step, block)
    passable(clip.unit, block[start + 1 : end])
    yield from moves(scene, clip, call, place, safe=not arms and not carried(clip.unit, block))
