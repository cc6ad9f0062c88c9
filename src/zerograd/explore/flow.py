"""Training code as a regular expression over events: loops, branches, jumps, calls."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from zerograd.core.events import Event, Site
from zerograd.explore.logic import Const, Expr


@dataclass(eq=False)
class Emit:
    """One event. `divisor` is evaluated where the guards are executed."""

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
    changing: frozenset[str] = frozenset()
    """Variables that get new values while the loop around it runs."""
    counts: int = 0
    """An accumulation guard of this loop: what cannot be said of it is left aside, the count decides."""
    free: tuple[bool, bool] = (False, False)
    """Taking the then-arm (the else-arm) is no decision, because the other one leaves."""
    optional: bool = False
    """A clear that can be switched off: leaving it out was asked for, and counts twice."""
    exists: tuple[str, bool] | None = None
    """The object whose existence is asked for, and whether the then-arm is the one that has it."""


@dataclass(eq=False)
class Loop:
    """Runs at least once. `counter` counts from `first` in executed loops."""

    body: Flow
    ident: int
    site: Site
    targets: frozenset[str] = frozenset()
    counter: str | None = None
    first: Expr = Const(0)
    trips: Expr | None = None
    test: Expr | None = None
    forever: bool = False
    orelse: Flow | None = None
    paced: Site | None = None
    """The guard that decides in which iterations the step runs, if there is one."""
    counted: bool = False
    """A guard reads its counter, so it has to run long enough for the guard to come round."""
    closes: Site | None = None
    """That step."""


@dataclass(eq=False)
class Jump:
    """Leaves for the block or loop with this label: `break:3`, `continue:3`, `return:7`, `raise`."""

    label: str


@dataclass(eq=False)
class Block:
    """Catches the jumps with its label."""

    body: Flow
    label: str


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

    name: str
    value: Expr | None = None


Flow = Emit | Seq | Alt | Loop | Jump | Block | Try | Set


def children(flow: Flow) -> Sequence[Flow]:
    """The parts of a flow."""
    # By type, not by isinstance: flows are gone through again and again.
    if type(flow) is Seq:
        return flow.items
    if type(flow) is Alt:
        return (flow.then, flow.orelse)
    if type(flow) is Block:
        return (flow.body,)
    if type(flow) is Loop:
        return (flow.body,) if flow.orelse is None else (flow.body, flow.orelse)
    if type(flow) is Try:
        return (flow.body, *flow.handlers, flow.orelse, flow.final)
    return ()


def walk(flow: Flow) -> Iterator[Flow]:
    """The flow and all its parts, in no order."""
    todo = [flow]
    while todo:
        part = todo.pop()
        yield part
        todo += children(part)
