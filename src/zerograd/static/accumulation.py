"""Gradient accumulation: where the code steps every N batches, so that its windows can be executed.

A guard is the test that decides whether a window closes: a test on a counter, `(i + 1) % N == 0`, or on a
count that is set back to 0, wraps around, or counts down from N. A loop is paced if guards of its own decide about
all of its steps, and not about a backward that fills the gradients for them.
"""

from __future__ import annotations

import operator
from collections.abc import Iterator

from zerograd.core.events import Backward, Decided, Event, Hold, Site, Step, Zero
from zerograd.core.records import dataclass, field, replace
from zerograd.explore import logic
from zerograd.explore.explore import WindowTrial
from zerograd.explore.flow import (
    Alt,
    Continue,
    Emit,
    Flow,
    Loop,
    Return,
    Seq,
    Set,
    children,
    find,
    has_step,
    leaves_by,
    rebuild,
    walk,
)
from zerograd.explore.logic import (
    WINDOW_LENGTH,
    Const,
    Count,
    Expr,
    Fact,
    Name,
    Op,
    Opaque,
    Variable,
    WindowLength,
)
from zerograd.static.read import vocabulary

LENGTHS = (2, 3)
"""The lengths of window that guards are executed with, whatever N the code has: these show all errors."""
MOST_BATCHES = 2 * max(LENGTHS) + 1
"""The most batches that are executed: two windows, and a remainder."""
SINGLE = 1
"""With N = 1 every batch is a window: some code forgets this case."""


