"""ZG106: the clear is moved before the optimizer's own backward, or a `detach()` is inserted."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import partial

from zerograd.core.finding import Edit
from zerograd.fix.context import Repair, Scene
from zerograd.fix.edits import Refused, Span
from zerograd.fix.syntax import CLEAR_WORDS, calls, cleared

MOST_PROPOSALS = 8


def repairs(scene: Scene) -> Iterator[Repair]:
    """A clear right after the step is moved; without one, a clear is inserted."""
    finding = scene.finding
    if any(note.site == finding.step for note in finding.notes):  # only a leak names its own step
        if len(finding.notes) == 2:
            raise Refused("both backward calls run before the steps: one of the phases has to move")
        yield from _detached(scene)
        return
    code, backward, step = scene.code, scene.here, scene.statement(scene.step)
    if code.function(backward) is not code.function(step):
        raise Refused("the backward and the step are in different functions")
    owner = scene.stepped(scene.call(scene.step))
    start = scene.window(backward, step, owner).start
    block = code.block(step)
    for one in block[block.index(step) + 1 :]:
        if cleared(one) == owner:
            moved = partial(scene.carry, [one], start, CLEAR_WORDS)
            yield Repair("move the clear before the backward", moved, safe=False)
    yield scene.insertion(start, f"{owner}.zero_grad()", safe=False)


def _detached(scene: Scene) -> Iterator[Repair]:
    """`D(fake)` becomes `D(fake.detach())`: the second check drops the calls that do not matter."""
    code, backward = scene.code, scene.here
    block = code.block(backward)
    before = block[: block.index(backward) + 1]
    arguments = [
        call.args[0]
        for statement in reversed(before)
        for call in calls(statement)
        if len(call.args) == 1
        and not call.keywords
        and isinstance(call.args[0], (ast.Name, ast.Call))
    ]
    for argument in arguments[:MOST_PROPOSALS]:
        inserted = partial(_insert_detach, scene, argument)
        yield Repair(f"detach {code.text(argument)}", inserted, safe=False)


def _insert_detach(scene: Scene, argument: ast.expr) -> tuple[Edit, ...]:
    end = scene.code.span(argument)[2:]
    return (scene.code.edit(Span(*end, *end), ".detach()"),)
