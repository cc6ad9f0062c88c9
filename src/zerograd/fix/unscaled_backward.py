"""ZG208: the loss is scaled before its backward."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from zerograd.core.finding import Edit
from zerograd.fix.context import Repair, Scene
from zerograd.fix.edits import Refused
from zerograd.fix.syntax import is_call_of


def repairs(scene: Scene) -> Iterator[Repair]:
    """`loss.backward()` becomes `scaler.scale(loss).backward()`; an unused `scale` is removed."""
    code, here = scene.code, scene.here
    call = scene.call(scene.finding.site)
    scaler = scene.scaler(scene.call(scene.step))
    if not isinstance(call.func, ast.Attribute) or call.func.attr != "backward" or not scaler:
        raise Refused("it is unclear what has to be scaled")
    loss = call.func.value
    text = code.text(loss)

    def edits() -> tuple[Edit, ...]:
        found = [code.edit(code.span(loss), f"{scaler}.scale({text})")]
        block = code.block(here)
        for one in block[: block.index(here)]:
            idle = is_call_of(one, "scale")
            if idle is not None and code.text(idle) == f"{scaler}.scale({text})":
                found.append(code.erase(one))
        return tuple(found)

    yield Repair(f"scale the loss with {scaler}", edits, safe=not scene.finding.when)
