"""ZG203: the clip goes before the step, together with its `if`."""

from __future__ import annotations

from collections.abc import Iterator

from zerograd.fix.clipping import carried, clip_of, closing, moves, passable
from zerograd.fix.context import Repair, Scene


def repairs(scene: Scene) -> Iterator[Repair]:
    """The clip is moved before the step that used the gradients unclipped."""
    clip = clip_of(scene, scene.here)
    call, step = scene.call(scene.note(0)), scene.statement(scene.note(0))
    place, arms = closing(scene, step, call)
    block = scene.code.meet(clip.unit[0], step)
    start, end = scene.number(step, block), scene.number(clip.unit[0], block)
    passable(clip.unit, block[start:end])
    yield from moves(scene, clip, call, place, safe=not arms and not carried(clip.unit, block))
