"""ZG205: the scaler makes the step, and is updated after it."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from zerograd.core.finding import Edit
from zerograd.fix.context import InsertionPoint, Repair, Scene
from zerograd.fix.edits import Refused
from zerograd.fix.syntax import calls, method


def repairs(scene: Scene) -> Iterator[Repair]:
    """`optimizer.step()` becomes `scaler.step(optimizer)`."""
    code = scene.code
    call = scene.call(scene.finding.site)
    if call.args or call.keywords or not isinstance(call.func, ast.Attribute):
        raise Refused("the step has arguments")
    optimizer = code.text(call.func.value)
    scaler = scene.scaling(scene.statement(scene.note(0)))
    around = scene.around(scene.here)
    updated = any(
        method(one) == "update" and code.text(one.func.value) == scaler
        for one in calls(around)
        if isinstance(one.func, ast.Attribute)
    )

    def edits() -> tuple[Edit, ...]:
        step = code.edit(code.span(call), f"{scaler}.step({optimizer})")
        if updated:
            return (step,)
        return (step, *scene.put(InsertionPoint(after=scene.here), f"{scaler}.update()"))

    yield Repair(f"step through {scaler}", edits)
