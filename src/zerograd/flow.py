"""Training code as a regular expression over events, and its exploration to a fixpoint.

Every state carries the branch decisions it depends on. A violation that depends on none or one is
certain, on two possible, on more it is not reported. Exploration always ends: states are finite,
decisions are capped, and a deadline cuts what is left.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache

from zerograd import guard
from zerograd.events import Event, Kind, Site
from zerograd.guard import Const, Expr, Fact, Known, Value
from zerograd.lifecycle import START, State, advance
from zerograd.rule import Rule, Violation

MOST_DECISIONS = 3
MOST_CONFIGURATIONS = 3000
ROUNDS = 60


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
    counts: bool = False
    """An accumulation guard: what cannot be said of it is left aside, the count decides."""
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
    over: str = ""
    """The text of what is iterated, so that its `len()` is known."""


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


def children(flow: Flow) -> Iterator[Flow]:
    """The parts of a flow."""
    if isinstance(flow, Seq):
        yield from flow.items
    elif isinstance(flow, Alt):
        yield flow.then
        yield flow.orelse
    elif isinstance(flow, Loop):
        yield flow.body
        if flow.orelse is not None:
            yield flow.orelse
    elif isinstance(flow, Block):
        yield flow.body
    elif isinstance(flow, Try):
        yield flow.body
        yield from flow.handlers
        yield flow.orelse
        yield flow.final


def walk(flow: Flow) -> Iterator[Flow]:
    """The flow and all its parts, in no order."""
    todo = [flow]
    while todo:
        part = todo.pop()
        yield part
        todo.extend(children(part))


Decision = tuple[str, bool]
Decisions = frozenset[Decision]
Configuration = tuple[int, Known]
"""A state, by its number in the exploration, and what is known."""
Configurations = dict[Configuration, set[Decisions]]


Aspects = tuple[str, bool | None, tuple[list[tuple[Fact, bool]], list[tuple[Fact, bool]]]]


def _aspects(test: Expr) -> Aspects:
    learns = (guard.facts(test, True), guard.facts(test, False))
    return guard.show(test), guard.healthy(test), learns


@dataclass(frozen=True)
class Window:
    """The numbers with which guards are executed: N micro-batches a window, so many in all."""

    length: int
    batches: int
    symbols: frozenset[str] = frozenset()
    sizes: frozenset[Fact] = frozenset()
    counters: frozenset[str] = frozenset()

    def constants(self) -> Known:
        """What no assignment changes."""
        names: list[tuple[str | Fact, Value]] = [(name, self.length) for name in self.symbols]
        return frozenset(names + [(fact, self.batches) for fact in self.sizes])

    def known(self) -> Known:
        """What holds from the start."""
        return self.constants().union((name, 0) for name in self.counters)


@dataclass(frozen=True)
class Outcome:
    """A violation and the smallest sets of decisions that lead to it."""

    rule: Rule
    violation: Violation
    decisions: tuple[Decisions, ...]


@dataclass
class Result:
    """What exploring a flow gave."""

    outcomes: list[Outcome]
    enclosures: dict[Decision, set[Site]]
    """Calls inside an arm of an invariant test, for which that test is no decision."""
    cut: bool


@dataclass
class _Exploration:
    """States and events are numbered, so that an edge that was taken before costs one look-up."""

    rules: Sequence[Rule]
    keep: frozenset[str]
    window: Window | None
    deadline: float
    found: dict[tuple[Rule, Violation], set[Decisions]] = field(default_factory=dict)
    jumps: dict[str, Configurations] = field(default_factory=dict)
    watchers: list[Configurations] = field(default_factory=list)
    states: list[State] = field(default_factory=list)
    numbers: dict[State, int] = field(default_factory=dict)
    events: dict[tuple[int, int, int | None, bool], Event] = field(default_factory=dict)
    moves: dict[tuple[int, int], tuple[int, tuple[tuple[Rule, Violation], ...]]] = field(
        default_factory=dict
    )
    enclosures: dict[Decision, set[Site]] = field(default_factory=dict)
    enclosed: set[tuple[int, Decision]] = field(default_factory=set)
    tests: dict[int, Aspects] = field(default_factory=dict)
    cut: bool = False

    def number(self, state: State) -> int:
        """The number of a state, of which only what the rules read is kept."""
        state = _project(state, self.keep)
        number = self.numbers.setdefault(state, len(self.states))
        if number == len(self.states):
            self.states.append(state)
        return number

    def run(self, flow: Flow, entry: Configurations) -> Configurations:
        if not entry or self.cut:
            return {}
        if len(entry) > MOST_CONFIGURATIONS or time.monotonic() > self.deadline:
            self.cut = True
            return {}
        if isinstance(flow, Seq):
            for item in flow.items:
                entry = self.run(item, entry)
                if not entry:
                    break
            return entry
        if isinstance(flow, Emit):
            return self.emit(flow, entry)
        if isinstance(flow, Set):
            return self.assign(flow, entry)
        if isinstance(flow, Alt):
            return self.branch(flow, entry)
        if isinstance(flow, Loop):
            return self.repeat(flow, entry)
        if isinstance(flow, Jump):
            _merge(self.jumps.setdefault(flow.label, {}), entry)
            for watcher in self.watchers if flow.label == "raise" else ():
                _merge(watcher, entry)
            return {}
        if isinstance(flow, Block):
            out = self.run(flow.body, entry)
            _merge(out, self.jumps.pop(flow.label, {}))
            return out
        return self.attempt(flow, entry)

    def emit(self, flow: Emit, entry: Configurations) -> Configurations:
        out: Configurations = {}
        event = flow.event
        for (number, known), paths in entry.items():
            if self.window:
                event = self.concrete(flow, known)
            after, verdicts = self.moves.get((number, id(event))) or self.move(number, event)
            for verdict in verdicts:
                self.found.setdefault(verdict, set()).update(paths)
            _add(out, (after, known), paths)
        for watcher in self.watchers:
            _merge(watcher, out)
        return out

    def move(self, number: int, event: Event) -> tuple[int, tuple[tuple[Rule, Violation], ...]]:
        state = self.states[number]
        verdicts = tuple(
            (rule, violation)
            for rule in self.rules
            if (violation := rule.check(state, event)) is not None
        )
        # The event is kept, so that its id stays its own.
        self.events[(id(event), -1, None, False)] = event
        result = (self.number(advance(state, event)), verdicts)
        self.moves[(number, id(event))] = result
        return result

    def concrete(self, flow: Emit, known: Known) -> Event:
        window, event = self.window, flow.event
        assert window is not None
        values = dict(known)
        divisor = event.divisor
        if flow.divisor is not None:
            value = guard.evaluate(flow.divisor, values)
            number = isinstance(value, (int, float)) and not isinstance(value, bool)
            divisor = max(int(value), 1) if number else 0  # type: ignore[arg-type]
        last = bool(values.get(f"@last:{event.loop}", False))
        key = (id(event), window.length, divisor, last)
        if key not in self.events:
            made = replace(event, length=window.length, divisor=divisor, last=last)
            self.events[key] = made
            self.events[(id(event), -1, None, False)] = event
        return self.events[key]

    def assign(self, flow: Set, entry: Configurations) -> Configurations:
        if self.window and flow.name in self.window.symbols:
            return entry
        out: Configurations = {}
        for (state, known), paths in entry.items():
            value = guard.evaluate(flow.value, dict(known)) if flow.value else guard.UNKNOWN
            after = guard.assigned(known, flow.name)
            if self.window:
                after = after | self.window.constants()
            # Without executed guards only flags are followed: numbers would never end.
            followed = isinstance(value, (int, float, str) if self.window else str)
            if value is None or isinstance(value, bool) or followed:
                after = after | {(flow.name, value)}  # type: ignore[arg-type]
            _add(out, (state, after), paths)
        return out

    def branch(self, alt: Alt, entry: Configurations) -> Configurations:
        arms: tuple[Configurations, Configurations] = ({}, {})
        learned: tuple[set[tuple[Fact, bool]], set[tuple[Fact, bool]]] = (set(), set())
        for (state, known), paths in entry.items():
            values = dict(known)
            truth = guard.truth_of(alt.test, values)
            if truth is None and alt.counts and self.window:
                truth = guard.leaning(alt.test, values)
            if truth is not None:
                _add(arms[not truth], (state, known), paths)
                continue
            rest = guard.residual(alt.test, values)
            text, usual, learns = self.aspects(alt, rest)
            for index, arm in enumerate(arms):
                facts = learns[index]
                learned[index].update(facts)
                decided: Iterable[Decisions] = paths
                if not alt.free[index] and usual is not (index == 0):
                    decided = _decide(paths, (text, index == 0))
                    if alt.optional and index == 1:
                        decided = _decide(decided, (f"{text}, as asked for", False))
                    self.enclose(alt, rest, (text, index == 0))
                if decided:
                    _add(arm, (state, known.union(facts)), decided)
        then, orelse = self.run(alt.then, arms[0]), self.run(alt.orelse, arms[1])
        return _join(then, frozenset(learned[0]), orelse, frozenset(learned[1]))

    def aspects(self, alt: Alt, rest: Expr) -> Aspects:
        """A test's text, its outcome in a healthy run, and what either outcome tells."""
        if rest is not alt.test:
            return _aspects(rest)
        if id(alt) not in self.tests:
            self.tests[id(alt)] = _aspects(rest)
        return self.tests[id(alt)]

    def enclose(self, alt: Alt, test: Expr, decision: Decision) -> None:
        """Remembers for which calls an invariant test is no decision."""
        if (id(alt), decision) in self.enclosed:
            return
        self.enclosed.add((id(alt), decision))
        if guard.stable(test) and not guard.reads(test) & alt.changing:
            arm = alt.then if decision[1] else alt.orelse
            inside = self.enclosures.setdefault(decision, set())
            inside.update(part.event.site for part in walk(arm) if isinstance(part, Emit))

    def repeat(self, loop: Loop, entry: Configurations) -> Configurations:
        outer = {
            label: self.jumps.pop(label, None)
            for label in (f"break:{loop.ident}", f"continue:{loop.ident}")
        }
        out = self.execute(loop, entry) if self.window else self.saturate(loop, entry)
        if loop.orelse is not None:
            out = self.run(loop.orelse, out)
        _merge(out, self.jumps.pop(f"break:{loop.ident}", {}))
        for label, kept in outer.items():
            if kept is not None:
                self.jumps[label] = kept
        return out

    def once(self, loop: Loop, entry: Configurations) -> Configurations:
        out = self.run(loop.body, entry)
        _merge(out, self.jumps.pop(f"continue:{loop.ident}", {}))
        return out

    def saturate(self, loop: Loop, entry: Configurations) -> Configurations:
        seen: Configurations = {}
        out: Configurations = {}
        for _ in range(ROUNDS):
            fresh: Configurations = {}
            for (state, known), paths in entry.items():
                for name in loop.targets:
                    known = guard.assigned(known, name)
                key = (state, known)
                new = _add(seen, key, paths)
                if new:
                    _add(fresh, key, new)
            if not fresh:
                break
            entry = self.once(loop, fresh)
            _merge(out, entry)
            if self.cut:
                break
        return {} if loop.forever else out

    def execute(self, loop: Loop, entry: Configurations) -> Configurations:
        window = self.window
        assert window is not None
        if loop.paced is not None:
            entry = self.emit(_ends(loop, Kind.ENTER), entry)
        out: Configurations = {}
        for trips, first, group in self.trips(loop, entry):
            for index in range(trips):
                group = _know(
                    group,
                    loop.targets,
                    [(loop.counter, first + index)] if loop.counter else [],
                    (f"@last:{loop.ident}", index == trips - 1),
                )
                if loop.test is not None:
                    group, done = self.split(loop.test, group, index)
                    _merge(out, done)
                group = self.once(loop, group)
                if loop.paced is not None:
                    group = self.emit(_ends(loop, Kind.HOLD), group)
            _merge(out, group)
        return {} if loop.forever else out

    def trips(self, loop: Loop, entry: Configurations) -> Iterator[tuple[int, int, Configurations]]:
        """Groups of configurations by how often the loop runs and from where it counts."""
        assert self.window is not None
        groups: dict[tuple[int, int], Configurations] = {}
        for key, paths in entry.items():
            values = dict(key[1])
            trips = guard.evaluate(loop.trips, values) if loop.trips else guard.UNKNOWN
            first = guard.evaluate(loop.first, values)
            literal = loop.counted and isinstance(loop.trips, Const)
            if not isinstance(trips, int) or literal or not 0 < trips <= 3 * self.window.batches:
                trips = self.usual(loop, trips)
            number = first if isinstance(first, int) else 0
            _add(groups.setdefault((trips, number), {}), key, paths)
        for (trips, number), group in groups.items():
            yield trips, number, group

    def usual(self, loop: Loop, trips: object) -> int:
        """How often a loop of unknown length is run; a literal multiple of N leaves no remainder."""
        assert self.window is not None
        if not loop.counted:
            return 2
        literals = [int(name[1:]) for name in self.window.symbols if name[1:].isdigit()]
        if isinstance(trips, int) and literals and all(trips % n == 0 for n in literals):
            return 2 * self.window.length
        return self.window.batches

    def split(
        self, test: Expr, entry: Configurations, index: int
    ) -> tuple[Configurations, Configurations]:
        """Those that go on and those whose `while` test has become false."""
        on: Configurations = {}
        done: Configurations = {}
        for key, paths in entry.items():
            stop = index > 0 and guard.truth_of(test, dict(key[1])) is False
            _add(done if stop else on, key, paths)
        return on, done

    def attempt(self, flow: Try, entry: Configurations) -> Configurations:
        seen: Configurations = {}
        _merge(seen, entry)
        waiting, self.jumps = self.jumps, {}
        if flow.handlers:
            self.watchers.append(seen)
            out = self.run(flow.body, entry)
            self.watchers.pop()
        else:
            out = self.run(flow.body, entry)
        out = self.run(flow.orelse, out)
        # An exception between two calls is rarer than either arm of a branch: it counts twice.
        where = f"an exception in line {flow.site.line}"
        failed: Configurations = {}
        for key, paths in seen.items():
            decided = _decide(_decide(paths, (where, True)), (f"{where} that is caught", True))
            if decided:
                _add(failed, key, decided)
        for handler in flow.handlers:
            _merge(out, self.run(handler, dict(failed)))
        # Only those who leave from inside pass through the final part.
        leaving, self.jumps = self.jumps, waiting
        for label, group in leaving.items():
            _merge(self.jumps.setdefault(label, {}), self.run(flow.final, group))
        return self.run(flow.final, out)