@dataclass
class Counting:
    """The counters of a flow and what its variables mean."""

    counters: set[Variable]
    """Loop counters, and variables that are counted up or down."""
    downward: set[Variable]
    """Those of them that are counted down."""
    meanings: dict[Variable, list[Expr]]
    """All that each variable is set to."""
    wraps: dict[Variable, frozenset[Variable]]
    """The counters that begin anew at N by themselves, `c = (c + 1) % N`, and what they call N."""

    @classmethod
    def of(cls, flow: Flow) -> Counting:
        """The counting of a flow."""
        counters: set[Variable] = set()
        downward: set[Variable] = set()
        meanings: dict[Variable, list[Expr]] = {}
        wraps: dict[Variable, frozenset[Variable]] = {}
        for part in walk(flow):
            if isinstance(part, Loop) and part.counter:
                counters.add(part.counter)
            elif isinstance(part, Set) and part.value is not None:
                meanings.setdefault(part.variable, []).append(part.value)
                value = part.value
                if isinstance(value, Op) and value.op == "%" and _goes_on(value.args[0], part):
                    wraps[part.variable] = logic.reads(value.args[1])
                    counters.add(part.variable)
                elif _counts_up(value, part):
                    counters.add(part.variable)
                    if isinstance(value, Op) and value.op == "-":
                        downward.add(part.variable)
        return cls(counters, downward, meanings, wraps)

    def lengths(self, test: Expr) -> set[Variable] | None:
        """What a test calls N, if it is a guard; None if it is not."""
        if self.used_up(test) is not None:
            return self.starts(*logic.reads(test))
        return self.modulo(test) or self.set_back(test) or self.wrapped(test)

    def starts(self, counter: Variable) -> set[Variable]:
        """What a counter is set to that is not itself counted."""
        held = self.meanings.get(counter, ())
        return {one for one in held if isinstance(one, Name) and one not in self.counters}

    def used_up(self, test: Expr) -> bool | None:
        """How a test comes out where the count that goes down from N is used up; None if it asks for no such count."""
        read = logic.reads(test)
        if len(read) != 1 or not read <= self.downward or not self.starts(*read):
            return None
        at_first, at_last = (logic.truth_of(test, dict.fromkeys(read, n)) for n in (99, 0))
        return None if at_first == at_last else at_last

    def closes(self, alt: Alt) -> bool:
        """Whether a branch can close windows; that of a count that goes down does where it is used up."""
        used_up = self.used_up(alt.test)
        if used_up is None:
            return self.lengths(alt.test) is not None
        closing, other = (alt.then, alt.orelse) if used_up else (alt.orelse, alt.then)
        return has_step(closing) or isinstance(leaves_by(other), (Continue, Return))

    def length(self, test: Expr) -> int:
        """The N of a guard, if the code says one number; else 0."""
        said = {self._number(name) for name in self.lengths(test) or ()}
        return said.pop() if len(said) == 1 else 0

    def _number(self, name: Variable) -> int:
        """The one number that a variable is set to; 0 if it is never set to a number, or also to something else."""
        if isinstance(name, WindowLength):
            return name.literal or 0
        values = [
            one.value if isinstance(one, Const) else None for one in self.meanings.get(name, ())
        ]
        number = values[0] if values and values.count(values[0]) == len(values) else None
        return number if type(number) is int and number > 1 else 0

    def wrapped(self, test: Expr) -> set[Variable] | None:
        """What the code calls N, if a test reads a counter that wraps around."""
        found = frozenset[Variable]().union(*(self.wraps.get(v, ()) for v in logic.reads(test)))
        return set(found) or None

    def modulo(self, expr: Expr, depth: int = 0) -> set[Variable] | None:
        """N in `count % N`, also where a variable holds the result of the test."""
        found: set[Variable] = set()
        for part in logic.parts(expr):
            remainder = _count_and_length(part)
            if remainder is not None:
                counted = logic.reads(remainder[0])
                if counted and all(map(self.counts, counted)):
                    found |= logic.reads(remainder[1])
            elif isinstance(part, Variable) and depth < 3 and part not in self.counters:
                for meaning in self.meanings.get(part, ()):
                    found |= self.modulo(meaning, depth + 1) or set()
        return found or None

    def counts(self, variable: Variable) -> bool:
        """Whether a variable is a counter, or computed from counters."""
        if variable in self.counters or isinstance(variable, Count):
            return True
        known = self.meanings.get(variable, [])
        return bool(known) and all(
            names and names <= self.counters for names in map(self.besides_sizes, known)
        )

    def besides_sizes(self, expr: Expr) -> frozenset[Variable]:
        """What a value reads without the number of batches: `epoch * len(loader) + i` counts."""
        if isinstance(expr, Op):
            return frozenset[Variable]().union(*map(self.besides_sizes, expr.args))
        if isinstance(expr, Variable):
            held = self.meanings.get(expr)
            return frozenset() if held and all(map(is_size, held)) else frozenset({expr})
        return frozenset() if is_size(expr) else logic.reads(expr)

    def set_back(self, expr: Expr) -> set[Variable] | None:
        """N in `count == N` where the count is set back."""
        for part in logic.parts(expr):
            if isinstance(part, Op) and part.op in ("==", ">=", ">", "<", "<="):
                left, right = part.args
                if self.since_last(left) and isinstance(right, Variable):
                    return {right}
                if self.is_set_back(left) and isinstance(right, Variable):
                    if not self.counts(right):
                        return {right}
        return None

    def is_set_back(self, expr: Expr) -> bool:
        """Whether an expression is a counter that is set to a literal, and not only at first.

        What an attribute is at first, a constructor has said.
        """
        if not (isinstance(expr, Variable) and expr in self.counters):
            return False
        first = not (isinstance(expr, Name) and "." in expr.text)
        return sum(isinstance(v, Const) for v in self.meanings.get(expr, ())) > first

    def named(self, expr: Expr) -> Expr:
        """A test in which the literal N of `count == N` is a variable, if the count is set back."""
        if not isinstance(expr, Op):
            return expr
        if expr.op in ("==", ">=", "<") and self.is_set_back(expr.args[0]):
            length = expr.args[1]
            if isinstance(length, Const) and isinstance(length.value, int) and length.value >= 2:
                return replace(expr, args=(expr.args[0], WindowLength(length.value)))
        if expr.op in ("and", "or", "not"):
            return replace(expr, args=tuple(map(self.named, expr.args)))
        return expr

    def since_last(self, expr: Expr) -> bool:
        """Whether an expression is `count - mark`, and the mark is set to the count somewhere."""
        if not (isinstance(expr, Op) and expr.op == "-"):
            return False
        count, mark = expr.args
        return isinstance(mark, Variable) and count in self.meanings.get(mark, ())

    def roots(self, expr: Expr, depth: int = 0) -> frozenset[Variable]:
        """The variables that a test depends on, also through other variables."""
        found = set(logic.reads(expr))
        for variable in list(found):
            if variable not in self.counters and depth < 3:
                for meaning in self.meanings.get(variable, ()):
                    found |= self.roots(meaning, depth + 1)
        return frozenset(found)


