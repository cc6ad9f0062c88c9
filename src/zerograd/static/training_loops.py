"""The training loops of a root: where its steps are repeated, and whether all of them were followed."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import cached_property

from zerograd.core.events import (
    Assign,
    Backward,
    Clip,
    Event,
    New,
    Site,
    Step,
    Unknown,
    Unscale,
    Zero,
)
from zerograd.core.lifecycle import EMPTY, NEW, Grads, State
from zerograd.core.records import dataclass, field, replace
from zerograd.core.rule import Rule, Violation
from zerograd.core.training_loop import (
    Account,
    Found,
    Gap,
    Kind,
    LoopStep,
    Mention,
    NotFollowed,
    TrainingLoop,
    Withheld,
)
from zerograd.explore import logic
from zerograd.explore.decisions import weight
from zerograd.explore.explore import Outcome, explore
from zerograd.explore.flow import Alt, Emit, Flow, Loop, events_in, find, rebuild
from zerograd.static.interp.emitter import Act
from zerograd.static.read.keys import Key, part_shown
from zerograd.static.read.module import Module
from zerograd.static.read.syntax_tree import site_of
from zerograd.static.repeated_calls import repeated
from zerograd.static.roots import Root
from zerograd.static.subject_events import SubjectKeys
from zerograd.static.written_loops import TOP_LEVEL, file_kind, site_of_file

OUTSIDE = 0
"""The loop of an event that no loop repeats."""


@dataclass
class _Loop:
    """A training loop while its root is explored."""

    site: Site
    name: str
    kind: Kind
    steps: dict[LoopStep, None] = field(default_factory=dict)
    outcomes: list[Outcome] = field(default_factory=list)
    gap: Gap | None = None
    accounts: list[Account] = field(default_factory=list)

    def subject_at(self, site: Site) -> str:
        """What the step at a place steps."""
        return next(step.subject for step in self.steps if step.site == site)

    def leave(self, why: NotFollowed, call: str = "") -> None:
        """Notes that the loop as a whole was not followed."""
        self.gap = self.gap or Gap(why, self.site, next(iter(self.steps)).subject, call)


class LoopsOfRoot:
    """Collects the loops of one root: their steps, and what the exploration says about each."""

    def __init__(self, root: Root, module: Module, *, explain: bool = False) -> None:
        self._root = root
        self._explain = explain
        self._module = module
        self._nodes = root.interpreter.nesting.loop_nodes
        self._loops: dict[int, _Loop] = {}
        self._acts = find(root.flow, Act)
        self._of_step: dict[Site, set[int]] = {}
        """By the place of a step, the loops that repeat it."""
        self._around: dict[Site, set[int]] = {}
        """By the place of any act, the loops around it."""
        for act in self._acts:
            around = set(self._outwards(act.event.loop))
            self._around.setdefault(act.event.site, set()).update(around)
            unseen = act.gap is NotFollowed.UNSEEN_STEP
            if isinstance(act.event, Step) or unseen:
                self._add(act, unseen=unseen)

    def _add(self, act: Act, *, unseen: bool) -> None:
        event = act.event
        loop = self._loop(event.loop)
        subject = act.subject or event.call.removesuffix("()").rpartition(".")[0]
        loop.steps[LoopStep(event.site, event.call or "update by hand", subject)] = None
        self._of_step.setdefault(event.site, set()).add(event.loop)
        if unseen:
            loop.gap = loop.gap or Gap(NotFollowed.UNSEEN_STEP, event.site, subject, event.call)

    def _loop(self, ident: int) -> _Loop:
        if ident not in self._loops:
            node = self._nodes.get(ident)
            if node is not None:
                site = site_of(node.node, node.path)
                self._loops[ident] = _Loop(site, node.name, "loop")
            else:
                self._loops[ident] = self._without_a_loop()
        return self._loops[ident]

    def _without_a_loop(self) -> _Loop:
        fn = self._root.fn
        name = fn.qualified_name if fn is not None else TOP_LEVEL
        if fn is None:
            return _Loop(site_of_file(self._module), name, file_kind(self._module))
        kind: Kind = "per-batch" if self._root.per_batch else "function"
        return _Loop(site_of(fn.node, fn.module.path), name, kind)

    def _outwards(self, ident: int) -> Iterator[int]:
        """A loop and those around it."""
        yield ident
        while (node := self._nodes.get(ident)) is not None:
            ident = node.outer
            yield ident

    def steps_of(self, subject: SubjectKeys) -> list[_Loop]:
        """The loops in which a subject is stepped."""
        idents = {
            act.event.loop
            for act in self._acts
            if isinstance(act.event, Step) and subject.key in act.whose
        }
        return [self._loops[ident] for ident in sorted(idents)]

    def add_outcome(self, outcome: Outcome, subject: SubjectKeys | None) -> None:
        """Notes what was found in the loops that it concerns."""
        violation = outcome.violation
        site = violation.step or violation.site
        idents = self._of_step.get(site) or self._around.get(violation.site, set()) & {*self._loops}
        loops = [self._loops[ident] for ident in idents]
        if not loops and subject is not None:
            loops = self.steps_of(subject)
        for loop in loops:
            loop.outcomes.append(outcome)

    def leave(self, subject: SubjectKeys, why: NotFollowed, call: str = "") -> None:
        """Notes that the ways of a subject through its loops were not all followed; a call may be the cause."""
        for loop in self.steps_of(subject):
            loop.leave(why, call)

    def follow(self, subject: SubjectKeys, flow: Flow, budget: int) -> int:
        """Notes which steps of a subject are reached with unknown gradients.

        `flow` is what the subject sees. Returns how many configurations were gone through.
        """
        events = events_in(flow)
        if self._explain:
            self._account(subject, flow, events)
        filling = [e.loop for e in events if isinstance(e, (Backward, Assign, Unknown))]
        around = {ident for loop in filling for ident in self._outwards(loop)}
        stepped = {e.loop for e in events if isinstance(e, Step) and not e.foreign}
        if not filling or stepped.isdisjoint(around):
            self.leave(subject, NotFollowed.NO_BACKWARD)
            return 0
        for ident in stepped - around:
            self._loop(ident).leave(NotFollowed.NO_BACKWARD)
        if self._is_borrowed(events):
            self.leave(subject, NotFollowed.UNCLEAR_ASSIGNMENT)
        spent = self._leave_to_callers(flow, stepped, budget)
        spent += self._leave_unfed(flow, events, budget)
        if not any(map(_is_unsure, events)):
            return spent
        gaps = {act.event.site: act.gap for act in self._acts if isinstance(act.event, Unknown)}
        result = explore(_entered_empty(flow, gaps), [_LOST], start=NEW, budget=budget)
        outcomes, spent = [*result.outcomes], spent + result.spent
        foreign = any(isinstance(event, Step) and event.foreign for event in events)
        if foreign and any(isinstance(event, Backward) and event.may for event in events):
            # If a backward that may reach the subject does, another optimizer's loss may be left in it.
            lent = explore(_reached(flow), [_LENT], start=NEW, budget=budget)
            outcomes, spent = [*outcomes, *lent.outcomes], spent + lent.spent
        if result.cut:
            self.leave(subject, NotFollowed.TOO_LARGE)
        for outcome in outcomes:
            step = outcome.violation.site
            unsure = [e for e in events if _is_unsure(e) and gaps.get(e.site, True) is not None]
            cause = _nearest(unsure, step)
            for ident in self._of_step.get(step, ()):
                loop = self._loops[ident]
                shown = loop.subject_at(step)
                unseen = NotFollowed.UNSEEN_CALL if cause.call else NotFollowed.LEFT_TO_CALLER
                why = gaps.get(cause.site) or _WHY.get(type(cause), unseen)
                call = cause.call or shown
                if outcome.rule is _LENT and (left := self._left_to_subclass):
                    why, call = NotFollowed.LEFT_TO_SUBCLASS, f"{left}()"
                loop.gap = loop.gap or Gap(why, cause.site, shown, call)
        return spent

    def _is_borrowed(self, events: list[Event]) -> bool:
        """Whether a subject steps with gradients of other parameters: what those hold was not followed."""
        assigned = {event.site for event in events if isinstance(event, Assign)}
        return any(act.borrowed and act.event.site in assigned for act in self._acts)

    def _leave_to_callers(self, flow: Flow, stepped: set[int], budget: int) -> int:
        """Notes if a call of the root may step what the call before it has left; returns what it cost to see."""
        if self._root.fn is None or self._root.per_batch or OUTSIDE not in stepped:
            return 0
        again = explore(repeated(flow, per_batch=True), [_STALE], start=NEW, budget=budget)
        if again.outcomes:
            self._loop(OUTSIDE).leave(NotFollowed.LEFT_TO_CALLER)
        return again.spent

    def _leave_unfed(self, flow: Flow, events: list[Event], budget: int) -> int:
        """Notes the loops of steps that never find gradients; returns what it cost to see.

        Only a step before which the code clears last, or does nothing, may be one.
        """
        last: Event | None = None
        suspects = set()
        for event in events:
            if isinstance(event, Step) and not event.foreign and not isinstance(last, _FILLS):
                suspects.add(event.site)
            elif isinstance(event, (*_FILLS, Zero)):
                last = event
        if not suspects:
            return 0
        result = explore(flow, [_FED], start=NEW, budget=budget)
        for site in suspects - {outcome.violation.site for outcome in result.outcomes}:
            for ident in self._of_step.get(site, ()) if not result.cut else ():
                loop = self._loops[ident]
                shown = loop.subject_at(site)
                loop.gap = loop.gap or Gap(NotFollowed.NO_BACKWARD, loop.site, shown)
        return result.spent

    @cached_property
    def _left_to_subclass(self) -> str:
        """A method that the root calls, and that only subclasses define."""
        from zerograd.static.callbacks import hook_names

        return min(hook_names(self._root), default="")

    def _account(self, subject: SubjectKeys, flow: Flow, events: list[Event]) -> None:
        """Writes down how a subject's gradients go through its loops."""
        names = self._root.interpreter.env.names()
        params = tuple(sorted(name_of(key.plain, names) for key in subject.params or ()))
        guards = {loop.paced for loop in find(flow, Loop) if loop.paced}
        tests = {alt.site: logic.show(alt.test) for alt in find(flow, Alt)}
        assumed = []
        if self._root.fn is not None:
            assumed.append(f"the gradients are empty when {self._root.name} is entered")
        if subject.params is None:
            assumed.append("what it steps cannot be seen: a loss is taken to reach it")
        if guards:
            assumed.append("its guard was executed for windows of 2 and 3 micro-batches")
        for loop in self.steps_of(subject):
            name = next(
                step.subject
                for step in loop.steps
                for act in self._acts
                if act.event.site == step.site and subject.key in act.whose
            )
            loop.accounts.append(
                Account(
                    name,
                    params,
                    backwards=_mentions(events, Backward, Assign),
                    clears=_mentions(events, Zero),
                    clips=_mentions(events, Clip, Unscale),
                    guards=tuple(Mention(site, tests.get(site, ""), True) for site in guards),
                    assumed=tuple(assumed),
                )
            )

    def finished(self, kept: Mapping[tuple[str, Site], Found]) -> Iterator[TrainingLoop]:
        """The loops; `kept` are the findings of the file."""
        for loop in self._loops.values():
            broken = {(one.rule.code, one.violation.site): one for one in loop.outcomes}
            found = [kept[key] for key in broken.keys() & kept.keys()]
            found.sort(key=lambda one: (one.site.line, one.code))
            if self._root.completed and not found:
                continue  # the step is that of a library, not of the file
            accounts = loop.accounts
            if accounts:
                withheld = [one for key, one in broken.items() if key not in kept]
                accounts[0] = replace(accounts[0], withheld=tuple(map(_withheld, withheld)))
            yield TrainingLoop(
                loop.site,
                loop.name,
                loop.kind,
                tuple(loop.steps),
                tuple(found),
                loop.gap,
                tuple(accounts),
            )


