"""The flow that is built: acts with their sites, in order, up to a limit; some under a gate."""

from __future__ import annotations

import ast
import re
from typing import Any

from zerograd.core.events import Backward, Event, Site, Step, Zero
from zerograd.core.late_pattern import pattern
from zerograd.core.records import dataclass, replace
from zerograd.core.training_loop import NotFollowed
from zerograd.explore.flow import Alt, Emit, Flow, Seq
from zerograd.explore.logic import (
    WINDOW_LENGTH,
    Const,
    Count,
    Expr,
    LastIteration,
    Op,
    Synchronises,
)
from zerograd.static.frameworks import registry
from zerograd.static.frameworks.table import Role
from zerograd.static.interp.environment import Environment, KnownObjects, Nesting
from zerograd.static.read.budget import Cut
from zerograd.static.read.keys import Key
from zerograd.static.read.syntax_tree import site_of, text_of
from zerograd.static.read.values import Called


@dataclass(eq=False)
class Act(Emit):
    """An event of the code. `whose` are keys of optimizers, modules or leaf tensors."""

    whose: frozenset[Key] = frozenset()
    anyone: bool = False
    """It cannot be seen whose gradients it touches."""
    perhaps: frozenset[Key] = frozenset()
    """backward: objects that the loss may run through."""
    calls: frozenset[Called] = frozenset()
    """backward: the modules called for the loss."""
    wrapped: bool = False
    """backward: run by accelerate, Fabric or an engine."""
    unknown: bool = False
    """backward: it is not known what object runs it."""
    leaf: bool = False
    """zero: of one tensor, not of all that a module or an optimizer holds."""
    borrowed: bool = False
    """assign: the value is also the gradient of other parameters, and a clear of those clears it."""
    unless_cleared: bool = False
    """unknown: counts only if the code never clears the subject itself."""
    inside: bool = False
    """unknown: counts only for optimizers that the objects hold."""
    within: tuple[ast.AST, ...] = ()
    """backward of a loss that is not divided: its loop, and the functions between that and the call."""
    subject: str = ""
    """step: the optimizer, as the code names it."""
    scaler: Key | None = None
    """step, update: the scaler that does it."""
    gap: NotFollowed | None = None
    """unknown: why; None if it is only not known where an object comes from."""


_SHARES = pattern(r"all_?reduce|(average|sync|synchroni[sz]e|reduce|gather)_?grad", re.IGNORECASE)
"""Functions of such names share gradients by hand."""


class Gate:
    """Decides under which test accelerate lets an act through."""

    def __init__(self, env: Environment, nesting: Nesting, known: KnownObjects) -> None:
        self.env = env
        self.nesting = nesting
        self.known = known
        self.accumulating: str | None = None
        """The accelerator whose `accumulate` is around."""
        self.local: tuple[Expr, Site] | None = None
        """When the ranks do not share gradients, and where that is said, if a `no_sync` is around."""

    def around(self, act: Act) -> Flow:
        """The act, under the test that decides whether it happens."""
        if isinstance(act.event, Backward):
            return self.shared(act, act.event)
        if not isinstance(act.event, (Step, Zero)):
            return act
        if not (self.accumulating or self.known.prepared) or not self.is_wrapped(act):
            return act
        if self.accumulating:
            return Alt(self.synchronises(), act, Seq(()), act.event.site)
        return self.outside(act)

    def shared(self, act: Act, backward: Backward) -> Flow:
        """A backward, after which the ranks have shared its gradients, unless a `no_sync` is around."""
        modules = (self.env.top.module, self.env.frame.module)
        called = set().union(*(module.facts[module.tree].called for module in modules))
        if self.local is None and registry.LOCAL.isdisjoint(called):
            return act
        if any(map(_SHARES.search, called)):
            return act
        shared = replace(act, event=replace(backward, synced=True))
        if self.local is None:
            return shared
        test, off = self.local
        event = replace(backward, synced=False, unsynced="no_sync()", off=off)
        return Alt(test, replace(act, event=event), shared, off)

    def outside(self, act: Act) -> Flow:
        """Outside of `accumulate`, accelerate still goes by what its last one said."""
        module = self.env.top.module
        for key in act.whose & self.known.prepared.keys():
            accelerator = self.known.prepared[key]
            calls = module.facts[module.tree].calls
            if any(f"{accelerator}.{name}" in calls for name in registry.ACCUMULATES):
                return Alt(Synchronises(accelerator), act, Seq(()), act.event.site)
        return act

    def is_wrapped(self, act: Act) -> bool:
        """Whether accelerate gates the act: its optimizers' step and zero, not a module's zero."""
        return any(self.known.roles.get(key) is Role.OPTIMIZER for key in act.whose)

    def synchronises(self) -> Expr:
        """Whether accelerate closes the window in this iteration."""
        key = self.accumulating or "accelerate"
        full = Op("==", (Op("%", (Count(key), WINDOW_LENGTH)), Const(0)))
        return Op("or", (full, LastIteration(self.nesting.loop)), "accelerator.sync_gradients")


MOST_ACTS = 1500


class Emitter:
    """Collects what the code does."""

    def __init__(self, env: Environment, nesting: Nesting, gate: Gate) -> None:
        self.env = env
        self.nesting = nesting
        self.gate = gate
        self.out: list[Flow] = []
        self.acts = 0
        self.quiet = 0
        """How many nested evaluations ask only for a value: their acts are dropped."""

    def site(self, node: ast.AST) -> Site:
        """Where a node is in the source."""
        return site_of(node, self.env.frame.module.path)

    def event(self, kind: type[Event], node: ast.AST, **fields: Any) -> Event:
        """An event of this node; `fields` are those that its kind has."""
        call = text_of(node.func) + "()" if isinstance(node, ast.Call) else ""
        return kind(self.site(node), call=call, loop=self.nesting.loop, **fields)

    def emit(self, act: Act) -> None:
        """Adds an act; `Cut` when there are too many."""
        self.acts += 1
        if self.acts > MOST_ACTS:
            raise Cut
        if not self.quiet:
            caller = next(reversed(self.nesting.call_sites.values()), None)
            self.nesting.callers.setdefault(act.event.site, set()).add(caller)
        self.out.append(self.gate.around(act))

    def add(self, flow: Flow) -> None:
        """Adds something that is not an act."""
        self.out.append(flow)

    def divert(self) -> list[Flow]:
        """Begins a new flow; returns the one to go on with after it."""
        out, self.out = self.out, []
        return out

    def restore(self, out: list[Flow]) -> list[Flow]:
        """Goes on with a flow; returns the one that has just ended."""
        diverted, self.out = self.out, out
        return diverted

    def silence(self) -> tuple[list[Flow], int]:
        """Ignores all acts from here on; returns what `resume` needs."""
        self.quiet += 1
        return self.divert(), self.acts

    def resume(self, before: tuple[list[Flow], int]) -> None:
        """Acts count again."""
        self.out, self.acts = before
        self.quiet -= 1