def _count_and_length(expr: Expr) -> tuple[Expr, Expr] | None:
    """What is counted and N, in `count % N`, and in `count + 1 % N`, which only adds the remainder of 1."""
    if not isinstance(expr, Op) or len(expr.args) != 2:
        return None
    left, right = expr.args
    if expr.op == "%":
        return left, right
    if expr.op in ("+", "-") and isinstance(right, Op) and right.op == "%":
        return (left, right.args[1]) if isinstance(right.args[0], Const) else None
    return None


Arm = tuple[Alt, bool]
"""A branch, and which of its arms: the one that is taken where its test is true, or the other one."""


def _has(around: list[Arm], guard: Arm) -> bool:
    """Whether something depends on a guard, or on the same test in another branch."""
    return any(arm is guard[1] and alt.test == guard[0].test for alt, arm in around)


@dataclass
class _Guards:
    """The guards of a flow, and which of them decide about its steps and backward calls."""

    counting: Counting
    lengths: set[Variable] = field(default_factory=set)
    """What the guards call N."""
    alts: dict[int, Alt] = field(default_factory=dict)
    """The branches whose tests are guards, by their identity."""
    loop_of: dict[int, int] = field(default_factory=dict)
    """The loop that each of them is in."""
    steps: dict[int, list[tuple[Step, list[Arm]]]] = field(default_factory=dict)
    """By loop: its steps, each with those guards of the same loop that decide about it."""
    backwards: dict[int, list[tuple[Backward, list[Arm]]]] = field(default_factory=dict)
    """By loop: the backward calls in it, each with the guards that decide about it."""
    foreign: dict[int, list[list[Arm]]] = field(default_factory=dict)
    """By loop: the guards that decide about each step of another subject."""
    loops: dict[int, Loop] = field(default_factory=dict)

    def visit(
        self, flow: Flow, loops: tuple[int, ...], guards: tuple[tuple[int, Arm], ...]
    ) -> None:
        """Goes through a flow; `guards` decide about it, each with the loop it is in."""
        if isinstance(flow, Emit):
            self.note(flow.event, loops, guards)
            return
        if isinstance(flow, Alt) and loops and self.is_guard(flow):
            self.visit(flow.then, loops, (*guards, (loops[-1], (flow, True))))
            self.visit(flow.orelse, loops, (*guards, (loops[-1], (flow, False))))
            return
        if isinstance(flow, Loop):
            self.loops[flow.ident] = flow
            loops = (*loops, flow.ident)
        for part in children(flow):
            self.visit(part, loops, guards)
            # The test of `if …: continue` also decides about what follows it.
            for guard in self.leaving(part) if loops else ():
                guards = (*guards, (loops[-1], (guard, False)))

    def leaving(self, flow: Flow) -> Iterator[Alt]:
        """The guards of a flow that leave the code around it, also inside of `if N > 1:`."""
        if isinstance(flow, Alt):
            if isinstance(leaves_by(flow.then), (Continue, Return)) and self.is_guard(flow):
                yield flow
                return
        elif not isinstance(flow, Seq):
            return
        for part in children(flow):
            yield from self.leaving(part)

    def is_guard(self, alt: Alt) -> bool:
        """Whether a branch closes windows: its test counts, and only one of its arms steps."""
        if not self.counting.closes(alt):
            return False
        return not (has_step(alt.then) and has_step(alt.orelse))

    def note(
        self, event: Event, loops: tuple[int, ...], guards: tuple[tuple[int, Arm], ...]
    ) -> None:
        around = [arm for _, arm in guards]
        if isinstance(event, Step) and event.foreign:
            for loop in loops:
                self.foreign.setdefault(loop, []).append(around)
            return
        if not loops:
            return
        own = [arm for loop, arm in guards if loop == loops[-1]]
        if isinstance(event, Backward):
            for loop in loops:
                self.backwards.setdefault(loop, []).append((event, around))
        if isinstance(event, Step):
            self.steps.setdefault(loops[-1], []).append((event, own))
        if isinstance(event, (Step, Zero, Backward)):
            for loop, (alt, _) in guards:
                self.lengths |= self.counting.lengths(alt.test) or set()
                self.alts[id(alt)] = alt
                self.loop_of[id(alt)] = loop

    def counted(self) -> frozenset[Variable]:
        """The counters that guards depend on."""
        found = (self.counting.roots(alt.test) for alt in self.alts.values())
        return frozenset().union(*found) & self.counting.counters

    def paced(self) -> dict[int, tuple[Alt, Site]]:
        """The loops that accumulate, each with its guard and the step that closes its windows."""
        found = {}
        for loop, steps in self.steps.items():
            if not all(guards for _, guards in steps):
                continue
            step, guards = steps[0]
            guard = guards[-1]
            feeding = self.backwards.get(loop, [])
            inside = any(_has(around, guard) for _, around in feeding)
            # If there is a backward under the guard, one outside may be for another subject's step.
            foreign = self.foreign.get(loop, [])
            others = any(not _has(around, guard) for around in foreign)
            # An arm with a backward and a step of another subject is that one's turn.
            other = (guard[0], not guard[1])
            turns = inside and any(_has(around, other) for around in foreign)
            instead = _instead_of(guard[0], self.loops[loop]) if inside else set()
            outside = any(
                not _has(around, guard)
                and id(backward) not in instead
                and not (inside and (backward.may or (others and not backward.alone)))
                and not (turns and _has(around, other))
                for backward, around in feeding
            )
            if outside and self.belongs(guard[0], loop):
                found[loop] = (guard[0], step.site)
        return found

    def belongs(self, alt: Alt, loop: int) -> bool:
        """Whether this loop itself counts what a guard reads."""
        flow = self.loops[loop]
        own = {part.variable for part in _sets(flow) if not isinstance(part.value, Const)}
        inner = find(flow.body, Loop)
        if not any(part.ident in self.steps for part in inner):
            # If an inner loop steps by its own count, a step after it only uses the remainder.
            own |= {part.variable for part in find(flow.body, Set)}
        if flow.counter is not None:
            own.add(flow.counter)
        roots = self.counting.roots(alt.test)
        return any(root in own or isinstance(root, Count) for root in roots)


