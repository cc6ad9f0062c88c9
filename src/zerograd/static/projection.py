"""Projects the flow of all acts onto one subject: acts become events of its gradients, and what is left is pruned."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from zerograd.core.events import (
    Backward,
    Clip,
    Excuse,
    ReadBy,
    Site,
    Step,
    Unscale,
    Update,
    Zero,
)
from zerograd.core.records import dataclass, field, replace
from zerograd.explore import logic
from zerograd.explore.flow import (
    RAISE,
    Alt,
    Block,
    Break,
    Continue,
    Emit,
    Flow,
    Jump,
    Label,
    Loop,
    Seq,
    Set,
    Try,
    assigned,
    children,
    events_in,
    find,
    leaves_by,
    walk,
)
from zerograd.explore.logic import Expr, Name, Op, Opaque, Variable
from zerograd.static.accumulation import Counting
from zerograd.static.interp.emitter import Act
from zerograd.static.read.keys import Key
from zerograd.static.subject_events import SubjectEvents

EMPTY = Seq(())
_Arms = frozenset[tuple[Alt, bool]]
"""Tests, and how they come out."""


@dataclass
class View:
    """Projects a flow onto one subject."""

    acts: SubjectEvents
    assigned: list[frozenset[Variable]] = field(default_factory=list)
    """What each loop around assigns."""
    labels: list[set[Label]] = field(default_factory=lambda: [set()])
    turns: frozenset[Site] = frozenset()
    """Tests that count batches, and close no window: the subject is stepped in every n-th one alone."""
    busy: bool = False
    """Whether some event of this iteration comes before the place that is projected now."""

    def of(self, flow: Flow) -> Flow:
        """The flow as the subject sees it."""
        self.acts.read(flow)
        self.turns = self.every_nth(flow)
        skeleton = self.project(flow, {}) or EMPTY
        self.busy = False
        return self.project(flow, _needed(flow, skeleton)) or EMPTY

    def every_nth(self, flow: Flow) -> frozenset[Site]:
        """The counting tests that close no window: they only decide whether it is the subject's turn.

        Each batch clears the subject, and another subject is stepped in each batch, or where this one is not.
        """
        found: set[Site] = set()
        for loop in walk(flow) if self.acts.others else ():
            if not isinstance(loop, Loop):
                continue
            clears: list[_Arms] = []
            mine: list[_Arms] = []
            others: list[_Arms] = []
            for act, arms in _in_iteration(loop.body, frozenset()):
                if isinstance(act.event, Zero):
                    event = self.acts.events[id(act)]
                    clears += [arms] if event is not None and not event.may else []
                elif isinstance(act.event, Step):
                    (mine if any(map(self.acts.is_mine, act.whose)) else others).append(arms)
            for arms in mine:
                counted = {(test, arm) for test, arm in arms if logic.remainders(test.test)}
                if any(one <= arms - counted for one in clears):
                    for test, arm in counted:
                        if any(o <= arms - counted or (test, not arm) in o for o in others):
                            found.add(test.site)
        return frozenset(found)

    def project(self, flow: Flow, needed: Mapping[Variable, bool]) -> Flow | None:
        if isinstance(flow, Act):
            event = self.acts.events[id(flow)]
            if event is None:
                return None
            self.busy = True
            return Emit(event, flow.divisor)
        if isinstance(flow, Seq):
            items = [
                part
                for item in self.in_phases(flow.items)
                if (part := self.project(item, needed)) is not None
            ]
            return (items[0] if len(items) == 1 else Seq(items)) if items else None
        if isinstance(flow, Alt):
            return self.branch(flow, needed)
        if isinstance(flow, Loop):
            return self.repeat(flow, needed)
        if isinstance(flow, Set):
            if flow.variable not in needed:
                return None
            return flow if needed[flow.variable] or flow.value is None else Set(flow.variable)
        if isinstance(flow, Block):
            self.labels[-1].add(flow.label)
            body = self.project(flow.body, needed)
            if body is None or _only_returns(body, flow.label):
                return None
            return Block(body, flow.label)
        if isinstance(flow, Try):
            return self.attempt(flow, needed)
        return flow

    def in_phases(self, items: Sequence[Flow]) -> Sequence[Flow]:
        """The parts, with another optimizer's phase before the subject's, if a clear of the other one parts them.

        `a.backward()`, a clear of the other one, `b.backward()`, and both step: what `a` left to the other one is
        thrown away, so `b` is the other one's. In which order gradients are added does not matter to the step.
        """
        acts = [
            (at, act) for at, act in enumerate(items) if isinstance(act, Act) and self.acts.others
        ]
        phases = [
            (at, act) for at, act in acts if not isinstance(act.event, (Clip, Unscale, Update))
        ]
        for at in range(len(phases) - 4):
            (first, own), (_, clear), (second, other), (_, step), (last, ends) = phases[at : at + 5]
            if (
                self.is_read(own, ReadBy.ONLY, ReadBy.AND_MORE)
                and self.is_read(other, ReadBy.AND_MORE)
                and isinstance(clear.event, Zero)
                and self.acts.events[id(clear)] is None
                and isinstance(step.event, Step)
                and any(map(self.acts.is_mine, step.whose))
                and isinstance(ends.event, Step)
                and clear.whose & ends.whose
                and all(isinstance(item, Act) or not find(item, Act) for item in items[first:last])
            ):
                before = [*items[:first], *items[first + 1 : second + 1]]
                return [*before, ends, own, *items[second + 1 : last], *items[last + 1 :]]
        return items

    def is_read(self, act: Act, *by: ReadBy) -> bool:
        """Whether an act is a backward for which another subject's module reads what the subject computes."""
        event = self.acts.events[id(act)]
        return isinstance(event, Backward) and event.read_by in by

    def branch(self, alt: Alt, needed: Mapping[Variable, bool]) -> Flow | None:
        asked, present = alt.exists or (None, True)
        if isinstance(asked, Key) and self.acts.is_there(
            asked, alt.then if present else alt.orelse
        ):
            return self.project(alt.then if present else alt.orelse, needed)
        busy = self.busy
        then = self.project(alt.then, needed)
        busy_then, self.busy = self.busy, busy
        orelse = self.project(alt.orelse, needed)
        quiet = not busy
        self.busy = self.busy or busy_then
        if then is None and orelse is None:
            return None
        if _fails(then):
            return orelse
        if _fails(orelse):
            return then
        free = (alt.free[0] or self.leaves(orelse, quiet), self.leaves(then, quiet))
        if alt.site in self.turns:
            said = next(part.text for part in logic.parts(alt.test) if isinstance(part, Op))
            alt = replace(alt, test=Opaque(said, logic.reads(alt.test)))
        elif not logic.remainders(alt.test):
            then, orelse = _withheld(then, orelse), _withheld(orelse, then)
        changing: frozenset[Variable] = self.assigned[-1] if self.assigned else frozenset()
        settled = not logic.reads(alt.test) & changing
        return replace(
            alt,
            then=then or EMPTY,
            orelse=orelse or EMPTY,
            free=free,
            changing=changing,
            optional=alt.optional or (settled and orelse is None and self.is_the_clear(then)),
        )

    def is_the_clear(self, arm: Flow | None) -> bool:
        """Whether an arm contains every clear of the subject, and at most some of its backward calls besides."""
        events = events_in(arm or EMPTY)
        clears = {event.site for event in events if isinstance(event, Zero)}
        fills = {event.site for event in events if isinstance(event, Backward)}
        if not clears or self.acts.clears != clears:
            return False
        uses = any(not isinstance(event, (Zero, Backward)) for event in events)
        return not uses and not (fills and self.acts.feeding <= fills)

    def leaves(self, arm: Flow | None, quiet: bool) -> bool:
        """Whether an arm leaves the loop, or skips an iteration in which nothing has happened."""
        label = leaves_by(arm)
        if label is None:
            return False
        if isinstance(label, Continue) or label in self.labels[-1]:
            return quiet and not find(arm or EMPTY, Emit)
        return True

    def repeat(self, loop: Loop, needed: Mapping[Variable, bool]) -> Flow | None:
        self.assigned.append(assigned(loop))
        self.labels.append(set())
        busy, self.busy = self.busy, False
        body = self.project(loop.body, needed)
        self.busy = busy or self.busy
        self.labels.pop()
        self.assigned.pop()
        orelse = self.project(loop.orelse, needed) if loop.orelse is not None else None
        if body is None or (_is_idle(body, loop.ident) and not loop.targets & needed.keys()):
            return orelse
        return replace(loop, body=body, orelse=orelse)

    def attempt(self, flow: Try, needed: Mapping[Variable, bool]) -> Flow | None:
        parts = [self.project(part, needed) for part in (flow.body, flow.orelse, flow.final)]
        projected = [self.project(handler, needed) for handler in flow.handlers]
        handlers = [handler or EMPTY for handler in projected if not _fails(handler)]
        if all(part is None for part in parts) and all(handler is EMPTY for handler in handlers):
            return None
        body, orelse, final = (part or EMPTY for part in parts)
        return replace(flow, body=body, handlers=handlers, orelse=orelse, final=final)