def explore(
    flow: Flow,
    rules: Iterable[Rule],
    *,
    start: State = START,
    window: Window | None = None,
    deadline: float = float("inf"),
) -> Result:
    """All violations in all words of the flow."""
    rules = list(rules)
    keep = frozenset().union(*(rule.reads for rule in rules))
    search = _Exploration(rules, keep, window, deadline)
    known = window.known() if window else guard.NOTHING
    search.run(flow, {(search.number(start), known): {frozenset()}})
    outcomes = [
        Outcome(rule, violation, tuple(_smallest(paths)))
        for (rule, violation), paths in search.found.items()
    ]
    return Result(outcomes, search.enclosures, search.cut)


@lru_cache(maxsize=256)
def _ends(loop: Loop, kind: Kind) -> Emit:
    """The event that a guarded loop gives when it begins, and after each of its iterations."""
    site = loop.site if kind is Kind.ENTER else loop.closes or loop.site
    return Emit(Event(kind, site, loop=loop.ident, guard=loop.paced))


def _project(state: State, keep: frozenset[str]) -> State:
    return State(**{name: getattr(state, name) for name in keep})


def _add(into: Configurations, key: Configuration, paths: Iterable[Decisions]) -> set[Decisions]:
    """Adds the paths that are not implied by ones already there; returns those."""
    have = into.get(key)
    if have is None:
        into[key] = new = set(paths)
        return new
    if _FREE in have:
        return set()
    new = {path for path in paths if not any(other <= path for other in have)}
    if not new:
        return new
    before = set(have)
    have |= new
    _reduce(have)
    return have - before


