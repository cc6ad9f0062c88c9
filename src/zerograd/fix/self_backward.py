"""ZG109: the backward without its argument."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from zerograd.core.finding import Edit
from zerograd.fix.context import Repair, Scene
from zerograd.fix.edits import Refused, Span


def repairs(scene: Scene) -> Iterator[Repair]:
    """`loss.backward(loss)` becomes `loss.backward()`."""
    yield Repair("remove the argument", partial(_edits, scene), safe=False)


def _edits(scene: Scene) -> tuple[Edit, ...]:
    code = scene.code
    call = scene.call(scene.finding.site)
    if len(call.args) + len(call.keywords) != 1:
        raise Refused("backward() has more arguments")
    start, end = code.span(call.func), code.span(call)
    return (code.edit(Span(*start[2:], *end[2:]), "()"),)
