"""One file's findings: its roots interpreted, its subjects explored, the violations worded as findings."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass, field

from zerograd.core.events import End, Event, Site, Step, Unknown, Zero
from zerograd.core.finding import Finding, finding_of
from zerograd.core.records import replace
from zerograd.core.rule import Rule
from zerograd.explore import logic
from zerograd.explore.decisions import Decisions, opposite, weight
from zerograd.explore.explore import Outcome, Result, Window, explore
from zerograd.explore.flow import Alt, Emit, Flow, Loop, Seq, relooped, walk
from zerograd.explore.logic import WINDOW_LENGTH
from zerograd.rules.catalogue import RULES
from zerograd.static import projection
from zerograd.static.accumulation import Pace
from zerograd.static.accumulation import pace as pace_of
from zerograd.static.frameworks import registry
from zerograd.static.frameworks.table import Role
from zerograd.static.interp.emitter import Act
from zerograd.static.interp.interpreter import Interpreter, Program
from zerograd.static.loss_scaling import excused
from zerograd.static.projection import Subject, View
from zerograd.static.read import vocabulary
from zerograd.static.read.budget import PATHS, Cut
from zerograd.static.read.file_index import Facts, text_of
from zerograd.static.read.module import Module
from zerograd.static.read.project import Project
from zerograd.static.read.source import Source
from zerograd.static.read.values import Fn, Klass, Thing, within

WINDOWS = (2, 3)


@dataclass
class Analysis:
    """All that was found in one file, and what it took."""

    tree: ast.Module
    findings: list[Finding] = field(default_factory=list)
    depends: list[str] = field(default_factory=list)
    cut: str | None = None
    """What was left out, and why."""


def analyse(source: Source) -> Analysis:
    """Everything in a file that breaks a rule, the merely possible included."""
    project = Project()
    module = project.add(source)
    if not module.speaks_torch:
        return Analysis(module.tree)
    program = Program(project, module)
    search = _Search(program, project, module)
    try:
        for flow, interpreter, repeated in search.roots():
            search.judge(flow, interpreter, repeated)
    except Cut:
        search.cut[f"there is too much to follow, from {search.root} on"] = None
    finally:
        program.forget()
    own = {module.path}
    depends = sorted(path for path in project.read if path not in own)
    return Analysis(module.tree, search.findings(), depends, ", ".join(search.cut) or None)


@dataclass
class _Search:
    program: Program
    project: Project
    module: Module
    outcomes: dict[tuple[Rule, Site], list[tuple[Outcome, int, Decisions]]] = field(
        default_factory=dict
    )
    cut: dict[str, None] = field(default_factory=dict)
    root: str = "the top level"
    """What is looked at now."""
    ends_seen: bool = True
    """Whether it can be seen there where windows end."""

    def roots(self) -> Iterator[tuple[Flow, Interpreter, bool]]:
        """Flows to explore: the top level, then every function that nothing before has inlined."""
        inlined: set[ast.AST] = set()
        interpreter = self.program.interpreter()
        functions = list(self.functions())
        own = any(map(self.module.methods_named, ("zero_grad", "step", "backward")))
        managed = own or not registry.MANAGING.isdisjoint(self.module.packages)
        if self.top_level_matters(interpreter) and (
            managed or not self.plain_file(functions, interpreter)
        ):
            flow = self.interpreted(interpreter, None)
            inlined |= interpreter.nesting.inlined
            yield flow, interpreter, False
        # A file that says nothing of gradients itself may still repeat what others say.
        speaks = self.module.facts[self.module.tree].mentions
        calls = self.module.facts[self.module.tree].calls
        called = {name.rpartition(".")[2] for name in calls}
        functions.sort(key=lambda fn: fn.name in called)
        for fn in functions:
            if fn.node in inlined or _is_optimizer_method(fn):
                continue
            if speaks and not interpreter.graph.touches_gradients_here(fn):
                continue
            interpreter = self.program.interpreter()
            if (
                not managed
                and interpreter.graph.touches_gradients_here(fn)
                and interpreter.obviously_right.is_right(fn)
            ):
                continue
            if not interpreter.graph.touches_gradients(fn) or not (
                interpreter.graph.may_step(fn) or self.feeds(self.module.facts[fn.node])
            ):
                continue
            flow = self.interpreted(interpreter, fn)
            inlined |= interpreter.nesting.inlined
            yield flow, interpreter, fn.name in registry.PER_BATCH
            for inner in interpreter.env.closures:
                if inner.node not in inlined and interpreter.graph.touches_gradients(inner):
                    flow = self.interpreted(interpreter, inner)
                    inlined |= interpreter.nesting.inlined
                    yield flow, interpreter, False

    def plain_file(self, functions: list[Fn], interpreter: Interpreter) -> bool:
        """Whether the top level does nothing itself, and calls what is plainly right."""
        if any(word.kind != "requires_grad" for word in self.module.facts[self.module.tree].words):
            return False
        if not all(
            interpreter.obviously_right.is_right(fn)
            for fn in functions
            if interpreter.graph.touches_gradients_here(fn)
        ):
            return False
        names_called = {
            text_of(call.func).split(".")[0]
            for node in self.module.tree.body
            if not isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef))
            for call in ast.walk(node)
            if isinstance(call, ast.Call)
        }
        imported = names_called & set(self.module.imports)
        ours = (interpreter.names.of_module(self.module, name) for name in imported)
        return not any(isinstance(value, (Fn, Klass)) for value in ours)

    def feeds(self, facts: Facts) -> bool:
        """Whether a function clears and back-propagates, though it never steps."""
        return {"zero_grad", "backward"} <= facts.called

    def top_level_matters(self, interpreter: Interpreter) -> bool:
        """Whether the top level can reach a step."""
        return interpreter.graph.may_step(None) or self.feeds(self.module.top)

    def interpreted(self, interpreter: Interpreter, fn: Fn | None) -> Flow:
        self.root = f"{fn.name}()" if fn is not None else "the top level"
        self.project.work.begin()
        try:
            return interpreter.function(fn) if fn is not None else interpreter.top_level()
        except Cut:
            if self.project.work.left < 0:
                raise
            self.cut[f"{self.root} is too large to be followed"] = None
            return Seq(())

    def functions(self) -> Iterator[Fn]:
        for node in self.module.functions.values():
            yield Fn(node, self.module, node.name)
        for klass in self.module.classes.values():
            owner = Klass(klass, self.module, klass.name)
            for method in klass.body:
                if isinstance(method, (ast.FunctionDef, ast.AsyncFunctionDef)):
                    static = any(
                        getattr(d, "id", "") == "staticmethod" for d in method.decorator_list
                    )
                    me = None if static else Thing("self", klass=owner)
                    yield Fn(method, self.module, method.name, me, None, owner)

    def judge(self, flow: Flow, interpreter: Interpreter, repeated: bool) -> None:
        """Explores a flow for each of its subjects."""
        lightning = repeated
        if repeated or _handed_counter(flow):
            flow = _repeat(flow)
            repeated = True
        # From where a function is handed its counter cannot be seen, but for Lightning's.
        self.ends_seen = lightning or not repeated
        stepped = projection.subjects(flow, interpreter.known.params)
        if not self.module.imports_torch:
            stepped = [s for s in stepped if not s.key.startswith(projection.BY_HAND)]
        # Each part is held against each subject, and whose it is asked of all of them.
        size = sum(1 for _ in walk(flow)) * max(1, len(stepped) // 4)
        for subject in stepped:
            others = [other for other in stepped if other.key != subject.key]
            for part in projection.parts(subject):
                self.project.work.read(size)
                self.explore(flow, part, others, interpreter, repeated)
        self.unstepped(flow, stepped, interpreter)

    def explore(
        self,
        flow: Flow,
        subject: Subject,
        others: list[Subject],
        interpreter: Interpreter,
        repeated: bool,
    ) -> None:
        view = View(
            subject,
            others,
            interpreter.known.roles,
            interpreter.idle_loss,
            interpreter.known.fresh,
        )
        seen, pace = pace_of(view.of(flow))
        if pace is not None:
            seen = excused(seen, flow, pace.symbols)
        if pace is not None and not repeated:
            steps = [
                e.event for e in walk(seen) if isinstance(e, Emit) and isinstance(e.event, Step)
            ]
            end = End(steps[0].site)
            seen = Seq((seen, Emit(end)))
        events = [part.event for part in walk(seen) if isinstance(part, Emit)]
        whole = [self.examine(seen, rules, pace) for rules in _groups(events)]
        if not all(whole):
            name = subject.key.removeprefix(projection.BY_HAND).rpartition("#")[2]
            self.cut[f"too many ways for {name} through {self.root}"] = None

    def examine(self, flow: Flow, rules: list[Rule], pace: Pace | None) -> bool:
        """Explores a flow for some rules; False where that had to be given up, and says nothing."""
        windows: list[Window | None] = [None]
        if pace is not None:
            windows = [
                Window(n, 2 * n + 1, pace.symbols | {WINDOW_LENGTH}, pace.sizes, pace.counters)
                for n in WINDOWS
            ]
        results = []
        work = self.project.work
        for window in windows:
            result = explore(flow, rules, window=window, budget=min(work.left, PATHS))
            work.left -= result.spent
            if work.left < 0:
                raise Cut
            if result.cut:
                return False
            results.append(result)
        for result in results:
            for outcome in result.outcomes:
                self.keep(outcome, result)
        return True

    def keep(self, outcome: Outcome, result: Result) -> None:
        """Remembers a violation with the fewest decisions that count against it."""
        violation = outcome.violation
        if outcome.rule.judges_ends and not self.ends_seen:
            return
        for decisions in outcome.decisions:
            counted = _counted(decisions, result, violation.site, violation.step)
            if weight(counted) <= max(outcome.rule.most_decisions, 1):
                key = (outcome.rule, violation.site)
                self.outcomes.setdefault(key, []).append((outcome, weight(counted), counted))

    def unstepped(self, flow: Flow, stepped: list[Subject], interpreter: Interpreter) -> None:
        """An optimizer that is built, cleared and given gradients, and never stepped."""
        known = {subject.key for subject in stepped}
        acts = [act for act in walk(flow) if isinstance(act, Act)]
        cleared = {key for act in acts if isinstance(act.event, Zero) for key in act.whose}
        unseen = {
            key
            for act in acts
            if isinstance(act.event, Unknown) and act.event.call
            for key in act.whose
        }
        read = any(attr == "grad" for f in self.module.facts.values() for _, attr in f.attributes)
        for key, site in interpreter.known.made.items() if not read else ():
            if key in known or key not in cleared or key in interpreter.known.handed:
                continue
            if any(key in act.whose and "step" in act.event.call for act in acts):
                continue
            made = {
                other: Subject(other, interpreter.known.params.get(other))
                for other in interpreter.known.made
            }
            subject = made.pop(key)
            others = [*stepped, *(one for one in made.values() if one.key not in known)]
            if any(within(key, one) for one in unseen) if others else unseen - {key}:
                continue
            view = View(
                subject,
                others,
                interpreter.known.roles,
                interpreter.idle_loss,
                interpreter.known.fresh,
            )
            first = next((act for act in acts if act.event.loop and view.is_its_own(act)), None)
            if first is None:
                continue
            end = End(site, idle_loss=first.event.site)
            for rules in _groups([end]):
                self.examine(Emit(end), rules, None)

    def findings(self) -> list[Finding]:
        """What was kept, worded, in order of the source."""
        told = {}
        for key, kept in self.outcomes.items():
            outcome, count, decisions = min(kept, key=lambda item: item[1])
            strict = outcome.rule.most_decisions == 0
            both = {
                frozenset(decisions)
                for other, _, decisions in kept
                if not strict or other.violation.message == outcome.violation.message
            }
            if count and _cancels(both):
                count, decisions = 0, frozenset()
            if count <= outcome.rule.most_decisions:
                told[key] = _finding(outcome, count, decisions)
        made = [
            finding for (rule, site), finding in told.items() if (rule.yields_to, site) not in told
        ]
        made.sort(key=lambda f: (f.site.path, f.site.line, f.site.column, f.code))
        return made


def _is_optimizer_method(fn: Fn) -> bool:
    """What an optimizer does inside is its own affair."""
    bases = fn.klass.node.bases if fn.klass is not None else []
    return any(vocabulary.role_of_call(text_of(base)) is Role.OPTIMIZER for base in bases)


def _groups(events: list[Event]) -> list[list[Rule]]:
    """Rules that these events may break; one goes with others that read most of what it reads."""
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


def _finding(outcome: Outcome, count: int, decisions: Decisions) -> Finding:
    return replace(
        finding_of(outcome.rule, outcome.violation),
        certain=count < 2,
        when=tuple(sorted({str(decision) for decision in decisions})),
    )


def _counted(decisions: Decisions, result: Result, site: Site, step: Site | None) -> Decisions:
    """The decisions that count: an invariant test around the reported line does not."""
    return frozenset(
        decision
        for decision in decisions
        if not {site, step} & result.enclosures.get(decision.unweighted, set())
    )


def _cancels(paths: set[Decisions]) -> bool:
    """Whether both arms of some test lead here."""
    singles = {next(iter(path)) for path in paths if len(path) == 1}
    return any(opposite(decision) in singles for decision in singles)


def _handed_counter(flow: Flow) -> bool:
    """A function without a loop whose step is guarded by a counter it is handed."""
    if any(isinstance(part, Loop) for part in walk(flow)):
        return False
    for part in walk(flow):
        if isinstance(part, Alt) and _steps_under(part):
            if any(isinstance(p, logic.Op) and p.op == "%" for p in logic.parts(part.test)):
                return True
    return False


def _repeat(flow: Flow) -> Flow:
    """A function that is called once per batch, as a loop that counts what guards its step."""
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
