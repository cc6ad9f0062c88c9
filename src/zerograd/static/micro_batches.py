"""Windows without a counter: a loop over micro-batches, and the step after it.

`for micro in batch.split(n): …; optimizer.step()` is a window, whatever its length. A clear in the inner loop
drops all of it but the last micro-batch.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from zerograd.core.events import Assign, Backward, CutWindows, Step, Unknown, Zero
from zerograd.explore.flow import Block, Break, Emit, Flow, Jump, Loop, Seq, events_in, find, walk


def cut_windows(flow: Flow) -> Iterator[CutWindows]:
    """Clears in a loop over micro-batches: the step after the loop uses only the last micro-batch.

    The flow is what one subject sees.
    """
    if any(isinstance(event, (Assign, Unknown)) for event in events_in(flow)):
        return
    for outer in find(flow, Loop):
        body = list(_in_order(outer.body))
        for at, inner in enumerate(body):
            if isinstance(inner, Loop) and inner.test is None:
                cleared = _cleared(inner)
                step = _next_step(body[at + 1 :])
                if cleared is not None and step is not None:
                    clear, backward = cleared
                    yield CutWindows(clear.site, backward=backward.site, step=step.site, guard=None)


def _in_order(flow: Flow) -> Iterator[Flow]:
    """The parts of a flow that always run, in order."""
    if isinstance(flow, Seq):
        for part in flow.items:
            yield from _in_order(part)
    elif isinstance(flow, Block):
        yield from _in_order(flow.body)
    else:
        yield flow


def _cleared(loop: Loop) -> tuple[Zero, Backward] | None:
    """The clear before the backward of each micro-batch, in a loop that runs to its end and does no more."""
    if any(isinstance(part, Jump) and isinstance(part.label, Break) for part in walk(loop.body)):
        return None
    always = [part.event for part in _in_order(loop.body) if isinstance(part, Emit)]
    if [type(event) for event in always] != [Zero, Backward] or any(event.may for event in always):
        return None
    if len(events_in(loop.body)) > len(always):
        return None
    clear, backward = always
    assert isinstance(clear, Zero)
    assert isinstance(backward, Backward)
    return clear, backward


def _next_step(parts: Sequence[Flow]) -> Step | None:
    """The step that comes next, if nothing is filled before it."""
    for part in parts:
        if isinstance(part, Emit) and isinstance(part.event, Step) and not part.event.foreign:
            return part.event
        if any(isinstance(event, (Backward, Zero, Step)) for event in events_in(part)):
            return None
    return None
