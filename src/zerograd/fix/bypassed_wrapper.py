"""ZG501: the wrapper runs the backward."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import partial

from zerograd.fix.context import Repair, Scene
from zerograd.fix.edits import Refused
from zerograd.fix.syntax import steps


def repairs(scene: Scene) -> Iterator[Repair]:
    """`loss.backward()` becomes `accelerator.backward(loss)`."""
    code = scene.code
    call = scene.call(scene.finding.site)
    if not isinstance(call.func, ast.Attribute) or call.func.attr != "backward":
        raise Refused("the backward is not a plain call of backward()")
    given = [code.text(one) for one in call.args]
    given += [f"{one.arg}={code.text(one.value)}" for one in call.keywords if one.arg]
    handed = ", ".join([code.text(call.func.value), *given])
    for wrapper in dict.fromkeys(_wrappers(scene)):
        edit = partial(scene.exchanged, call, f"{wrapper}.backward({handed})")
        yield Repair(f"let {wrapper} run the backward", edit, safe=not given)


def _wrappers(scene: Scene) -> Iterator[str]:
    """Objects that may be the wrapper: used around the call, with `prepare`, or stepped as an engine."""
    code = scene.code
    yield from scene.opened("accumulate", "no_sync")
    for node in ast.walk(code.tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            if node.func.attr in ("prepare", "setup"):
                yield code.text(node.func.value)
    for one in steps(scene.around(scene.here)):
        if isinstance(one.func, ast.Attribute):
            yield code.text(one.func.value)
