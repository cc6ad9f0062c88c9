"""What the gradients are when a function is entered, where the file leaves only one possibility."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from zerograd.core.events import Backward, Clip, Site, Step, Unscale, Update, Zero
from zerograd.explore.flow import Alt, Flow, Loop, Seq, children, find
from zerograd.static.interp.emitter import Act
from zerograd.static.read.module import Module


def entered(flow: Flow, module: Module) -> Flow:
    """A function as a flow, with the scaled backward before it that the file counts on.

    The function clips and lets a scaler step, and runs no backward itself. If the file makes the scaler, scales
    the loss with it and never unscales, then the gradients are scaled, wherever the backward runs.
    """
    if not _clips_then_steps(flow) or not scales_only(module):
        return flow
    scaled = _first_scale(module)
    if scaled is None:
        return flow
    site = Site(module.path, scaled.lineno, scaled.col_offset + 1, scaled.end_lineno or 0)
    return Seq((Act(Backward(site, call="backward()", scaled=True), anyone=True), flow))


def begins_with_clip(flow: Flow) -> bool:
    """Whether a function clips first, then fills, steps and clears: each call finds nothing to clip."""
    if find(flow, Loop):
        return False
    acts = [act.event for act in acts_in_order(flow) if not isinstance(act.event, Update)]
    kinds = [type(event) for event in acts]
    decided = sum(1 for part in find(flow, Alt) for _ in acts_in_order(part))
    return kinds == [Clip, Backward, Step, Zero] and not decided


def _clips_then_steps(flow: Flow) -> bool:
    """Whether a flow clips gradients and then steps through a scaler, and does nothing else to them before."""
    acts = [act.event for act in acts_in_order(flow)]
    if any(isinstance(event, (Backward, Unscale)) for event in acts):
        return False
    first = next((event for event in acts if isinstance(event, (Clip, Step, Zero))), None)
    step = next((event for event in acts if isinstance(event, (Step, Zero))), None)
    return isinstance(first, Clip) and isinstance(step, Step) and step.scaled is True


def acts_in_order(flow: Flow) -> Iterator[Act]:
    """The acts of a flow, as they are written."""
    if isinstance(flow, Act):
        yield flow
    for part in children(flow):
        yield from acts_in_order(part)


def scales_only(module: Module) -> bool:
    """Whether a file makes scalers, scales with them, and unscales nothing."""
    called = module.facts[module.tree].called | module.top.called
    for facts in module.facts.values():
        called |= facts.called
    makes = any(name.endswith("GradScaler") for name in called)
    return makes and not any("unscale" in name for name in called)


def _first_scale(module: Module) -> ast.Call | None:
    calls = (
        node
        for node in ast.walk(module.tree)
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and node.func.attr == "scale"
        and node.args
    )
    return min(calls, key=lambda node: (node.lineno, node.col_offset), default=None)
