"""ZG301: what the backward is given is divided by the length of the window."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import partial

from zerograd.finding import Edit
from zerograd.fixes.scene import Repair, Scene, lengths, method
from zerograd.static.edits import Refused

_TIGHT = (ast.Name, ast.Attribute, ast.Call, ast.Subscript)


def repairs(scene: Scene) -> Iterator[Repair]:
    """`loss.backward()` becomes `(loss / N).backward()`: what is logged stays what it was."""
    if "different" in scene.finding.message:
        raise Refused("it is divided already, by what is for a person to see")
    call = scene.call(scene.finding.site)
    loop = scene.loop(scene.statement(scene.step)) or scene.loop(scene.here)
    if loop is None:
        raise Refused("the loop stands in another function")
    for length in dict.fromkeys(lengths(scene, loop)):
        divided = partial(_divided, scene, call, length)
        yield Repair(f"divide the loss by {length}", divided, safe=False)


def _divided(scene: Scene, call: ast.Call, length: str) -> tuple[Edit, ...]:
    code = scene.code
    if not isinstance(call.func, ast.Attribute):
        raise Refused("it is no plain backward")
    loss: ast.expr = call.func.value
    given = call.args[:1] if isinstance(loss, ast.Name) and call.args else []
    bare = True
    if isinstance(loss, ast.Call) and method(loss) == "scale" and loss.args:
        loss, bare = loss.args[0], False
    elif given:
        loss, bare = given[0], False
    text = code.text(loss)
    tight = isinstance(loss, _TIGHT)
    quotient = f"{text if tight else f'({text})'} / {length}"
    return (code.edit(code.span(loss), f"({quotient})" if bare and tight else quotient),)
