"""Training code as a regular expression over events: loops, branches, jumps, calls.

A flow is a tree. `children` and `walk` go through it, `rebuild` makes a changed copy.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Sequence
from operator import attrgetter
from typing import Any, TypeVar

from zerograd.core.events import Event, Site, Step
from zerograd.core.records import dataclass, replace
from zerograd.explore.logic import Const, Expr, Variable


@dataclass(eq=False)
class Emit:
    """One event. `divisor` is evaluated where windows are executed."""

    event: Event
    divisor: Expr | None = None


@dataclass(eq=False)
class Seq:
    """One part after the other."""

    items: Sequence[Flow]


@dataclass(eq=False)
class Alt:
    """A branch."""

    test: Expr
    then: Flow
    orelse: Flow
    site: Site
    changing: frozenset[Variable] = frozenset()
    """Variables that get new values while the loop around it runs."""
    counts: int = 0
    """The loop whose windows the test closes, if it is a guard; the count then decides what is unknown."""
    free: tuple[bool, bool] = (False, False)
    """Taking the then-arm (the else-arm) is not a decision, because the other one leaves."""
    optional: bool = False
    """The then-arm is a clear that can be switched off, or what unseen code may do. Leaving it out counts as two decisions."""
    exists: tuple[Hashable, bool] | None = None
    """The object that the test asks for, and whether it exists in the then-arm."""


@dataclass(eq=False)
class Loop:
    """Runs at least once. `counter` counts from `first` in executed loops."""

    body: Flow
    ident: int
    site: Site
    targets: frozenset[Variable] = frozenset()
    counter: Variable | None = None
    first: Expr = Const(0)
    trips: Expr | None = None
    test: Expr | None = None
    forever: bool = False
    orelse: Flow | None = None
    paced: Site | None = None
    """The guard that decides in which iterations the step runs, if there is one."""
    counted: bool = False
    """A guard reads what the loop counts, so the loop has to run for more than one window."""
    closes: Site | None = None
    """The step that the guard `paced` decides about: it closes the windows of this loop."""


@dataclass(frozen=True)
class Label:
    """Where a jump leads."""

    number: int = 0
    """The loop or call that it leaves."""


class Break(Label):
    """Behind a loop."""


class Continue(Label):
    """To the next iteration of a loop."""


class Return(Label):
    """Behind a call."""


class Raise(Label):
    """To a handler, or out of everything."""


RAISE = Raise()


@dataclass(eq=False)
class Jump:
    """Leaves for the block or loop with this label."""

    label: Label


@dataclass(eq=False)
class Block:
    """Catches the jumps with its label."""

    body: Flow
    label: Label


@dataclass(eq=False)
class Try:
    """A body, and what runs if it fails somewhere."""

    body: Flow
    handlers: Sequence[Flow]
    orelse: Flow
    final: Flow
    site: Site


@dataclass(eq=False)
class Set:
    """A variable gets a value; None where it is not known."""

    variable: Variable
    value: Expr | None = None


Flow = Emit | Seq | Alt | Loop | Jump | Block | Try | Set


def children(flow: Flow) -> Sequence[Flow]:
    """The parts of a flow."""
    inside = _INSIDE.get(type(flow))
    return inside(flow) if inside is not None else ()


# By type, not by isinstance: flows are gone through again and again.
_INSIDE: dict[type[Flow], Callable[[Any], Sequence[Flow]]] = {
    Seq: attrgetter("items"),
    Alt: attrgetter("then", "orelse"),
    Block: lambda flow: (flow.body,),
    Loop: lambda flow: (flow.body,) if flow.orelse is None else (flow.body, flow.orelse),
    Try: lambda flow: (flow.body, *flow.handlers, flow.orelse, flow.final),
}


def walk(flow: Flow) -> Iterator[Flow]:
    """The flow and all its parts, in no order."""
    todo = [flow]
    while todo:
        part = todo.pop()
        yield part
        inside = _INSIDE.get(type(part))
        if inside is not None:
            todo += inside(part)


Part = TypeVar("Part", bound=Flow)


def find(flow: Flow, kind: type[Part]) -> list[Part]:
    """All parts of a flow that are of a kind."""
    return [part for part in walk(flow) if isinstance(part, kind)]


def events_in(flow: Flow) -> list[Event]:
    """All events of a flow."""
    return [part.event for part in find(flow, Emit)]


def assigned(flow: Flow) -> frozenset[Variable]:
    """The variables that a flow gives values."""
    found: set[Variable] = set()
    for part in walk(flow):
        if isinstance(part, Set):
            found.add(part.variable)
        elif isinstance(part, Loop):
            found |= part.targets
            if part.counter is not None:
                found.add(part.counter)
    return frozenset(found)


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


def relabelled(flow: Flow, old: int, new: int) -> Flow:
    """The flow with the jumps of one loop given to another."""
    if isinstance(flow, Jump):
        labels: dict[Label, Label] = {Break(old): Break(new), Continue(old): Continue(new)}
        return Jump(labels.get(flow.label, flow.label))
    return rebuild(flow, lambda part: relabelled(part, old, new))


def leaves_by(flow: Flow | None) -> Label | None:
    """The label by which a flow always leaves; None if it can come to its end."""
    if isinstance(flow, Jump):
        return flow.label
    if isinstance(flow, Seq):
        return next((label for item in flow.items if (label := leaves_by(item)) is not None), None)
    if isinstance(flow, Alt):
        first, second = leaves_by(flow.then), leaves_by(flow.orelse)
        return first if first is not None and second is not None else None
    return None


def has_step(flow: Flow) -> bool:
    """Whether a flow steps its subject."""
    return any(
        isinstance(part, Emit) and isinstance(part.event, Step) and not part.event.foreign
        for part in walk(flow)
    )
