"""The findings of one file: its roots interpreted, and each subject's gradients followed through them."""

from __future__ import annotations

import ast
from collections.abc import Iterable
from dataclasses import dataclass, field

from zerograd.core.events import End, Event, Site, Step, Unknown, Zero
from zerograd.core.finding import Finding, finding_of
from zerograd.core.records import replace
from zerograd.core.rule import Evidence, Rule
from zerograd.core.training_loop import Found, NotFollowed, TrainingLoop, joined
from zerograd.explore import logic
from zerograd.explore.decisions import Decisions, opposite, weight
from zerograd.explore.explore import Outcome, Result, Window, explore
from zerograd.explore.flow import Alt, Emit, Flow, Loop, Seq, relooped, walk
from zerograd.rules.catalogue import RULES
from zerograd.static.accumulation import pace
from zerograd.static.interp.emitter import Act
from zerograd.static.interp.interpreter import Program
from zerograd.static.loss_scaling import excused
from zerograd.static.projection import Subject, View, leaves, parts, subjects
from zerograd.static.read.budget import PATHS, Budget, Cut
from zerograd.static.read.module import Module
from zerograd.static.read.project import Project
from zerograd.static.read.source import Source
from zerograd.static.roots import Root, Roots
from zerograd.static.training_loops import LoopsOfRoot, not_read, plainly_right


@dataclass
class Analysis:
    """All that was found in one file."""

    tree: ast.Module
    findings: list[Finding] = field(default_factory=list)
    """The possible ones, too."""
    depends: list[str] = field(default_factory=list)
    """The paths of the other files that were read."""
    cut: str | None = None
    """What was left out, and why."""
    loops: list[TrainingLoop] = field(default_factory=list)
    """Where gradients are used again and again."""


def analyse(source: Source, *, explain: bool = False) -> Analysis:
    """Everything in a file that breaks a rule, and its training loops; `explain` accounts for each."""
    project = Project()
    module = project.add(source)
    if not module.speaks_torch:
        return Analysis(module.tree)
    program = Program(project, module)
    cut: dict[str, None] = {}
    roots = Roots(program, cut)
    outcomes = _Outcomes()
    loops = []
    try:
        for root in roots:
            search = _Search(root, module, project.budget, outcomes, cut, explain)
            loops.append(search.loops)
            search.explore_root()
    except Cut:
        cut[f"there is too much to follow, from {roots.current} on"] = None
        roots.unread += roots.left_out()
    finally:
        program.forget()
    depends = sorted(project.read - {module.path})
    if not module.facts[module.tree].mentions:
        # Whether a file without gradients repeats a step was worth a try.
        cut.clear()
    findings = outcomes.findings()
    return Analysis(
        module.tree,
        findings,
        depends,
        ", ".join(cut) or None,
        _training_loops(module, roots, loops, findings),
    )


def _training_loops(
    module: Module, roots: Roots, loops: list[LoopsOfRoot], findings: list[Finding]
) -> list[TrainingLoop]:
    """The training loops of a file, each with those of its findings that are in it."""
    kept = {
        (one.code, one.site): Found(one.code, one.level, one.certain, one.site) for one in findings
    }
    made = [loop for name, some in roots.plain for loop in plainly_right(module.path, name, some)]
    made += [loop for fn in roots.unread for loop in not_read(module, fn)]
    for of_root in loops:
        made += of_root.finished(kept)
    return joined(made)