def _is_idle(body: Flow, loop: int) -> bool:
    """Whether an iteration does nothing but end, or end its loop."""
    ends = {Break(loop), Continue(loop)}
    ends |= {part.label for part in find(body, Block)}
    return all(
        part.label in ends if isinstance(part, Jump) else isinstance(part, (Seq, Alt, Block))
        for part in walk(body)
    )


def _in_iteration(flow: Flow, arms: _Arms) -> Iterator[tuple[Act, _Arms]]:
    """The acts of an iteration, each with the arms of tests around it; inner loops have iterations of their own."""
    if isinstance(flow, Act):
        yield flow, arms
    elif isinstance(flow, Alt):
        yield from _in_iteration(flow.then, arms | {(flow, True)})
        yield from _in_iteration(flow.orelse, arms | {(flow, False)})
    elif not isinstance(flow, Loop):
        for part in children(flow):
            yield from _in_iteration(part, arms)


def _withheld(arm: Flow | None, other: Flow | None) -> Flow | None:
    """The arm, in which a clear has an excuse if it drops a batch on purpose.

    It does if the arm contains nothing else, or if the arm leaves after the clear while the other arm goes on.
    """
    items = arm.items if isinstance(arm, Seq) else [arm]
    clear = items[0] if items else None
    if not isinstance(clear, Emit) or not isinstance(clear.event, Zero):
        return arm
    alone = len(items) == 1 and other is None
    if not alone and (leaves_by(arm) is None or leaves_by(other) is not None):
        return arm
    return Seq([replace(clear, event=replace(clear.event, excuse=Excuse.CHOSEN)), *items[1:]])


