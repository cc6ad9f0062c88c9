"""Follows the gradients of each subject through one root, and explores which rules its flow breaks."""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property

from zerograd.core.events import Backward, End, Event, Hold, Site, Step, Unknown, Zero
from zerograd.core.finding import Note
from zerograd.core.records import replace
from zerograd.core.rule import Rule, Windows
from zerograd.core.training_loop import NotFollowed
from zerograd.explore.explore import Outcome, Result, Terrain, WindowTrial, explore
from zerograd.explore.flow import Emit, Flow, Loop, Seq, events_in, find, walk
from zerograd.explore.named_tests import spelled_out
from zerograd.static.accumulation import SINGLE, pace
from zerograd.static.called_again import callers_may_clear, kept_and_stepped
from zerograd.static.chosen_arms import accumulating, programs, with_chosen_arms
from zerograd.static.doubts import Doubts, round_of
from zerograd.static.entry_states import begins_with_clip, clips_then_steps, entered
from zerograd.static.interp.emitter import Act
from zerograd.static.loss_scaling import excused
from zerograd.static.micro_batches import cut_windows
from zerograd.static.named_parameters import with_named_parameters
from zerograd.static.outcomes import Outcomes
from zerograd.static.projection import View
from zerograd.static.read.budget import PATHS, Budget, Cut
from zerograd.static.read.keys import AllocationSite
from zerograd.static.read.module import Module
from zerograd.static.read.values import Thing
from zerograd.static.repeated_calls import counts_calls, first_counts, repeated
from zerograd.static.roots import Root
from zerograd.static.rule_groups import breakable
from zerograd.static.subject_events import SubjectEvents, SubjectKeys, leaves, parts, subjects
from zerograd.static.training_loops import LoopsOfRoot, name_of
from zerograd.static.unread_guards import counted, is_handed_in


