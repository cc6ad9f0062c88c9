"""Guards that cannot be read but speak of accumulation: each is true once in N iterations.

Examples are a method of the project that asks for `accumulation_steps`, a count that another object keeps, a flag
that is handed in. Such a test gives the same answer until something that it reads is changed: in an iteration, or
where the object that counts goes on. Where its windows begin and end cannot be seen.
"""

from __future__ import annotations

from zerograd.core.events import Backward, Event, Step
from zerograd.core.records import dataclass, field, replace
from zerograd.explore import logic
from zerograd.explore.flow import (
    Alt,
    Emit,
    Flow,
    Loop,
    Seq,
    Set,
    assigned,
    children,
    find,
    leaves_by,
    rebuild,
    walk,
)
from zerograd.explore.logic import WINDOW_LENGTH, Const, Count, Expr, Name, Op, Opaque, Variable
from zerograd.static.accumulation import Arm, Counting, is_size
from zerograd.static.read import vocabulary


def counted(flow: Flow, whole: Flow) -> tuple[Flow, frozenset[Variable]]:
    """One subject's flow with counts in the place of guards that cannot be read, and what it calls N then.

    Whether a flag is about accumulation may show only in the whole flow: another's loss is divided.
    """
    if not _speaks(whole):
        return flow, frozenset()
    unread = _Unread(Counting.of(flow), _handed_in(flow))
    unread.visit(flow, ())
    guards = unread.guards()
    if not guards:
        return flow, frozenset()
    lengths = {name for part in walk(whole) for name in _lengths(part)}
    return _count(flow, guards), frozenset(lengths | {WINDOW_LENGTH})


def is_handed_in(flow: Flow) -> bool:
    """Whether a function that has no loop is handed the flag that decides about its steps."""
    if trains_in_a_loop(flow) or not _speaks(flow):
        return False
    unread = _Unread(Counting.of(flow), _handed_in(flow))
    site = next((part.site for part in find(flow, Alt)), None)
    if site is not None:
        unread.visit(Loop(flow, 0, site), ())
    return any(guard in unread.flags for guard, _ in unread.guards().values())


def trains_in_a_loop(flow: Flow) -> bool:
    """Whether a loop of a flow fills or uses gradients: a loop that only logs does not train."""
    return any(
        isinstance(part, Emit) and isinstance(part.event, (Backward, Step))
        for loop in find(flow, Loop)
        for part in walk(loop)
    )


def _speaks(flow: Flow) -> bool:
    """Whether a test or the divisor of a loss speaks of accumulation."""
    return any(
        (isinstance(part, Alt) and any(_asks_for_window(leaf) for leaf in _leaves(part.test)))
        or (isinstance(part, Emit) and any(True for _ in _lengths(part)))
        for part in walk(flow)
    )


def _lengths(part: Flow) -> list[Variable]:
    """What a loss is divided by, if it speaks of accumulation."""
    if not isinstance(part, Emit) or part.divisor is None:
        return []
    return [name for name in logic.reads(part.divisor) if vocabulary.WINDOW.search(str(name))]


def _handed_in(flow: Flow) -> frozenset[Variable]:
    """The names that a flow tests, never assigns, and never takes an attribute of."""
    given = assigned(flow)
    return frozenset(
        leaf
        for part in find(flow, Alt)
        for leaf in _leaves(part.test)
        if isinstance(leaf, Name) and leaf.text.islower() and "." not in leaf.text
        if leaf not in given
    )


def _leaves(test: Expr) -> list[Expr]:
    """The parts that `and`, `or` and `not` combine."""
    if isinstance(test, Op) and test.op in ("and", "or", "not"):
        return [leaf for arg in test.args for leaf in _leaves(arg)]
    return [test]


def _asks_for_window(leaf: Expr) -> bool:
    """Whether a test speaks of accumulation, and not of what was computed."""
    text = logic.show(leaf)
    if isinstance(leaf, Const) or logic.COMPUTED.search(text):
        return False
    if any(isinstance(part.args[1], Const) for part in logic.remainders(leaf)):
        return False  # it counts to a literal
    asks = isinstance(leaf, Opaque) and leaf.asks_for_window
    return asks or vocabulary.WINDOW.search(text) is not None