class _Search:
    """Explores one root, for each of its subjects and each group of rules."""

    def __init__(
        self,
        root: Root,
        module: Module,
        budget: Budget,
        outcomes: _Outcomes,
        cut: dict[str, None],
        explain: bool = False,
    ) -> None:
        self.root = root
        self.module = module
        self.budget = budget
        self.outcomes = outcomes
        self.cut = cut
        self.loops = LoopsOfRoot(root, module, explain=explain)
        self.repeated = root.per_batch or _is_handed_its_counter(root.flow)
        self.flow = _repeat(root.flow) if self.repeated else root.flow
        # Where a function gets its counter from cannot be seen, unless a framework calls it.
        self.ends_seen = root.per_batch or not self.repeated
        """Whether the flow shows where windows end."""

    def explore_root(self) -> None:
        """Explores the flow for each of its subjects."""
        stepped = subjects(self.flow, self.root.interpreter.known.params)
        stepped += leaves(self.flow, self.root.interpreter.known.fresh, stepped)
        if not self.module.imports_torch:
            stepped = [subject for subject in stepped if not subject.key.is_by_hand]
        # Each part of the flow is compared with each subject, and each subject with the others.
        size = sum(1 for _ in walk(self.flow)) * max(1, len(stepped) // 4)
        for subject in stepped:
            others = [other for other in stepped if other.key != subject.key]
            for part in parts(subject):
                self.budget.spend(size)
                self.explore_subject(part, others)
        self.explore_unstepped(stepped)

    def view(self, subject: Subject, others: list[Subject]) -> View:
        interpreter = self.root.interpreter
        known = interpreter.known
        asked = (interpreter.idle_loss, interpreter.clears_before)
        return View(subject, others, known.roles, *asked, known.fresh)

    def explore_subject(self, subject: Subject, others: list[Subject]) -> None:
        """Follows the gradients of one subject through the flow."""
        flow, windows = pace(self.view(subject, others).of(self.flow))
        self.budget.file -= self.loops.follow(subject, flow, min(self.budget.file, PATHS))
        if windows:
            flow = excused(flow, self.flow, windows[0].symbols)
        events = [part.event for part in walk(flow) if isinstance(part, Emit)]
        if windows and not self.repeated:
            end = End(next(event.site for event in events if isinstance(event, Step)))
            flow = Seq((flow, Emit(end)))
            events.append(end)
        complete = [self.explore_rules(flow, rules, windows, subject) for rules in _groups(events)]
        if not all(complete):
            self.loops.leave(subject, NotFollowed.TOO_LARGE)
            name = subject.key.plain.shown
            self.cut[f"too many ways for {name} through {self.root.name}"] = None

    def explore_rules(
        self,
        flow: Flow,
        rules: list[Rule],
        windows: tuple[Window, ...] = (),
        subject: Subject | None = None,
    ) -> bool:
        """Explores a flow for some rules; False, and no finding, where there is too much to explore."""
        results = []
        for window in windows or (None,):
            result = explore(flow, rules, window=window, budget=min(self.budget.file, PATHS))
            self.budget.file -= result.spent
            if self.budget.file < 0:
                raise Cut
            if result.cut:
                return False
            results.append(result)
        for result in results:
            for outcome in result.outcomes:
                if self.ends_seen or not outcome.rule.judges_ends:
                    self.outcomes.add(self.with_loop(outcome), result)
                    self.loops.add_outcome(outcome, subject)
        return True

    def with_loop(self, outcome: Outcome) -> Outcome:
        """A violation with the loop around it, if that is in another file: others may drive it right."""
        violation = outcome.violation
        loops = [
            part
            for part in walk(self.flow)
            if isinstance(part, Loop)
            if any(isinstance(one, Emit) and one.event.site == violation.site for one in walk(part))
        ]
        inner = min(loops, key=lambda loop: sum(1 for _ in walk(loop)), default=None)
        if inner is None or inner.site.path in ("", violation.site.path):
            return outcome
        evidence = (*violation.evidence, Evidence(inner.site, "repeated by this loop"))
        return replace(outcome, violation=replace(violation, evidence=evidence))

    def explore_unstepped(self, stepped: list[Subject]) -> None:
        """Finds optimizers that are built, cleared and given gradients, and never stepped."""
        known = self.root.interpreter.known
        keys = {subject.key for subject in stepped}
        acts = [act for act in walk(self.flow) if isinstance(act, Act)]
        cleared = {key for act in acts if isinstance(act.event, Zero) for key in act.whose}
        unseen = {
            key
            for act in acts
            if isinstance(act.event, Unknown) and act.event.call
            for key in act.whose
        }
        read = any(attr == "grad" for f in self.module.facts.values() for _, attr in f.attributes)
        for key, site in known.made.items() if not read else ():
            if key in keys or key not in cleared or key in known.handed:
                continue
            if any(key in act.whose and "step" in act.event.call for act in acts):
                continue
            made = {other: Subject(other, known.params.get(other)) for other in known.made}
            subject = made.pop(key)
            others = [*stepped, *(one for one in made.values() if one.key not in keys)]
            if any(key.is_inside(one) for one in unseen) if others else unseen - {key}:
                continue
            view = self.view(subject, others)
            first = next((act for act in acts if act.event.loop and view.is_its_own(act)), None)
            if first is None:
                continue
            end = End(site, idle_loss=first.event.site)
            for rules in _groups([end]):
                self.explore_rules(Emit(end), rules)


class _Outcomes:
    """The violations in all roots of a file, each with the decisions that count against it."""

    def __init__(self) -> None:
        self._kept: dict[tuple[Rule, Site], list[tuple[Outcome, Decisions]]] = {}

    def add(self, outcome: Outcome, result: Result) -> None:
        """Keeps a violation with every set of decisions that is small enough to be reported."""
        violation = outcome.violation
        for decisions in outcome.decisions:
            # An invariant test around the reported line is no decision for that line.
            counted = frozenset(
                decision
                for decision in decisions
                if result.enclosures.get(decision.unweighted, _NOWHERE).isdisjoint(
                    (violation.site, violation.step)
                )
            )
            if weight(counted) <= max(outcome.rule.most_decisions, 1):
                kept = self._kept.setdefault((outcome.rule, violation.site), [])
                kept.append((outcome, counted))

    def findings(self) -> list[Finding]:
        """The findings, in the order of the source."""
        found = {}
        for key, kept in self._kept.items():
            outcome, decisions = min(kept, key=lambda item: weight(item[1]))
            rule, message = outcome.rule, outcome.violation.message
            same = [
                path
                for other, path in kept
                if rule.most_decisions or other.violation.message == message
            ]
            if _cancels(same):
                decisions = frozenset()
            if weight(decisions) <= rule.most_decisions:
                found[key] = replace(
                    finding_of(rule, outcome.violation),
                    step=outcome.violation.step,
                    certain=weight(decisions) < 2,
                    when=tuple(sorted({str(decision) for decision in decisions})),
                )
        made = [one for (rule, site), one in found.items() if (rule.yields_to, site) not in found]
        made.sort(key=lambda f: (f.site.path, f.site.line, f.site.column, f.code))
        return made


_NOWHERE: frozenset[Site] = frozenset()


def _cancels(paths: Iterable[Decisions]) -> bool:
    """Whether both outcomes of some test lead to the violation, each of them alone."""
    singles = {next(iter(path)) for path in paths if len(path) == 1}
    return any(opposite(decision) in singles for decision in singles)


def _groups(events: list[Event]) -> list[list[Rule]]:
    """The rules that these events may break; those that read much the same are explored together."""
    groups: list[tuple[set[str], list[Rule]]] = []
    for rule in _BY_READING:
        if not all(any(map(need, events)) for need in rule.needs):
            continue
        most = (len(rule.reads) - 1) // 2
        fits = [group for group in groups if len(rule.reads - group[0]) <= most]
        if fits:
            reads, rules = min(fits, key=lambda group: (len(rule.reads - group[0]), len(group[0])))
            reads |= rule.reads
            rules.append(rule)
        else:
            groups.append((set(rule.reads), [rule]))
    return [rules for _, rules in groups]


_BY_READING = sorted(
    (rule for rule in RULES if rule.only != "runtime"), key=lambda rule: -len(rule.reads)
)


def _is_handed_its_counter(flow: Flow) -> bool:
    """Whether a flow has no loop, and a counter that it is handed decides about a step."""
    if any(isinstance(part, Loop) for part in walk(flow)):
        return False
    return any(
        isinstance(part, logic.Op) and part.op == "%"
        for alt in walk(flow)
        if isinstance(alt, Alt) and _steps_under(alt)
        for part in logic.parts(alt.test)
    )


def _repeat(flow: Flow) -> Flow:
    """A function that is called once per batch, as a loop that counts what its guards read."""
    counter = None
    for part in walk(flow):
        if isinstance(part, Alt) and _steps_under(part):
            for op in logic.parts(part.test):
                if isinstance(op, logic.Op) and op.op == "%":
                    counter = next(iter(sorted(logic.reads(op.args[0]), key=str)), counter)
    site = next((p.event.site for p in walk(flow) if isinstance(p, Emit)), Site("", 1))
    targets = frozenset({counter}) if counter else frozenset()
    return Loop(relooped(flow, 0, -1), -1, site, targets, counter)


def _steps_under(alt: Alt) -> bool:
    return any(isinstance(e, Emit) and isinstance(e.event, Step) for e in walk(alt))
