"""ZG202: the clip goes after the backward, right before the step."""

from __future__ import annotations

from collections.abc import Iterator

from zerograd.fix.clipping import moves_before_step
from zerograd.fix.context import Repair, Scene


def repairs(scene: Scene) -> Iterator[Repair]:
    """The clip is moved before the step, under the step's guard."""
    return moves_before_step(scene, scene.step)
