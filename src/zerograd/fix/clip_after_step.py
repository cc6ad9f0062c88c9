"""ZG203: the clip goes before the step, together with its `if`."""

from __future__ import annotations

from collections.abc import Iterator

from zerograd.fix.clipping import moves_before_step
from zerograd.fix.context import Repair, Scene


def repairs(scene: Scene) -> Iterator[Repair]:
    """The clip is moved before the step that used the gradients unclipped."""
    return moves_before_step(scene, scene.note(0))
