"""What the repairs of clips share: a clip with what belongs to it, and where it may be moved."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial

from zerograd.core.events import Site
from zerograd.fix.context import InsertionPoint, Repair, Scene
from zerograd.fix.edits import Refused
from zerograd.fix.syntax import (
    CLIP_WORDS,
    bound,
    clips,
    is_call_of,
    own_nodes,
    steps,
    used,
)


@dataclass(frozen=True)
class ClipUnit:
    """A clip as it is moved: with its `if`, and perhaps with the `unscale_` before it."""

    unit: tuple[ast.stmt, ...]
    unscales: bool

    @property
    def plain(self) -> bool:
        """Whether the result of the clip is unused."""
        leaves = [node for one in self.unit for node in own_nodes(one)]
        return not any(
            isinstance(node, ast.stmt) and not isinstance(node, (ast.Expr, ast.If, ast.For))
            for node in leaves
        ) and all(
            isinstance(node.value, ast.Call) and (node.value in clips(node) or not clips(node))
            for node in leaves
            if isinstance(node, ast.Expr)
        )


def clip_of(scene: Scene, statement: ast.stmt) -> ClipUnit:
    """The clip, with the `if` or the loop over parameters around it where that holds nothing else."""
    unit = statement
    holder = scene.code.holder(unit)
    while isinstance(holder, (ast.If, ast.For)) and not holder.orelse and _only_clips(holder):
        unit, holder = holder, scene.code.holder(holder)
    block = scene.code.block(unit)
    number = block.index(unit)
    if number and is_call_of(block[number - 1], "unscale_"):
        return ClipUnit((block[number - 1], unit), unscales=True)
    return ClipUnit((unit,), unscales=any(_unscales(node) for node in own_nodes(unit)))


def _only_clips(holder: ast.If | ast.For) -> bool:
    return len(holder.body) == 1 or all(map(_clips, holder.body))


def _clips(statement: ast.stmt) -> bool:
    return bool(clips(statement)) or is_call_of(statement, "unscale_") is not None


def _unscales(node: ast.AST) -> bool:
    return isinstance(node, ast.stmt) and is_call_of(node, "unscale_") is not None


def moves_before_step(scene: Scene, site: Site) -> Iterator[Repair]:
    """Ways to move the clip of a finding right before a step, from above or from below it."""
    clip = clip_of(scene, scene.here)
    call, step = scene.call(site), scene.statement(site)
    place, arms = closing(scene, step, call)
    block = scene.code.meet(clip.unit[0], step)
    first, last = scene.number(clip.unit[0], block), scene.number(clip.unit[-1], block)
    there = scene.number(step, block)
    passable(clip.unit, block[last + 1 : there] or block[there:first])
    yield from moves(scene, clip, call, place, safe=not arms and not carried(clip.unit, block))


def moves(
    scene: Scene, clip: ClipUnit, call: ast.Call, place: InsertionPoint, *, safe: bool
) -> Iterator[Repair]:
    """Ways to move the clip: alone, or with an `unscale_` where the step goes through a scaler."""
    message = "move the clip before the step"
    yield Repair(message, partial(scene.carry, clip.unit, place, CLIP_WORDS), safe)
    if len(clip.unit) > 1:
        yield Repair(message, partial(scene.carry, clip.unit[-1:], place, CLIP_WORDS), safe)
    scaler = scene.scaler(call)
    if scaler and not clip.unscales:
        unscale = f"{scaler}.unscale_({scene.stepped(call)})"
        carried = partial(scene.carry, clip.unit, place, CLIP_WORDS, unscale)
        yield Repair(f"{message}, after {unscale}", carried, safe)


def passable(unit: Sequence[ast.stmt], between: Sequence[ast.stmt]) -> None:
    """`Refused` if a statement on the way reads the unit's result or changes its arguments."""
    if bound(unit) & (used(between) | bound(between)):
        raise Refused("a statement on the way to its new place uses its result")
    if used(unit) & bound(between):
        raise Refused("a statement on the way to its new place changes its arguments")


def branches(scene: Scene, statement: ast.stmt, block: Sequence[ast.stmt]) -> int:
    """How many conditions of `block` decide whether the statement is reached."""
    found = 0
    while statement not in block:
        holder = scene.code.holder(statement)
        if not isinstance(holder, ast.stmt):
            break
        found += isinstance(holder, ast.If)
        statement = holder
    return found


def carried(unit: Sequence[ast.stmt], block: Sequence[ast.stmt]) -> bool:
    """Whether its result is read above it, that is, in the next iteration."""
    if unit[0] not in block:
        raise Refused("the clip and the step are in different blocks")
    return bool(bound(unit) & used(block[: block.index(unit[0])]))


def closing(scene: Scene, site_of_step: ast.stmt, call: ast.Call) -> tuple[InsertionPoint, bool]:
    """The place before the step, or before all branches that contain one; and whether there are several."""
    loop = scene.loop(site_of_step)
    owner = scene.stepped(call)
    every = [one for one in steps(loop or scene.code.tree) if scene.stepped(one) == owner]
    statements = [scene.code.statement_of(one) for one in every]
    function = scene.code.function(site_of_step)
    statements = [one for one in statements if scene.code.function(one) is function]
    if len(statements) < 2:
        return InsertionPoint(before=site_of_step), False
    block = scene.code.meet(*statements)
    first = min(scene.number(one, block) for one in statements)
    return InsertionPoint(before=block[first]), True