@dataclass
class _Unread:
    """Finds the tests that decide about all steps of a loop, and not about all of its backward calls."""

    counting: Counting
    flags: frozenset[Variable]
    """The flags that the function is handed."""
    steps: dict[int, list[list[Arm]]] = field(default_factory=dict)
    """By loop: the arms around each of its steps."""
    backwards: dict[int, list[list[Arm]]] = field(default_factory=dict)
    """By loop: the arms around each backward in it."""

    def visit(self, flow: Flow, around: tuple[tuple[int, tuple[Arm, ...]], ...]) -> None:
        """Goes through a flow; `around` are its loops, each with the arms between it and the next."""
        if isinstance(flow, Emit):
            self.note(flow.event, around)
            return
        if isinstance(flow, Alt) and around:
            for arm, outcome in ((flow.then, True), (flow.orelse, False)):
                self.visit(arm, _within(around, (flow, outcome)))
            return
        if isinstance(flow, Loop):
            around = (*around, (flow.ident, ()))
        for part in children(flow):
            self.visit(part, around)
            if isinstance(part, Alt) and around and leaves_by(part.then) is not None:
                around = _within(around, (part, False))

    def note(self, event: Event, around: tuple[tuple[int, tuple[Arm, ...]], ...]) -> None:
        if event.may or not around:
            return
        if isinstance(event, Step) and not event.foreign:
            loop, arms = around[-1]
            self.steps.setdefault(loop, []).append(list(arms))
        elif isinstance(event, Backward):
            for loop, arms in around:
                self.backwards.setdefault(loop, []).append(list(arms))

    def guards(self) -> dict[int, tuple[Expr, bool]]:
        """By loop: the test that closes its windows, and how it comes out then."""
        found = {}
        for loop, steps in self.steps.items():
            tests = [self.guard(arms, loop) for arms in steps]
            guard = tests[0]
            if guard is None or any(test != guard for test in tests):
                continue
            alt, outcome = next(arm for arm in steps[0] if guard in _leaves(arm[0].test))
            if any((alt, outcome) not in arms for arms in self.backwards.get(loop, [])):
                found[loop] = (guard, outcome is not _is_negated(guard, alt.test))
        return found

    def guard(self, arms: list[Arm], loop: int) -> Expr | None:
        """The test around a step that speaks of accumulation; none if there is one that can be read.

        What a function is handed is another flag in each call, and the same one in the loops inside.
        """
        flags = self.flags if loop <= 0 else frozenset[Variable]()
        tests = (self.counting.named(alt.test) for alt, _ in arms)
        if any(self.counting.lengths(test) is not None for test in tests):
            return None
        for alt, _ in reversed(arms):
            for leaf in _leaves(alt.test):
                changes = (
                    not logic.stable(leaf)
                    or bool(logic.reads(leaf) & alt.changing)
                    or any(not is_size(part.args[0]) for part in logic.remainders(leaf))
                )
                if leaf in flags or (changes and _asks_for_window(leaf)):
                    return leaf
        return None


def _within(
    around: tuple[tuple[int, tuple[Arm, ...]], ...], arm: Arm
) -> tuple[tuple[int, tuple[Arm, ...]], ...]:
    loop, arms = around[-1]
    return (*around[:-1], (loop, (*arms, arm)))


def _is_negated(leaf: Expr, test: Expr) -> bool:
    """Whether a test asks for the opposite of one of its leaves."""
    if not isinstance(test, Op) or leaf == test:
        return False
    inner = next(arg for arg in test.args if leaf in _leaves(arg))
    return _is_negated(leaf, inner) is not (test.op == "not")


def _count(flow: Flow, guards: dict[int, tuple[Expr, bool]]) -> Flow:
    """The flow with the guards of its loops counted."""
    if isinstance(flow, Loop) and flow.ident in guards:
        guard, outcome = guards[flow.ident]
        flow = _count_in(flow, guard, outcome)
    return rebuild(flow, lambda part: _count(part, guards))


def _count_in(loop: Loop, guard: Expr, outcome: bool) -> Loop:
    if any(_is_akin(part, guard) for part in walk(loop.body)):
        return loop  # what the two tests have to do with each other cannot be seen
    count = Count(f"{logic.show(guard)} in loop {loop.ident}")
    goes_on = Set(count, Op("+", (count, Const(1))))
    body: list[Flow] = list(loop.body.items) if isinstance(loop.body, Seq) else [loop.body]
    asked = sum(isinstance(part, Alt) and guard in _leaves(part.test) for part in walk(loop.body))
    changed = [part for part in walk(loop.body) if _changes(part, guard)] if asked > 1 else []
    if not changed:
        body.insert(0, goes_on)
        number: Expr = count
    elif len(changed) == 1 and changed[0] in body:
        body.insert(body.index(changed[0]), goes_on)
        number = Op("+", (count, Const(1)))
    else:
        return loop  # it may say something else each time
    due: Expr = Op("==", (Op("%", (number, WINDOW_LENGTH)), Const(0)), logic.show(guard))
    due = due if outcome else Op("not", (due,), logic.show(guard))
    return replace(loop, body=_asking(Seq(body), guard, due))


def _is_akin(part: Flow, guard: Expr) -> bool:
    """Whether a branch tests the variables of a guard in another way."""
    if not isinstance(part, Alt):
        return False
    changing = logic.reads(guard) & part.changing
    return any(leaf != guard and logic.reads(leaf) & changing for leaf in _leaves(part.test))


def _changes(part: Flow, guard: Expr) -> bool:
    return isinstance(part, Set) and part.variable in logic.reads(guard)


def _asking(flow: Flow, guard: Expr, due: Expr) -> Flow:
    """The flow with one test in the place of another."""
    flow = rebuild(flow, lambda part: _asking(part, guard, due))
    if isinstance(flow, Alt) and guard in _leaves(flow.test):
        return replace(flow, test=_replaced(flow.test, guard, due))
    return flow


def _replaced(test: Expr, guard: Expr, due: Expr) -> Expr:
    if test == guard:
        return due
    if isinstance(test, Op) and test.op in ("and", "or", "not"):
        return replace(test, args=tuple(_replaced(arg, guard, due) for arg in test.args))
    return test
