"""The shape of flows: their parts, how they are left, and how they are rebuilt."""

from __future__ import annotations

from collections.abc import Callable

from zerograd.core.records import replace
from zerograd.explore.flow import Alt, Block, Emit, Flow, Jump, Loop, Seq, Try


def rebuild(flow: Flow, change: Callable[[Flow], Flow]) -> Flow:
    """The flow with its parts changed."""
    if isinstance(flow, Seq):
        return Seq([change(item) for item in flow.items])
    if isinstance(flow, Alt):
        return replace(flow, then=change(flow.then), orelse=change(flow.orelse))
    if isinstance(flow, Loop):
        orelse = change(flow.orelse) if flow.orelse is not None else None
        return replace(flow, body=change(flow.body), orelse=orelse)
    if isinstance(flow, Block):
        return Block(change(flow.body), flow.label)
    if isinstance(flow, Try):
        return replace(
            flow,
            body=change(flow.body),
            handlers=[change(handler) for handler in flow.handlers],
            orelse=change(flow.orelse),
            final=change(flow.final),
        )
    return flow


def relooped(flow: Flow, old: int, new: int) -> Flow:
    """The flow with the events of one loop given to another."""
    if isinstance(flow, Emit):
        if flow.event.loop != old:
            return flow
        return replace(flow, event=replace(flow.event, loop=new))
    return rebuild(flow, lambda part: relooped(part, old, new))


def leaves_by(arm: Flow | None) -> str | None:
    """The label by which a flow always leaves; None if it can come to its end."""
    if isinstance(arm, Jump):
        return arm.label
    if isinstance(arm, Seq):
        return next((label for item in arm.items if (label := leaves_by(item)) is not None), None)
    if isinstance(arm, Alt):
        first, second = leaves_by(arm.then), leaves_by(arm.orelse)
        return first if first is not None and second is not None else None
    return None