def _only_returns(body: Flow, label: Label) -> bool:
    """Whether a call comes back, one way or another, and does nothing else."""
    return all(
        part.label in (label, RAISE) if isinstance(part, Jump) else isinstance(part, (Seq, Alt))
        for part in walk(body)
    )


def _fails(arm: Flow | None) -> bool:
    """Whether an arm only raises: it says nothing about the runs that go on."""
    return isinstance(arm, Jump) and arm.label == RAISE


def _needed(flow: Flow, skeleton: Flow) -> dict[Variable, bool]:
    """Variables that the tests of a flow read, and whether their values could decide one."""
    needed: dict[Variable, bool] = {}
    sets: dict[Variable, list[Expr | None]] = {}
    for part in walk(flow):
        if isinstance(part, Set):
            sets.setdefault(part.variable, []).append(part.value)
    counting = Counting.of(flow)
    decisive: set[Variable] = set()
    for part in walk(skeleton):
        if isinstance(part, Alt):
            names = logic.reads(part.test)
            needed.update(dict.fromkeys(names, False))
            settled = counting.counters | sets.keys()
            if all(name in settled or not isinstance(name, Name) for name in names):
                decisive |= names
            else:
                counted = counting.lengths(part.test) is not None
                decisive |= names if counted or len(names) == 1 else frozenset()
        elif isinstance(part, Loop):
            for expr in (part.trips, part.test, part.first):
                decisive |= logic.reads(expr) if expr is not None else frozenset()
        elif isinstance(part, Emit) and part.divisor is not None:
            decisive |= logic.reads(part.divisor)
    todo = list(decisive)
    while todo:
        name = todo.pop()
        if needed.get(name):
            continue
        needed[name] = True
        for value in sets.get(name, ()):
            todo.extend(logic.reads(value) if value is not None else ())
    return needed