_FREE: Decisions = frozenset()


def _reduce(paths: set[Decisions]) -> None:
    """Keeps the smallest, and drops tests both of whose arms lead here."""
    if _FREE in paths:
        paths.clear()
        paths.add(_FREE)
        return
    paths -= {path for path in paths if any(other < path for other in paths)}
    _cancel(paths)


def _cancel(paths: set[Decisions]) -> None:
    """Where both arms of a test lead here, the test does not matter."""
    changed = True
    while changed:
        changed = False
        for path in list(paths):
            for text, taken in path:
                rest = path - {(text, taken)}
                if rest | {(text, not taken)} in paths:
                    paths -= {other for other in paths if rest <= other}
                    paths.add(rest)
                    changed = True
                    break
            if changed:
                break


def _smallest(paths: set[Decisions]) -> list[Decisions]:
    kept = set(paths)
    _reduce(kept)
    return sorted(kept, key=lambda path: (len(path), sorted(path)))


def _merge(into: Configurations, more: Configurations) -> None:
    for key, paths in list(more.items()):
        _add(into, key, paths)


def _decide(paths: Iterable[Decisions], decision: Decision) -> set[Decisions]:
    decided = {path | {decision} for path in paths}
    return {path for path in decided if len(path) <= MOST_DECISIONS}


def _join(
    then: Configurations,
    learned_then: frozenset[tuple[Fact, bool]],
    orelse: Configurations,
    learned_else: frozenset[tuple[Fact, bool]],
) -> Configurations:
    """Merges two arms; where both end in the same state, the test is forgotten."""
    out: Configurations = {}
    bare_then = {(state, known - learned_then): paths for (state, known), paths in then.items()}
    bare_else = {(state, known - learned_else): paths for (state, known), paths in orelse.items()}
    for (state, known), paths in then.items():
        key = (state, known - learned_then)
        _add(out, key if key in bare_else else (state, known), paths)
    for (state, known), paths in orelse.items():
        key = (state, known - learned_else)
        _add(out, key if key in bare_then else (state, known), paths)
    return out


def _know(
    entry: Configurations,
    forget: Iterable[str],
    values: Iterable[tuple[str, int]],
    last: tuple[str, bool],
) -> Configurations:
    out: Configurations = {}
    for (state, known), paths in entry.items():
        for name in (*forget, last[0]):
            known = guard.assigned(known, name)
        _add(out, (state, known.union(values, [last])), paths)
    return out
