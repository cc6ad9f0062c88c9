"""ZG103: the clear is moved to where the window closes, right after the step."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import partial

from zerograd.core.rule import Windows
from zerograd.fix.context import Repair, Scene, clearing
from zerograd.fix.edits import Refused
from zerograd.fix.syntax import CLEAR_WORDS, cleared, is_modulo, own_nodes, steps


def repairs(scene: Scene) -> Iterator[Repair]:
    """The clear is moved under the guard, after the step."""
    unit = clearing(scene, scene.here)
    around = scene.around(unit)
    found = steps(around)
    own = [call for call in found if scene.stepped(call) == cleared(unit)] or found
    if len({scene.stepped(call) for call in own}) != 1:
        raise Refused("it is unclear which step closes the window")
    moved = partial(scene.carry, [unit], scene.behind(own), CLEAR_WORDS)
    # A loop that skips batches may rely on the clear at the start of the next iteration.
    skips = sum(isinstance(node, ast.Continue) for node in own_nodes(around))
    guards = sum(_holds_back(node) for node in own_nodes(around))
    safe = skips == guards and not scene.also(Windows.LENGTH)
    yield Repair("move the clear after the step", moved, safe)


def _holds_back(node: ast.AST) -> bool:
    """Whether it is `if count % N: continue`."""
    if not isinstance(node, ast.If) or not isinstance(node.body[-1], ast.Continue):
        return False
    return any(map(is_modulo, ast.walk(node.test)))