def _instead_of(guard: Alt, loop: Loop) -> set[int]:
    """The events that a loop runs instead of asking a guard: those in the other arm of a branch around the guard."""
    found: set[int] = set()
    for part in find(loop.body, Alt):
        if part is not guard:
            for arm, other in ((part.then, part.orelse), (part.orelse, part.then)):
                if any(inner is guard for inner in walk(arm)):
                    found |= {id(emit.event) for emit in find(other, Emit)}
    return found


def pace(
    flow: Flow, lengths: frozenset[Variable] = frozenset()
) -> tuple[Flow, tuple[WindowTrial, ...]]:
    """The flow with its paced loops marked, and the windows to execute: none if nothing accumulates.

    `lengths` is what the flow calls N where its guards cannot be read.
    """
    counting = Counting.of(flow)
    if any(map(counting.is_set_back, counting.counters)):
        flow = _named(flow, counting)
    guards = _Guards(counting)
    guards.visit(flow, (), ())
    called = guards.lengths | _micro_batches(flow) | lengths
    if not called:
        return flow, ()
    far = _with_far_thresholds(flow, counting)
    if far is not flow:
        flow, guards = far, _Guards(counting)
        guards.visit(flow, (), ())
    symbols = frozenset(called | {WINDOW_LENGTH}) - counting.counters
    sizes, counters = _sizes(flow, guards), frozenset(counting.counters)
    literal = any(isinstance(name, WindowLength) and name.literal for name in called)
    paced = guards.paced()
    upward = guards.counted() - counting.downward
    marked = _not_resumed(_mark(flow, guards, paced), upward)
    started = _from_zero(marked, upward)
    whole = any(_ends_with_window(guards.loops[loop], alt) for loop, (alt, _) in paced.items())
    ends_seen = not lengths and started is marked and not whole
    several = any(_backwards(guards.loops[loop].body) > 1 for loop in paced)
    windows = (
        WindowTrial(n, 2 * n + 1, symbols, sizes, counters, ends_seen, several)
        for n in (LENGTHS if literal else (SINGLE, *LENGTHS))
    )
    begun = [
        Set(one, length)
        for one in guards.counted() & counting.downward
        for length in counting.starts(one)
    ]
    return Seq([*begun, started]) if begun else started, tuple(windows)


