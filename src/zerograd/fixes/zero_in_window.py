"""ZG103: the clear goes where the window closes, right after the step."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from zerograd.fixes.scene import CLEAR_WORDS, Repair, Scene, cleared, clearing, steps
from zerograd.static.edits import Refused


def repairs(scene: Scene) -> Iterator[Repair]:
    """The clear is moved behind the guard of the step."""
    unit = clearing(scene, scene.here)
    loop = scene.loop(unit)
    if loop is None:
        raise Refused("the clear and the step stand in different functions")
    found = steps(loop)
    own = [call for call in found if scene.stepped(call) == cleared(unit)] or found
    if len({scene.stepped(call) for call in own}) != 1:
        raise Refused("it cannot be seen which step closes the window")
    moved = partial(scene.carry, [unit], scene.behind(own), CLEAR_WORDS)
    yield Repair("move the clear after the step", moved)