def _mentions(events: list[Event], *kinds: type[Event]) -> tuple[Mention, ...]:
    found = {
        Mention(event.site, event.call, not event.may): None
        for event in events
        if isinstance(event, kinds)
    }
    return tuple(sorted(found, key=lambda one: (one.site.path, one.site.line, one.site.column)))


def name_of(key: Key, names: Mapping[Key, str]) -> str:
    """A key as the code names it: an object by the variable that holds it."""
    for end in range(len(key), 0, -1):
        name = names.get(Key(key[:end]))
        if name is not None:
            return name + "".join(map(part_shown, key[end:]))
    return key.shown


def _withheld(outcome: Outcome) -> Withheld:
    decisions = min(outcome.decisions, key=weight)
    when = tuple(sorted({str(decision) for decision in decisions}))
    rule, violation = outcome.rule, outcome.violation
    return Withheld(rule.code, rule.name, violation.message, violation.site, when)


def _of_steps(asks: Callable[[State, Step], bool], *reads: str) -> Rule:
    """A rule that each step of a subject breaks before which this is true."""

    def check(before: State, event: Event) -> Violation | None:
        if not isinstance(event, Step) or event.foreign or not asks(before, event):
            return None
        return Violation(site=event.site, message="")

    return Rule(code="", name="", doc="", check=check, reads=frozenset(reads), most_decisions=3)