class RootSearch:
    """Explores one root, for each of its subjects and each group of rules."""

    def __init__(
        self,
        root: Root,
        module: Module,
        budget: Budget,
        outcomes: Outcomes,
        cut: dict[str, None],
        explain: bool = False,
    ) -> None:
        self.root = root
        self.module = module
        self.budget = budget
        self.outcomes = outcomes
        self.cut = cut
        self._clearing_callbacks: dict[Site | None, tuple[NotFollowed, str] | None] = {}
        """By loop; None is anywhere."""
        self.asked_callers = False
        """Whether it mattered what the callers of the root do."""
        self.loops = LoopsOfRoot(root, module, explain=explain)
        flow = spelled_out(root.flow)
        self.again = frozenset() if root.per_batch else kept_and_stepped(root, flow)
        """The optimizers that the next call of a method finds as this one leaves them."""
        if root.fn is not None and clips_then_steps(flow):
            self.asked_callers = True
            flow = entered(flow, module)
        counts = counts_calls(flow) or is_handed_in(flow)
        self.repeated = root.per_batch or counts or begins_with_clip(flow)
        self.flow = repeated(flow, root.per_batch) if self.repeated else flow
        self.calls = repeated(flow, per_batch=True) if self.again else flow
        # Where a function gets its counter from cannot be seen, unless a framework calls it.
        self.ends_seen = root.per_batch or not self.repeated
        """Whether the flow shows where windows end."""
        begun = first_counts(root, flow) if counts and not root.per_batch else []
        self.flow = Seq([*begun, self.flow]) if begun else self.flow
        self.counts_itself = bool(begun)
        """Whether at least the length of each full window shows."""
        self.doubts = Doubts(root, module, self.repeated)

    def explore_root(self) -> None:
        """Explores the flow for each of its subjects."""
        known = self.root.interpreter.known
        stepped = with_named_parameters(subjects(self.flow, known.params), self.flow, known.roles)
        stepped += leaves(self.flow, known.fresh, stepped)
        if not self.module.imports_torch:
            stepped = [subject for subject in stepped if not subject.key.is_by_hand]
        # Each part of the flow is compared with each subject, and each subject with the others.
        size = sum(1 for _ in walk(self.flow)) * max(1, len(stepped) // 4)
        whole = self.flow
        for subject in stepped:
            others = [other for other in stepped if other.key != subject.key]
            self.flow, gone = with_chosen_arms(whole, subject.key) if others else (whole, set())
            others = [other for other in others if other.key not in gone]
            for part in parts(subject, self.flow):
                self.budget.spend(size)
                self.explore_subject(part, others)
        self.flow = whole
        self.explore_unstepped(stepped)

    def events_of(self, subject: SubjectKeys, others: list[SubjectKeys]) -> SubjectEvents:
        interpreter = self.root.interpreter
        known = interpreter.known
        asked = (self.idle_loss, self.computes, interpreter.clears_before)
        without = known.without_engine
        return SubjectEvents(
            subject, others, known.roles, *asked, known.fresh, without_engine=without
        )

    def idle_loss(self, step: Event) -> Site | None:
        """Where a loss is computed that is not used, unless what computes it may run the backward."""
        interpreter = self.root.interpreter
        found = interpreter.idle_loss(step)
        return None if found is None or self.is_fed_elsewhere(step) else found

    def computes(self, step: Event, subject: SubjectKeys, clear: Site | None) -> bool:
        """Whether the loop of a step calls a module that is stepped, and nothing after a clear that may train it."""
        nesting = self.root.interpreter.nesting
        called = nesting.forwards.get(step.loop, set())
        if not any(key.overlaps(one) for key in called for one in subject.params or ()):
            return False
        unseen = (site for call in nesting.unseen for site in call.sites)
        if any(self.doubts.is_between(site, clear, step.site) for site in unseen):
            return False
        return not self.is_fed_elsewhere(step)

    def is_fed_elsewhere(self, step: Event) -> bool:
        """Whether a method of another file that is called around a step may run its backward."""
        from zerograd.static.read.callers import one_runs_backward

        self.asked_callers = True
        called = self.root.interpreter.called_around(step) - self.module.functions.keys()
        unseen = {name for name in called if not self.module.methods_named(name)}
        if one_runs_backward(self.module.path, unseen):
            return True
        return self.root.interpreter.calls_kept_backward()

    def explore_subject(self, subject: SubjectKeys, others: list[SubjectKeys]) -> None:
        """Follows the gradients of one subject through the flow."""
        flow, windows = self.seen_by(subject, others, self.flow)
        self.budget.file -= self.loops.follow(subject, flow, min(self.budget.file, PATHS))
        self.doubts.own_backwards = frozenset(
            part.event.site for part in find(flow, Emit) if isinstance(part.event, Backward)
        )
        self.doubts.own_clears = frozenset(
            part.event.site for part in find(flow, Emit) if isinstance(part.event, Zero)
        )
        self.doubts.others = others
        if windows:
            flow = excused(flow, self.flow, windows[0].symbols)
        events = events_in(flow)
        steps = [event.site for event in events if isinstance(event, Step)]
        if windows and steps and not self.repeated:
            flow = Seq((flow, Emit(End(steps[0]))))
        complete = [self.explore_rules(flow, windows, subject)]
        guarded = any(isinstance(event, Hold) for event in events)
        for cut in cut_windows(flow) if not guarded else ():
            complete.append(self.explore_rules(Emit(cut), (), subject))
        if not all(complete):
            self.loops.leave(subject, NotFollowed.TOO_LARGE)
            name = subject.key.plain.shown
            self.cut[f"too many ways for {name} through {self.root.name}"] = None
        else:
            self.explore_programs(subject, others)
            if subject.key in self.again:
                self.explore_calls(subject, others)

    def explore_programs(self, subject: SubjectKeys, others: list[SubjectKeys]) -> None:
        """Where a setting chooses between programs, follows the gradients through each of them alone."""
        accumulates = accumulating(self.flow, subject.key)
        for program in programs(self.flow, subject.key):
            flow, windows = self.seen_by(subject, others, program.flow)
            allowed = tuple(filter(program.runs_with, windows))
            if allowed or not windows:
                self.explore_program(flow, program.flow, allowed, subject)
        if accumulates is not None:
            flow, windows = self.seen_by(subject, others, accumulates.flow)
            # The step that is left out may be the one that uses the remainder.
            windows = tuple(
                replace(window, ends_seen=False)
                for window in windows
                if accumulates.runs_with(window)
            )
            self.explore_program(flow, accumulates.flow, windows, subject)

    def explore_program(
        self, flow: Flow, program: Flow, windows: tuple[WindowTrial, ...], subject: SubjectKeys
    ) -> None:
        """Follows the gradients through one program, `flow` as the subject sees it."""
        if windows:
            flow = excused(flow, program, windows[0].symbols)
        self.explore_rules(flow, windows, subject)

    def explore_calls(self, subject: SubjectKeys, others: list[SubjectKeys]) -> None:
        """Follows what one call of a method leaves in the gradients into the next call."""
        flow, windows = self.seen_by(subject, others, self.calls)
        self.explore_rules(flow, windows, subject, calls_only=True)

    def seen_by(
        self, subject: SubjectKeys, others: list[SubjectKeys], flow: Flow
    ) -> tuple[Flow, tuple[WindowTrial, ...]]:
        """A flow as a subject sees it, and the windows to execute."""
        return pace(*counted(View(self.events_of(subject, others)).of(flow), flow))

    def callers_leave_it(self) -> bool:
        """Whether no caller of the root is seen to clear."""
        self.asked_callers = True
        return not callers_may_clear(self.root)

    def explore_rules(
        self,
        flow: Flow,
        windows: tuple[WindowTrial, ...],
        subject: SubjectKeys,
        *,
        calls_only: bool = False,
    ) -> bool:
        """Explores a flow for all rules that it may break; False where there is too much to explore.

        With `calls_only`, for those alone that a next call may break.
        """
        groups = breakable(flow, events_in(flow), windows)
        if calls_only:
            groups = [[rule for rule in rules if rule.outlives_calls] for rules in groups]
        provided = self.callers_leave_it if calls_only else None
        terrain = Terrain(flow)
        done = [self.explore_group(terrain, rules, windows, subject, provided) for rules in groups]
        return all(done)

    def explore_group(
        self,
        terrain: Terrain,
        rules: list[Rule],
        windows: tuple[WindowTrial, ...],
        subject: SubjectKeys,
        provided: Callable[[], bool] | None,
    ) -> bool:
        """Explores a flow for some rules; False, and no finding, where there is too much to explore.

        What is found counts only if `provided` is true.
        """
        results: list[Result] = []
        for window in (*windows, None) if windows else (None,):
            asked = rules
            if window is None and windows:
                # What no window has come to is looked at as if its guards could have either outcome.
                missed = [result.missed for result in results]
                if not missed or not frozenset.intersection(*missed):
                    continue
                asked = [rule for rule in rules if rule.single]
            if window is not None and window.length == SINGLE:
                asked = [rule for rule in rules if rule.single]
            if window is not None and not (window.ends_seen and self.ends_seen):
                asked = self.without_ends(asked, window, subject)
            if window is not None and window.several:
                asked = [rule for rule in asked if rule.windows is not Windows.LENGTH]
            if not asked:
                continue
            result = explore(terrain, asked, window=window, budget=min(self.budget.file, PATHS))
            self.budget.file -= result.spent
            if self.budget.file < 0:
                raise Cut
            if result.cut:
                return False
            if result.unreached:
                self.loops.leave(subject, NotFollowed.TOO_LARGE)
            results.append(result)
        outcomes = [outcome for result in results for outcome in result.outcomes]
        if outcomes and (provided is None or provided()):
            for outcome in outcomes:
                unseen = self.unseen_part(outcome)
                if unseen is not None:
                    self.loops.leave(subject, *unseen)
                    continue
                doubted = self.doubts.applied(outcome, subject, self.flow)
                self.outcomes.add(self.with_loop(doubted), self.optimizer_of(subject))
                self.loops.add_outcome(doubted, subject)
        return True

    def without_ends(
        self, rules: list[Rule], window: WindowTrial, subject: SubjectKeys
    ) -> list[Rule]:
        """The rules that do not ask where windows end; for the others, the loop is left to its callers."""
        shown = {Windows.LENGTH} if window.ends_seen and self.counts_itself else set()
        asked = [rule for rule in rules if not rule.judges_ends or rule.windows in shown]
        if len(asked) < len(rules):
            self.loops.leave(subject, NotFollowed.LEFT_TO_CALLER)
        return asked

    def unseen_part(self, outcome: Outcome) -> tuple[NotFollowed, str] | None:
        """The call of what cannot be seen, and may do what a rule misses."""
        rule = outcome.rule
        if rule.outlives_calls:
            loop = round_of(outcome.violation, self.doubts.own_clears, self.flow)
            return self.clearing_callback(None if loop is None else loop.site)
        unfilled = self.doubts.own_backwards == frozenset()
        return self.filling_hook if rule.misses_backward or unfilled else None

    @cached_property
    def filling_hook(self) -> tuple[NotFollowed, str] | None:
        """The call of a method that is left to subclasses, and that may run a backward."""
        from zerograd.static.callbacks import hook_names
        from zerograd.static.read.callers import one_runs_backward

        for name in sorted(hook_names(self.root)):
            self.asked_callers = True
            if one_runs_backward(self.module.path, {name}):
                return NotFollowed.LEFT_TO_SUBCLASS, f"{name}()"
        return None

    def clearing_callback(self, loop: Site | None) -> tuple[NotFollowed, str] | None:
        """A call that may clear, anywhere or in a loop: of a callback, or of a method that subclasses define."""
        if loop not in self._clearing_callbacks:
            self._clearing_callbacks[loop] = self._clearing_callback(loop)
        return self._clearing_callbacks[loop]

    def _clearing_callback(self, loop: Site | None) -> tuple[NotFollowed, str] | None:
        from zerograd.static.callbacks import callback_names, hook_names, loop_at
        from zerograd.static.read.callers import first_that_clears

        node = None if loop is None else loop_at(loop, self.module)
        for why, names in (
            (NotFollowed.UNCLEAR_CLEAR, callback_names(self.root, self.module, node)),
            (NotFollowed.LEFT_TO_SUBCLASS, hook_names(self.root, node)),
        ):
            if names:
                self.asked_callers = True
                if name := first_that_clears(self.module.path, names):
                    return why, f"{name}()"
        return None

    def optimizer_of(self, subject: SubjectKeys) -> str:
        """The optimizer of a subject, as the code names it: where it is made, or where it is stepped."""
        if subject.key.is_by_hand:
            return ""
        key = subject.key.plain
        if not isinstance(key[0], AllocationSite):
            return key.shown
        name = name_of(key, self.root.interpreter.env.names())
        if name != key.shown:
            return name
        steps = (
            act.subject
            for act in find(self.flow, Act)
            if isinstance(act.event, Step) and subject.key in act.whose
        )
        return next(filter(None, steps), "")

    def with_loop(self, outcome: Outcome) -> Outcome:
        """The violation, with the loop that repeats it as evidence if that loop is in another function.

        A call from another file is evidence, too, where there is only one, and so is the class that inherits the code.
        """
        violation = outcome.violation
        callers = self.root.interpreter.nesting.callers.get(violation.site, set())
        caller = next(iter(callers)) if len(callers) == 1 else None
        if caller is not None and caller.path != violation.site.path:
            if caller not in (note.site for note in violation.notes):
                notes = (*violation.notes, Note(caller, "called here"))
                violation = replace(violation, notes=notes)
                outcome = replace(outcome, violation=violation)
        if (heir := self.heir) is not None:
            violation = replace(violation, notes=(*violation.notes, heir))
            outcome = replace(outcome, violation=violation)
        loops = [
            part
            for part in find(self.flow, Loop)
            if any(isinstance(one, Emit) and one.event.site == violation.site for one in walk(part))
        ]
        inner = min(loops, key=lambda loop: sum(1 for _ in walk(loop)), default=None)
        if inner is None or not inner.site.path or _is_in(violation.site, inner.site):
            return outcome
        notes = (*violation.notes, Note(inner.site, "repeated by this loop"))
        return replace(outcome, violation=replace(violation, notes=notes))

    @cached_property
    def heir(self) -> Note | None:
        """The class whose objects run the code of the root in another way than those of its own class."""
        fn = self.root.fn
        owner = fn.owner if fn is not None else None
        heir = owner.klass if isinstance(owner, Thing) else None
        if fn is None or fn.klass is None or heir is None or heir.node is fn.klass.node:
            return None
        line, column = heir.node.lineno, heir.node.col_offset + 1
        end = column + len(f"class {heir.node.name}")
        site = Site(heir.module.path, line, column, line, end)
        return Note(site, f"in objects of {heir.node.name}")

    def explore_unstepped(self, stepped: list[SubjectKeys]) -> None:
        """Finds optimizers that are built, cleared and given gradients of their own, and never stepped here."""
        known = self.root.interpreter.known
        keys = {subject.key for subject in stepped}
        acts = find(self.flow, Act)
        cleared = {key for act in acts if isinstance(act.event, Zero) for key in act.whose}
        unseen = {
            key
            for act in acts
            if isinstance(act.event, Unknown) and act.event.call and not act.inside
            for key in act.whose
        }
        if self.module.facts[self.module.tree].may_use_gradients:
            return
        self.doubts.own_backwards = None
        for key, site in known.made.items():
            if key in keys or key in known.handed or key not in cleared:
                continue
            if any(key in act.whose and "step" in act.event.call for act in acts):
                continue
            steps = (act.whose for act in acts if isinstance(act.event, Step))
            if any(one.plain.is_inside(key) for whose in steps for one in whose):
                continue  # an optimizer of the project's own, with steps of other names
            made = {other: SubjectKeys(other, known.params.get(other)) for other in known.made}
            subject = made.pop(key)
            others = [*stepped, *(one for one in made.values() if one.key not in keys)]
            if any(key.is_inside(one) for one in unseen) if others else unseen - {key}:
                continue
            events = self.events_of(subject, others)
            first = next((act for act in acts if act.event.loop and events.is_its_own(act)), None)
            if first is None or self.reads_gradients:
                continue
            self.explore_rules(Emit(End(site, idle_loss=first.event.site)), (), subject)

    @cached_property
    def reads_gradients(self) -> bool:
        """Whether a function that was followed, in whatever file, may use gradients without a step."""
        return any(facts.may_use_gradients for _, _, facts in self.root.interpreter.followed())


def _is_in(site: Site, around: Site) -> bool:
    """Whether a place is inside of another one."""
    return site.path == around.path and around.line <= site.line <= around.end_line
