"""ZG204: the clip goes under the guard of the step; with accelerate, under `sync_gradients`."""

from __future__ import annotations

from collections.abc import Iterator

from zerograd.fix.clipping import branches, clip_of, closing, moves, passable
from zerograd.fix.context import Repair, Scene
from zerograd.fix.edits import Refused


def repairs(scene: Scene) -> Iterator[Repair]:
    """The clip is done once per window, right before the step."""
    clip = clip_of(scene, scene.here)
    call, step = scene.call(scene.step), scene.statement(scene.step)
    accelerator = next(scene.opened("accumulate"), "")
    if accelerator:
        test = f"{accelerator}.sync_gradients"
        yield Repair(
            f"clip only `if {test}`", lambda: (scene.code.wrap(clip.unit, test),), clip.plain
        )
        return
    place, arms = closing(scene, step, call)
    block = scene.code.meet(clip.unit[0], step)
    start, end = scene.number(clip.unit[-1], block), scene.number(step, block)
    passable(clip.unit, block[start + 1 : end])
    if place.before is not None and branches(scene, place.before, block) > 1:
        raise Refused(
            "the step is in a branch of its guard, and other branches would lose the clip"
        )
    alone = branches(scene, clip.unit[0], block) == 0
    yield from moves(scene, clip, call, place, safe=clip.plain and not arms and alone)