def _is_stale(before: State, _: Step) -> bool:
    return before.grads is Grads.STALE or before.maybe is not None


def _is_lost(before: State, step: Step) -> bool:
    return before.grads is Grads.UNKNOWN or before.maybe is not None or step.may


_LOST = _of_steps(_is_lost, "grads", "maybe")
"""A step whose gradients may be those of an earlier step, for all that was seen."""
_STALE = _of_steps(_is_stale, "grads", "maybe")
"""A step whose gradients contain those of an earlier step, or may contain them."""
_FED = _of_steps(lambda before, _: before.grads not in EMPTY, "grads")
"""A step that finds gradients."""
_LENT = _of_steps(lambda before, _: before.lent is not None, "lent", "grads", "backward")
"""A step that uses, beside its own gradients, those that a step of another optimizer has used."""
_FILLS = (Backward, Assign, Unknown)
_WHY: dict[type[Event], NotFollowed] = {
    Zero: NotFollowed.UNCLEAR_CLEAR,
    Backward: NotFollowed.UNCLEAR_BACKWARD,
    Assign: NotFollowed.UNCLEAR_ASSIGNMENT,
}


def _is_unsure(event: Event) -> bool:
    adds = isinstance(event, Assign) and event.adds  # to what a step has used, perhaps
    may = event.may and not isinstance(event, (Unscale, Clip))
    return isinstance(event, Unknown) or adds or may


def _entered_empty(flow: Flow, gaps: dict[Site, NotFollowed | None]) -> Flow:
    """The flow in which an object whose origin is not known begins without gradients."""
    if isinstance(flow, Emit):
        origin = isinstance(flow.event, Unknown) and gaps.get(flow.event.site, True) is None
        return Emit(New(flow.event.site)) if origin else flow
    return rebuild(flow, lambda part: _entered_empty(part, gaps))


def _reached(flow: Flow) -> Flow:
    """The flow in which each backward that may reach the subject reaches it."""
    if isinstance(flow, Emit):
        return (
            replace(flow, event=replace(flow.event, may=False))
            if isinstance(flow.event, Backward)
            else flow
        )
    return rebuild(flow, _reached)


def _nearest(events: list[Event], step: Site) -> Event:
    """The last event before a step in its file, or the first there is."""
    before = [e for e in events if e.site.path == step.path and e.site.line <= step.line]
    return max(before, key=lambda e: (e.site.line, e.site.column)) if before else events[0]