def _with_far_thresholds(flow: Flow, counting: Counting) -> Flow:
    """The flow in which nothing is known of a count that is compared with a number beyond the executed batches.

    `if step > 1000:` asks which part of the training it is; the same few batches are executed for either part.
    """

    def unknown(test: Expr) -> Expr:
        if not isinstance(test, Op):
            return test
        change = _unless_constant if _asks_far(test, counting) else unknown
        args = tuple(map(change, test.args))
        return replace(test, args=args) if any(map(operator.is_not, args, test.args)) else test

    def again(part: Flow) -> Flow:
        part = rebuild(part, again)
        return replace(part, test=unknown(part.test)) if isinstance(part, Alt) else part

    return (
        again(flow) if any(unknown(alt.test) is not alt.test for alt in find(flow, Alt)) else flow
    )


def _unless_constant(expr: Expr) -> Expr:
    return expr if isinstance(expr, Const) else Opaque(f"the value of {logic.show(expr)}")


def _asks_far(test: Op, counting: Counting) -> bool:
    """Whether a test compares a count with a number that it does not reach in the batches that are executed."""
    if test.op not in ("<", "<=", ">", ">="):
        return False
    limits = [one.value for one in test.args if isinstance(one, Const)]
    if not any(isinstance(one, (int, float)) and one > MOST_BATCHES for one in limits):
        return False
    read = logic.reads(test)
    counts = bool(read) and read <= counting.counters - counting.downward
    return counts or any(map(is_size, test.args))


def _backwards(flow: Flow) -> int:
    """How many backwards one way through a flow may run; a loop may run two."""
    if isinstance(flow, Emit):
        return int(isinstance(flow.event, Backward))
    counts = [_backwards(part) for part in children(flow)]
    if isinstance(flow, Alt):
        return max(counts)
    return sum(counts) * (2 if isinstance(flow, Loop) else 1)


def _ends_with_window(loop: Loop, guard: Alt) -> bool:
    """Whether the test of a `while` loop reads only what changes where a window closes: such a loop leaves no remainder."""
    if loop.test is None:
        return False
    asked = logic.reads(loop.test)

    def changes(flow: Flow) -> int:
        return sum(isinstance(part, Set) and part.variable in asked for part in walk(flow))

    closing = sum(changes(arm) for arm in (guard.then, guard.orelse) if has_step(arm))
    return 0 < closing == changes(loop.body)


def _not_resumed(flow: Flow, counters: frozenset[Variable]) -> Flow:
    """The flow without the branches in which a count that begins at a number goes on from a checkpoint."""
    todo, begun = [flow], set()
    while todo:
        part = todo.pop()
        if isinstance(part, Set) and part.variable in counters and isinstance(part.value, Const):
            begun.add(part.variable)
        todo += () if isinstance(part, (Loop, Alt)) else children(part)

    def kept(part: Flow, in_arm: bool) -> Flow:
        if isinstance(part, Loop):
            return part
        if isinstance(part, Set) and in_arm and part.variable in begun:
            return part if _is_known(part, counters) else Seq(())
        return rebuild(part, lambda inner: kept(inner, in_arm or isinstance(part, Alt)))

    return kept(flow, False) if begun else flow


def _is_known(part: Set, counters: frozenset[Variable]) -> bool:
    """Whether a count is set to a number, or to what is computed from a count."""
    value = part.value
    return isinstance(value, Const) or (value is not None and bool(logic.reads(value) & counters))


def _from_zero(flow: Flow, counters: frozenset[Variable]) -> Flow:
    """The flow in which counters that continue from a checkpoint start at 0."""
    if not counters:
        return flow
    if isinstance(flow, Set) and flow.variable in counters:
        return flow if _is_known(flow, counters) else Set(flow.variable, Const(0))
    if isinstance(flow, Loop):
        # A loop that counts says in each iteration what the count is.
        counters -= {part.variable for part in find(flow.body, Set)}
    before = children(flow)
    changed = rebuild(flow, lambda part: _from_zero(part, counters))
    return flow if all(map(operator.is_, before, children(changed))) else changed


def _named(flow: Flow, counting: Counting) -> Flow:
    """The flow with literal window lengths as variables."""
    flow = rebuild(flow, lambda part: _named(part, counting))
    return replace(flow, test=counting.named(flow.test)) if isinstance(flow, Alt) else flow


