"""What the gradients are when a function is entered, where the file leaves only one possibility."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from zerograd.core.events import Backward, Clip, Site, Step, Unscale, Update, Zero
from zerograd.core.records import replace
from zerograd.explore.flow import Alt, Flow, Loop, Seq, children, find
from zerograd.static.interp.emitter import Act
from zerograd.static.read.module import Module


def entered(flow: Flow, module: Module) -> Flow:
    """A function that clips and then steps, as a flow, with the scaled backward before it that the project counts on.

    If the project makes the scaler, scales the loss with it and never unscales, then the gradients that the scaler
    steps are scaled, wherever the backward runs.
    """
    site = _scaled_at(module)
    return flow if site is None else Seq((_filled(flow, site), flow))


def _filled(flow: Flow, site: Site) -> Flow:
    """The backward before a function; before a function that asks whether there is a scaler, one for each answer."""
    asks = (
        alt
        for alt in find(flow, Alt)
        if {True, False} == {_steps_scaled(alt.then), _steps_scaled(alt.orelse)}
    )
    alt = next(asks, None)
    if alt is None:
        return _backward(site, scaled=True)
    then, orelse = (_backward(site, scaled=_steps_scaled(arm)) for arm in (alt.then, alt.orelse))
    return replace(alt, then=then, orelse=orelse)


def _backward(site: Site, *, scaled: bool) -> Act:
    return Act(Backward(site, call="backward()", scaled=scaled), anyone=True)


def _steps_scaled(flow: Flow) -> bool:
    acts = (act.event for act in find(flow, Act))
    return any(isinstance(event, Step) and event.scaled is True for event in acts)


def begins_with_clip(flow: Flow) -> bool:
    """Whether a function clips first, then fills, steps and clears: each call finds nothing to clip."""
    if find(flow, Loop):
        return False
    acts = [act.event for act in acts_in_order(flow) if not isinstance(act.event, Update)]
    kinds = [type(event) for event in acts]
    decided = sum(1 for part in find(flow, Alt) for _ in acts_in_order(part))
    return kinds == [Clip, Backward, Step, Zero] and not decided


def clips_then_steps(flow: Flow) -> bool:
    """Whether a flow clips gradients and then steps through a scaler, and does nothing else to them before."""
    acts = [act.event for act in acts_in_order(flow)]
    if any(isinstance(event, (Backward, Unscale)) for event in acts):
        return False
    first = next((event for event in acts if isinstance(event, (Clip, Step, Zero))), None)
    step = next((event for event in acts if isinstance(event, (Step, Zero))), None)
    return isinstance(first, Clip) and isinstance(step, Step) and _steps_scaled(flow)


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


def _scaled_at(module: Module) -> Site | None:
    """Where a file, or else its project, scales a loss; None if it unscales, too, or makes no scaler."""
    if not scales_only(module):
        from zerograd.static.read.callers import scales_only_at

        found = scales_only_at(module.path)
        return Site(*found) if found is not None else None
    calls = (
        node
        for node in ast.walk(module.tree)
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and node.func.attr == "scale"
        and node.args
    )
    first = min(calls, key=lambda node: (node.lineno, node.col_offset), default=None)
    if first is None:
        return None
    return Site(module.path, first.lineno, first.col_offset + 1, first.end_lineno or 0)
