"""The exploration of a flow to a fixpoint: every violation that some sequence of its events contains.

Every state carries the branch decisions it depends on. A violation that depends on none or one is
certain, on two possible, on more it is not reported. Exploration always ends: states are finite,
decisions are capped, and so is the number of configurations: by count, so that the same flow gives
the same result on every machine.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from functools import cached_property
from typing import NamedTuple

from zerograd.core.automaton import UNLIMITED, Automaton
from zerograd.core.events import Backward, Site, Step
from zerograd.core.lifecycle import START, State
from zerograd.core.records import dataclass, field
from zerograd.core.rule import Rule, Violation
from zerograd.explore import logic
from zerograd.explore.counters import first_and_later
from zerograd.explore.decisions import (
    FREE,
    MOST_DECISIONS,
    Configurations,
    Decision,
    Decisions,
    Numbering,
    Path,
    add,
    decide,
    join,
    merge,
    opposite,
    smallest,
    weight,
)
from zerograd.explore.enclosure import Enclosures, decides_only_whether
from zerograd.explore.executed import Executed, enters, holds
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
    has_step,
    walk,
)
from zerograd.explore.knowledge import Keys, Knowledge
from zerograd.explore.liveness import Liveness, read_by
from zerograd.explore.logic import (
    Const,
    Expr,
    Fact,
    Known,
    LastIteration,
    Value,
    Variable,
    WindowLength,
)
from zerograd.explore.reachability import is_clean

MOST_CONFIGURATIONS = 100_000
DEEPER = (MOST_DECISIONS, 2 * MOST_DECISIONS, 4 * MOST_DECISIONS)
"""How many decisions a path may take, as long as no path with fewer comes to all code."""
MOST_DEEPER = 4_000
"""How many configurations a search with more decisions may go through: where one helps, it has few."""
ROUNDS = 60


class OpenTest(NamedTuple):
    """What is left of a test under what is known."""

    rest: Expr
    learns: tuple[int, int]
    """The facts that follow if it is true, and if it is false."""
    decisions: tuple[Decision | None, Decision | None]
    """The decisions that take a path into the two arms; None where it needs none."""
    bits: tuple[Path, Path]
    """The same as they are numbered."""


class Terrain:
    """A flow, and what its explorations find out about its tests and assignments.

    Each group of rules explores it, and each window.
    """

    def __init__(self, flow: Flow) -> None:
        self.flow = flow
        self.knowledge = Knowledge()
        self.numbering = Numbering()
        self.answers: dict[tuple[int, bool], dict[int, bool | OpenTest]] = {}
        """By the identity of a branch, and whether guards are executed: how its test comes out."""
        self.given: dict[tuple[int, bool], dict[int, int]] = {}
        """By the identity of an assignment, likewise: what is known of the variable."""
        self._keys: dict[int, Keys] = {}

    @cached_property
    def live(self) -> Liveness:
        """What the rest of the flow reads, at each of its parts."""
        return Liveness(self.flow)

    @cached_property
    def enclosures(self) -> Enclosures:
        """What its tests enclose."""
        return Enclosures(self.flow)

    def read_by(self, part: Flow) -> int:
        """What a part of the flow reads itself."""
        keys = self._keys.get(id(part))
        if keys is None:
            keys = self._keys[id(part)] = read_by(part)
        return self.knowledge.of(keys)

    def answer(self, alt: Alt, known: int, executed: bool) -> bool | OpenTest:
        """How a test comes out under what is known, or what is left of it to decide."""
        values = self.knowledge.values(known)
        truth = logic.truth_of(alt.test, values)
        if truth is None and alt.counts and executed:
            truth = _guard(alt.test, values, alt.counts)
        if truth is not None:
            return truth
        rest = logic.residual(alt.test, values)
        text, scope, usual = logic.show(rest), logic.scope(rest), logic.healthy(rest)
        learns = [self.knowledge.bits(logic.facts(rest, outcome)) for outcome in (True, False)]
        # Leaving out the only clear by a switch is usually meant.
        decisions = [
            Decision(text, outcome, 2 if alt.optional and not outcome else 1, scope)
            if not is_free and usual is not outcome
            else None
            for outcome, is_free in zip((True, False), alt.free, strict=True)
        ]
        bits = [self.numbering.bits([one] if one is not None else ()) for one in decisions]
        return OpenTest(
            rest, (learns[0], learns[1]), (decisions[0], decisions[1]), (bits[0], bits[1])
        )

    def value(self, flow: Set, known: int, executed: bool) -> int:
        """What is known of a variable once it has its value."""
        if flow.value is None:
            return 0
        value = logic.evaluate(flow.value, self.knowledge.values(known))
        # Without executed guards, of numbers only literals are followed: computed ones would never end.
        computed = not executed and not isinstance(flow.value, Const)
        followed = isinstance(value, str if computed else (int, float, str))
        if value is None or isinstance(value, bool) or followed:
            return self.knowledge.bit(flow.variable, value)  # type: ignore[arg-type]
        return 0


def _guard(test: Expr, values: dict[Variable | Fact, Value], loop: int) -> bool | None:
    """The truth of an accumulation guard of this loop, as far as it can be executed."""
    if values.get(LastIteration(loop)) and logic.is_open(test, values):
        return True  # its unknown operand probably asks for the last iteration
    return logic.leaning(test, values)


@dataclass(frozen=True)
class WindowTrial:
    """The numbers with which guards are executed: micro-batches per window, and micro-batches in all."""

    length: int
    batches: int
    symbols: frozenset[Variable] = frozenset()
    """What the code calls the length."""
    sizes: frozenset[Fact] = frozenset()
    """What the code calls the number of batches: `len(loader)`."""
    counters: frozenset[Variable] = frozenset()
    """What begins at 0."""
    ends_seen: bool = True
    """Whether the code shows where windows begin and end."""
    several: bool = False
    """One iteration may run several backwards: the number of backwards is not that of micro-batches."""

    def constants(self) -> Known:
        """What no assignment changes."""
        lengths: Known = frozenset((symbol, self.length) for symbol in self.symbols)
        return lengths.union((size, self.batches) for size in self.sizes)

    def known(self) -> Known:
        """What holds from the start."""
        return self.constants().union((counter, 0) for counter in self.counters)


@dataclass(frozen=True)
class Outcome:
    """A violation and the smallest sets of decisions that lead to it.

    A decision that is only about whether the wrong code runs at all is not among them.
    """

    rule: Rule
    violation: Violation
    decisions: tuple[Decisions, ...]


@dataclass
class Result:
    """What exploring a flow gave."""

    outcomes: list[Outcome]
    cut: bool
    spent: int
    """How many configurations were gone through."""
    unreached: bool = False
    """Some code is reached only by paths with too many decisions, which are not followed."""
    missed: frozenset[Site] = frozenset()
    """The backwards and steps that no path has come to."""


@dataclass
class _Exploration:
    automaton: Automaton
    executed: Executed | None
    """Where guards are executed: the events as they are then."""
    terrain: Terrain
    window: WindowTrial | None
    constants: int
    budget: int
    """How many configurations may still be gone through."""
    most: int = MOST_DECISIONS
    """The greatest weight of a path that is followed."""
    found: dict[tuple[Rule, Violation], set[Path]] = field(default_factory=dict)
    jumps: dict[Label, Configurations] = field(default_factory=dict)
    watchers: list[Configurations] = field(default_factory=list)
    asked: dict[Decision, dict[int, tuple[Alt, bool]]] = field(default_factory=dict)
    """By decision: the branches at which it was taken, by their identity, and whether their test is invariant."""
    noted: set[int] = field(default_factory=set)
    """The identities of the open tests whose decisions are among them."""
    outer: Path = FREE
    """The decisions outside of all loops on whether a loop runs at all."""
    counts: dict[int, tuple[int, int]] = field(default_factory=dict)
    """By loop: what is known of its counter in the first iteration, and in all others."""
    given_up: list[Flow] = field(default_factory=list)
    """Arms that some path would have entered with too many decisions."""
    reached: set[int] = field(default_factory=set)
    """The identities of the events that some path has come to."""

    @property
    def knowledge(self) -> Knowledge:
        """What paths know."""
        return self.terrain.knowledge

    @property
    def cut(self) -> bool:
        """Whether there were too many."""
        return self.budget < 0

    def run(self, flow: Flow, entry: Configurations) -> Configurations:
        if not entry or self.cut:
            return {}
        if isinstance(flow, Seq):
            for item in flow.items:
                entry = self.run(item, entry)
                if not entry:
                    break
            return entry
        self.budget -= len(entry)
        if isinstance(flow, Emit):
            return self.emit(flow, entry)
        if isinstance(flow, Set):
            return self.assign(flow, entry)
        if isinstance(flow, Jump):
            merge(self.jumps.setdefault(flow.label, {}), entry)
            for watcher in self.watchers if flow.label == RAISE else ():
                merge(watcher, entry)
            return {}
        entry = self.forget(entry, self.terrain.live.before[id(flow)])
        if isinstance(flow, Alt):
            return self.branch(flow, entry)
        if isinstance(flow, Loop):
            return self.repeat(flow, entry)
        if isinstance(flow, Block):
            out = self.run(flow.body, entry)
            merge(out, self.jumps.pop(flow.label, {}))
            return out
        return self.attempt(flow, entry)

    def forget(self, entry: Configurations, keys: Keys) -> Configurations:
        """The configurations without what is not live; they become fewer."""
        if len(entry) < 2:
            return entry
        out: Configurations = {}
        kept, constants = self.knowledge.of(keys), self.constants
        for (state, known), paths in entry.items():
            add(out, (state, known & kept | constants), paths)
        return out

    def emit(self, flow: Emit, entry: Configurations) -> Configurations:
        out: Configurations = {}
        event, executed, take = flow.event, self.executed, self.automaton.take
        self.reached.add(id(flow))
        read, variants = self.terrain.read_by(flow), {}
        for (node, known), paths in entry.items():
            if executed is not None:
                seen = known & read
                if seen not in variants:
                    variants[seen] = executed.event(flow, self.knowledge.values(seen))
                event = variants[seen]
            edge = take(node, event)
            for rule_and_violation in edge.broken:
                self.found.setdefault(rule_and_violation, set()).update(paths)
            add(out, (edge.node, known), paths)
        for watcher in self.watchers:
            merge(watcher, out)
        return out

    def assign(self, flow: Set, entry: Configurations) -> Configurations:
        if self.window and flow.variable in self.window.symbols:
            return entry
        out: Configurations = {}
        executed = self.window is not None
        given = self.terrain.given.setdefault((id(flow), executed), {})
        read, gone = self.terrain.read_by(flow), self.knowledge.about([flow.variable])
        for (state, known), paths in entry.items():
            seen = known & read
            if (value := given.get(seen)) is None:
                value = given[seen] = self.terrain.value(flow, seen, executed)
            add(out, (state, known & ~gone | self.constants | value), paths)
        return out

    def branch(self, alt: Alt, entry: Configurations) -> Configurations:
        arms: tuple[Configurations, Configurations] = ({}, {})
        learned = [0, 0]
        executed = self.window is not None
        answers = self.terrain.answers.setdefault((id(alt), executed), {})
        read = self.terrain.read_by(alt)
        for (state, known), paths in entry.items():
            seen = known & read
            if (answer := answers.get(seen)) is None:
                answer = answers[seen] = self.terrain.answer(alt, seen, executed)
            if isinstance(answer, bool):
                add(arms[not answer], (state, known), paths)
                continue
            if id(answer) not in self.noted:
                self.note(alt, answer)
            for index, arm in enumerate(arms):
                facts, decision = answer.learns[index], answer.bits[index]
                learned[index] |= facts
                decided = decide(paths, decision, self.outer, self.most) if decision else paths
                if decided:
                    add(arm, (state, known | facts), decided)
                else:
                    self.given_up.append(alt.then if index == 0 else alt.orelse)
        then, orelse = self.run(alt.then, arms[0]), self.run(alt.orelse, arms[1])
        return join(then, learned[0], orelse, learned[1])

    def note(self, alt: Alt, test: OpenTest) -> None:
        """Remembers where decisions are taken."""
        self.noted.add(id(test))
        invariant = logic.stable(test.rest) and not logic.reads(test.rest) & alt.changing
        for decision in filter(None, test.decisions):
            self.asked.setdefault(decision.unweighted, {}).setdefault(id(alt), (alt, invariant))
            if self.terrain.enclosures.decides_about_loops(alt, decision.outcome):
                self.outer |= self.terrain.numbering.bits([decision.unweighted])

    def outcomes(self) -> list[Outcome]:
        """The violations, each with the decisions that count against it."""
        return [
            Outcome(rule, violation, tuple(smallest(self.counted(violation, paths))))
            for (rule, violation), paths in self.found.items()
        ]

    @property
    def leaves_out(self) -> bool:
        """Whether no path has come to some event, because all that lead there have too many decisions."""
        arms = {id(arm): arm for arm in self.given_up}.values()
        return any(
            isinstance(part, Emit) and id(part) not in self.reached
            for arm in arms
            for part in walk(arm)
        )

    def counted(self, violation: Violation, found: set[Path]) -> set[Decisions]:
        """The paths without decisions that are only about whether the wrong code runs at all."""
        paths = set(map(self.terrain.numbering.decisions, found))
        reported = frozenset(site for site in (violation.site, violation.step) if site is not None)
        cited = reported.union(note.site for note in violation.notes)
        around = self.terrain.enclosures.around
        idle = {
            decision
            for decision in frozenset[Decision]().union(*paths)
            for alt, invariant in self.asked.get(decision.unweighted, {}).values()
            if decides_only_whether(
                tuple(around(alt, decision.outcome)), invariant, reported, cited
            )
        }
        return {self.weighed(path, idle) for path in paths}

    def weighed(self, path: Decisions, idle: set[Decision]) -> Decisions:
        """The decisions of a path that count. A guard that was first false and then true is one decision."""
        twice = {d for d in path if opposite(d.unweighted) in path}
        odds = {d for d in twice if self.is_setting(d.unweighted)}
        turns = {d for d in twice - odds if not d.outcome and self.is_guard(d.unweighted)}
        if self.most > MOST_DECISIONS:
            odds |= {d for d in path for other in path if d != other and self.is_related(d, other)}
        return self.without_repetitions(path - turns - (idle - odds) - self.implied(path))

    def implied(self, path: Decisions) -> set[Decision]:
        """What was ruled out before: of a mode that equals one value, that it does not equal another."""
        given = [alt.test for d in path if d.outcome for alt in self.tests(d)]
        known = dict(fact for test in given for fact in logic.facts(test, truth=True))
        return {
            d
            for d in (path if known else ())
            if not d.outcome and self.tests(d)
            if all(logic.truth_of(alt.test, known) is False for alt in self.tests(d))
        }

    def tests(self, decision: Decision) -> list[Alt]:
        """Where a decision is taken; nothing if what it tests may change."""
        asked = self.asked.get(decision.unweighted, {}).values()
        return [alt for alt, _ in asked] if all(kept for _, kept in asked) else []

    def is_related(self, one: Decision, other: Decision) -> bool:
        """Whether two tests read the same variable: one outcome may exclude the other."""
        first, second = (
            frozenset[Variable]().union(
                *(
                    logic.reads(alt.test)
                    for alt, _ in self.asked.get(decision.unweighted, {}).values()
                )
            )
            for decision in (one, other)
        )
        return not first.isdisjoint(second)

    def without_repetitions(self, path: Decisions) -> Decisions:
        """The path, with one decision for a test that has the same outcome several times.

        The decisions may have different texts: of `if train and step > warmup:`, only `step > warmup` may be unknown
        the second time.
        """
        if len(path) < 2 or self.window is not None:
            return path  # where batches are executed, what is left of a test differs in each
        taken: set[tuple[int, bool]] = set()
        kept = set()
        for decision in sorted(path, key=lambda one: (-one.weight, str(one))):
            at = {(alt, decision.outcome) for alt in self.asked.get(decision.unweighted, ())}
            if not at or taken.isdisjoint(at):
                kept.add(decision)
            taken |= at
        return frozenset(kept)

    def is_setting(self, decision: Decision) -> bool:
        """Whether a test that does not change, or is asked in several functions, cannot have both outcomes."""
        asked = [(logic.reads(alt.test), kept) for alt, kept in self.asked[decision].values()]
        return any(kept for _, kept in asked) or len({read for read, _ in asked}) > 1

    def is_guard(self, decision: Decision) -> bool:
        """Whether a test changes, decides about a step, and does not go by what was computed."""
        if logic.COMPUTED.search(decision.test):
            return False
        return all(
            not invariant and has_step(alt.then) is not has_step(alt.orelse)
            for alt, invariant in self.asked.get(decision, {}).values()
        )

    def repeat(self, loop: Loop, entry: Configurations) -> Configurations:
        out = self.execute(loop, entry) if self.window else self.saturate(loop, entry)
        if loop.orelse is not None:
            out = self.run(loop.orelse, out)
        merge(out, self.jumps.pop(Break(loop.ident), {}))
        return out

    def once(self, loop: Loop, entry: Configurations) -> Configurations:
        out = self.run(loop.body, entry)
        merge(out, self.jumps.pop(Continue(loop.ident), {}))
        return self.forget(out, self.terrain.live.again[id(loop)])

    def saturate(self, loop: Loop, entry: Configurations) -> Configurations:
        seen: Configurations = {}
        out: Configurations = {}
        if loop.ident not in self.counts:
            first, later = map(self.knowledge.bits, first_and_later(loop))
            self.counts[loop.ident] = first, later
        count, later = self.counts[loop.ident]
        last = logic.fact_of(LastIteration(loop.ident))
        is_last, is_not = self.knowledge.bit(last, True), self.knowledge.bit(last, False)
        for _ in range(ROUNDS):
            fresh: Configurations = {}
            for (state, known), paths in entry.items():
                if known & is_last:
                    continue
                key = (state, known & ~self.knowledge.about(loop.targets) | count)
                new = add(seen, key, paths)
                if new:
                    add(fresh, key, new)
            if not fresh:
                break
            entry, count = self.once(loop, fresh), later
            merge(out, {key: paths for key, paths in entry.items() if not key[1] & is_not})
            if self.cut:
                break
        else:
            self.budget = -1
        return {} if loop.forever else out

    def execute(self, loop: Loop, entry: Configurations) -> Configurations:
        window = self.window
        assert window is not None
        if loop.paced is not None:
            entry = self.emit(enters(loop), entry)
        out: Configurations = {}
        for trips, first, group in self.trips(loop, entry):
            for index in range(trips):
                group = self.iterated(loop, group, first + index, last=index == trips - 1)
                if loop.test is not None:
                    group, done = self.split(loop.test, group, index)
                    merge(out, done)
                group = self.once(loop, group)
                if loop.paced is not None:
                    group = self.emit(holds(loop), group)
            merge(out, group)
        return {} if loop.forever else out

    def iterated(
        self, loop: Loop, entry: Configurations, count: int, *, last: bool
    ) -> Configurations:
        """The configurations in an iteration of a loop."""
        is_last = LastIteration(loop.ident)
        gone = self.knowledge.about((*loop.targets, is_last))
        values = self.knowledge.bit(is_last, last)
        if loop.counter is not None:
            values |= self.knowledge.bit(loop.counter, count)
        out: Configurations = {}
        for (state, known), paths in entry.items():
            add(out, (state, known & ~gone | values), paths)
        return out

    def trips(self, loop: Loop, entry: Configurations) -> Iterator[tuple[int, int, Configurations]]:
        """Groups of configurations by how often the loop runs and from where it counts."""
        assert self.window is not None
        groups: dict[tuple[int, int], Configurations] = {}
        read = self.terrain.read_by(loop)
        for key, paths in entry.items():
            values = self.knowledge.values(key[1] & read)
            trips = logic.evaluate(loop.trips, values) if loop.trips else logic.UNKNOWN
            first = logic.evaluate(loop.first, values)
            literal = loop.counted and isinstance(loop.trips, Const)
            if not isinstance(trips, int) or literal or not 0 < trips <= 3 * self.window.batches:
                trips = self.usual(loop, trips)
            number = first if isinstance(first, int) else 0
            add(groups.setdefault((trips, number), {}), key, paths)
        for (trips, number), group in groups.items():
            yield trips, number, group

    def usual(self, loop: Loop, trips: object) -> int:
        """How often a loop of unknown length is run; a literal multiple of N leaves no remainder."""
        assert self.window is not None
        if not loop.counted:
            return 2
        lengths = [s.literal for s in self.window.symbols if isinstance(s, WindowLength)]
        literals = [length for length in lengths if length is not None]
        if isinstance(trips, int) and literals and all(trips % n == 0 for n in literals):
            return 2 * self.window.length
        return self.window.batches

    def split(
        self, test: Expr, entry: Configurations, index: int
    ) -> tuple[Configurations, Configurations]:
        """The configurations that go on, and those whose `while` test has become false."""
        on: Configurations = {}
        done: Configurations = {}
        for key, paths in entry.items():
            values = self.knowledge.values(key[1]) if index > 0 else {}
            stop = index > 0 and logic.truth_of(test, values) is False
            add(done if stop else on, key, paths)
        return on, done

    def attempt(self, flow: Try, entry: Configurations) -> Configurations:
        seen: Configurations = {}
        merge(seen, entry)
        waiting, self.jumps = self.jumps, {}
        if flow.handlers:
            self.watchers.append(seen)
            out = self.run(flow.body, entry)
            self.watchers.pop()
        else:
            out = self.run(flow.body, entry)
        out = self.run(flow.orelse, out)
        # An exception between two calls is rarer than either arm of a branch.
        thrown = self.terrain.numbering.bits(
            [Decision(f"an exception in line {flow.site.line}", True, weight=2)]
        )
        failed: Configurations = {}
        for key, paths in seen.items():
            decided = decide(paths, thrown, most=self.most)
            if decided:
                add(failed, key, decided)
        for handler in flow.handlers:
            merge(out, self.run(handler, dict(failed)))
        # Only those who leave from inside pass through the final part.
        leaving, self.jumps = self.jumps, waiting
        for label, group in leaving.items():
            merge(self.jumps.setdefault(label, {}), self.run(flow.final, group))
        return self.run(flow.final, out)


def explore(
    flow: Flow | Terrain,
    rules: Iterable[Rule],
    *,
    start: State = START,
    window: WindowTrial | None = None,
    budget: int = MOST_CONFIGURATIONS,
) -> Result:
    """All violations in all sequences of the flow; none where there are too many ways through it."""
    rules = tuple(rules)
    terrain = flow if isinstance(flow, Terrain) else Terrain(flow)
    flow = terrain.flow
    executed = Executed(window.length) if window else None
    with _automaton(rules) as automaton:
        first = automaton.node(start)
        if is_clean(flow, automaton, first, executed):
            return Result([], False, 0)
        constants = terrain.knowledge.bits(window.constants() if window else ())
        known = terrain.knowledge.bits(window.known() if window else ())
        search, spent = None, 0
        for most in DEEPER:
            left = budget if search is None else min(budget - spent, MOST_DEEPER)
            deeper = _Exploration(automaton, executed, terrain, window, constants, left, most)
            deeper.run(flow, {(first, known): {FREE}})
            spent += left - deeper.budget
            if search is not None and deeper.cut:
                break
            search = deeper
            if search.cut or not search.leaves_out:
                break
    assert search is not None
    outcomes = [] if search.cut else search.outcomes()
    missed = frozenset(
        part.event.site
        for part in walk(flow)
        if isinstance(part, Emit) and isinstance(part.event, (Backward, Step))
        if id(part) not in search.reached
    )
    # A finding that needs too many decisions to be reported counts as code that was not reached.
    hidden = search.most > MOST_DECISIONS and any(
        all(weight(path) > one.rule.most_decisions for path in one.decisions) for one in outcomes
    )
    return Result(outcomes, search.cut, spent, search.leaves_out or hidden, missed)


def never_breaks(flow: Flow, rules: Iterable[Rule], windows: Iterable[WindowTrial]) -> bool:
    """Whether no sequence of the flow breaks a rule, however each test comes out."""
    for window in windows or (None,):
        executed = Executed(window.length) if window else None
        with _automaton(rules) as automaton:
            if not is_clean(flow, automaton, automaton.node(START), executed):
                return False
    return True


@contextmanager
def _automaton(rules: Iterable[Rule]) -> Iterator[Automaton]:
    """The state machine of some rules, as far as they read it."""
    reads = frozenset[str]().union(*(rule.reads for rule in rules))
    automaton = Automaton(rules, reads=reads, most_edges=UNLIMITED)
    try:
        yield automaton
    finally:
        automaton.forget()