def _sizes(flow: Flow, guards: _Guards) -> frozenset[Fact]:
    """`len(…)` is the number of batches in guards, and where it is compared with a count or asked for a remainder."""
    found = set()
    counting = guards.counting
    exprs: list[Expr] = [alt.test for alt in guards.alts.values()]
    exprs += [
        test
        for test in _tests(flow)
        if logic.reads(test) & counting.counters or _remainder(test, guards.lengths)
    ]
    for _ in range(3):
        names = frozenset[Variable]().union(*map(logic.reads, exprs))
        exprs += [value for name in names for value in counting.meanings.get(name, ())]
    for expr in exprs:
        for part in logic.parts(expr):
            if isinstance(part, Opaque) and is_size(part):
                found.add(part.fact)
    return frozenset(found)


def _remainder(test: Expr, lengths: set[Variable]) -> bool:
    """Whether a test asks for what is left of the batches: `len(loader) % N`."""
    return any(
        is_size(part.args[0]) and logic.reads(part) & lengths for part in logic.remainders(test)
    )


def _tests(flow: Flow) -> Iterator[Expr]:
    """The tests of branches and of `while` loops."""
    for part in walk(flow):
        if isinstance(part, (Alt, Loop)) and part.test is not None:
            yield part.test


def _counts_up(value: Expr, part: Set) -> bool:
    """Whether a value is that of its own variable, a literal more or less."""
    if not (isinstance(value, Op) and value.op in "+-"):
        return False
    return value.args[0] == part.variable and isinstance(value.args[1], Const)


def _goes_on(value: Expr, part: Set) -> bool:
    """Whether a variable is given its own value again, or one more or one less."""
    return value == part.variable or _counts_up(value, part)


def is_size(expr: Expr) -> bool:
    """Whether an expression is the number of batches."""
    return isinstance(expr, Opaque) and expr.text.startswith("len(")


def _micro_batches(flow: Flow) -> set[Variable]:
    """`for … in range(accumulation_steps)` around a backward whose step comes after the loop."""
    found: set[Variable] = set()
    for part in find(flow, Loop):
        if isinstance(part.trips, (Name, WindowLength)):
            says_so = vocabulary.WINDOW.search(part.trips.text)
            sure = [e for e in find(part.body, Emit) if not e.event.may]
            if says_so and any(isinstance(e.event, Backward) for e in sure):
                if not any(map(has_step, sure)):
                    found.add(part.trips)
    return found


def _mark(flow: Flow, guards: _Guards, paced: dict[int, tuple[Alt, Site]]) -> Flow:
    """The flow with what the exploration has to know about its guards and paced loops."""
    counted = guards.counted()

    def again(part: Flow) -> Flow:
        if isinstance(part, Emit):
            own = paced.get(part.event.loop)
            if own is not None and isinstance(part.event, Step):
                site, length = own[0].site, guards.counting.length(own[0].test)
                decided = Decided(site, length) if length and site is not None else None
                return Emit(replace(part.event, guard=site, decided=decided), part.divisor)
            return part
        if isinstance(part, Loop):
            alt, step = paced.get(part.ident, (None, None))
            orelse = again(part.orelse) if part.orelse is not None else None
            inside = {part.counter, *(one.variable for one in _sets(part))}
            return replace(
                part,
                body=again(part.body),
                orelse=orelse,
                paced=alt.site if alt is not None else None,
                closes=step,
                counted=bool(inside & counted),
            )
        if isinstance(part, Alt) and id(part) in guards.alts:
            marked = replace(
                part,
                then=again(part.then),
                orelse=again(part.orelse),
                counts=guards.loop_of[id(part)],
            )
            return _holding(part, marked, paced)
        return rebuild(part, again)

    return again(flow)


def _sets(loop: Loop) -> Iterator[Set]:
    """What a loop assigns outside of the loops in it."""
    todo = [loop.body]
    while todo:
        part = todo.pop()
        if isinstance(part, Set):
            yield part
        elif not isinstance(part, Loop):
            todo.extend(children(part))


def _holding(alt: Alt, marked: Alt, paced: dict[int, tuple[Alt, Site]]) -> Flow:
    """The branch, with an event in the arm that does not step: it keeps the window open."""
    for loop, (own, step) in paced.items():
        if own is alt:
            hold = Emit(Hold(step, loop=loop, guard=alt.site))
            steps = [has_step(arm) for arm in (alt.then, alt.orelse)]
            if steps == [True, False]:
                return replace(marked, orelse=Seq([hold, marked.orelse]))
            if steps == [False, True]:
                return replace(marked, then=Seq([hold, marked.then]))
    return marked
