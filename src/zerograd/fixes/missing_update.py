"""ZG207: `scaler.update()` after the step; an `unscale_` of every micro-batch goes to the step."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from zerograd.fixes.scene import CLIP_WORDS, Place, Repair, Scene, is_call_of, steps
from zerograd.static.edits import Refused


def repairs(scene: Scene) -> Iterator[Repair]:
    """An update after the last step of the scaler."""
    code, here = scene.code, scene.here
    around = scene.loop(here) or code.function(here)
    first = scene.statement(scene.note(0))
    through = [call for call in steps(around) if scene.scaler(call)]
    if not through:
        raise Refused("the scaler steps elsewhere")
    call = is_call_of(here, "unscale_")
    if call is not None and first is here:
        block = code.block(here)
        number = block.index(here)
        units = [[here]]
        if number + 1 < len(block) and not steps(block[number + 1]):
            units.insert(0, block[number : number + 2])
        for unit in units:
            place = Place(before=code.statement_of(through[0]))
            moved = partial(scene.carry, unit, place, CLIP_WORDS)
            yield Repair("move the unscale_ before the step", moved, safe=len(through) == 1)
    scaler = scene.scaler(through[0])
    update = f"{scaler}.update()"
    own = [one for one in through if scene.scaler(one) == scaler]
    yield Repair(f"insert {update}", partial(scene.put, scene.behind(own), update))
