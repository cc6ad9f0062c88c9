"""What a program can do, exploring its flow predicts: held to an interpreter that simply runs flows."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from support import tiers
from support.event_sequences import EVENT_GROUPS, Choices, at
from support.expressions import read
from zerograd.core.automaton import Automaton
from zerograd.core.events import Backward, Clip, Event, Step, Zero
from zerograd.core.lifecycle import State
from zerograd.core.rule import Rule, Violation
from zerograd.explore import decisions as paths_module
from zerograd.explore import explore as explore_module
from zerograd.explore import logic
from zerograd.explore.decisions import (
    MOST_DECISIONS,
    OUTER_DECISIONS,
    Decision,
    Decisions,
    weight,
)
from zerograd.explore.explore import DEEPER, Result, WindowTrial, explore
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
    Return,
    Seq,
    Set,
    Try,
    walk,
)
from zerograd.explore.logic import Const, Expr, Fact, Name, Op, Opaque, Value, Variable
from zerograd.rules.catalogue import RULES

many = tiers.random(600)

NOTHING = Seq(())

# Random flows

VALUES: tuple[Value, ...] = (True, False, None, 2, "sgd")
TESTS: tuple[Expr, ...] = (
    Name("x"),
    Op("not", (Name("x"),)),
    Name("y"),
    Op("is", (Name("y"), Const(None))),
    Op("==", (Name("x"), Const(2))),
    Opaque("config.amp"),
    Opaque("batch.ok", frozenset({Name("batch")})),
    Opaque("ready(x)", frozenset({Name("x")})),
    Opaque("random() < 0.5", stable=False),
)
SETTINGS: tuple[Expr | None, ...] = (
    Const(True),
    Const(False),
    None,
    Const(None),
    Op("not", (Name("y"),)),
    Name("x"),
    Const(2),
)
GROUPS = (
    ("ZG101", "ZG105", "ZG203"),
    ("ZG102",),
    ("ZG104", "ZG107"),
    ("ZG106",),
    ("ZG201",),
    ("ZG202", "ZG204"),
    ("ZG205", "ZG206", "ZG208"),
    ("ZG207",),
    ("ZG103", "ZG303"),
)


@dataclass
class Maker:
    """Builds a flow from choices; every loop, block and `try` has a number of its own."""

    choose: Choices
    events: Sequence[Event]
    labels: list[Label] = field(default_factory=lambda: [RAISE])
    count: int = 0

    def number(self) -> int:
        self.count += 1
        return self.count

    def seq(self, depth: int) -> Flow:
        return Seq([self.flow(depth) for _ in self.choose.some(4, least=1)])

    def flow(self, depth: int) -> Flow:
        kind = self.choose.below(14 if depth else 8)
        if kind < 5:
            return Emit(self.choose.of(self.events))
        if kind == 5:
            return Set(Name(self.choose.of("xy")), self.choose.of(SETTINGS))
        if kind < 8:
            inner = self.labels[-2:] if self.choose.below(4) else self.labels
            jump = self.choose.below(3) == 2
            return Jump(self.choose.of(inner)) if jump else Emit(self.choose.of(self.events))
        if kind < 10:
            return self.alt(depth - 1)
        if kind < 12:
            return self.loop(depth - 1)
        return self.block(depth - 1) if kind == 12 else self.attempt(depth - 1)

    def alt(self, depth: int) -> Flow:
        free = (self.choose.below(8) == 7, self.choose.below(8) == 7)
        test = self.choose.of(TESTS)
        orelse = self.seq(depth) if self.choose.below(2) else NOTHING
        return Alt(test, self.seq(depth), orelse, at(self.number()), free=free)

    def loop(self, depth: int) -> Flow:
        ident = self.number()
        self.labels += [Break(ident), Continue(ident)]
        body = self.seq(depth)
        del self.labels[-2:]
        orelse = self.seq(0) if self.choose.below(4) == 3 else None
        forever = self.choose.below(6) == 5
        return Loop(
            body, ident, at(ident), frozenset({Name("batch")}), forever=forever, orelse=orelse
        )

    def block(self, depth: int) -> Flow:
        self.labels.append(Return(self.number()))
        body = self.seq(depth)
        return Block(body, self.labels.pop())

    def attempt(self, depth: int) -> Flow:
        site = at(self.number())
        parts = [self.seq(depth)]
        handlers = [self.seq(0) for _ in self.choose.some(2)]
        parts += [self.seq(0) if self.choose.below(3) == 2 else NOTHING for _ in range(2)]
        return Try(parts[0], handlers, parts[1], parts[2], site)


def flow_of(drawn: bytes) -> Flow:
    choose = Choices(drawn)
    maker = Maker(choose, EVENT_GROUPS[choose.below(len(EVENT_GROUPS))])
    return Loop(maker.seq(3), 0, at(1), frozenset({Name("batch")}))


flows = st.one_of(
    st.binary(max_size=60),
    # Long flows are rarely drawn and never shrunk: every one of these is long.
    st.integers(0, 2**32).map(lambda seed: Random(seed).randbytes(90)),
).map(flow_of)
groups = st.sampled_from((*GROUPS[:1] * 6, *GROUPS)).map(
    lambda codes: [rule for rule in RULES if rule.code in codes]
)
seeds = st.integers(0, 2**16)


# An interpreter of flows


class Left(Exception):
    """A jump on its way."""


class Thrown(Exception):
    """An exception on its way to the handlers of a `try`."""


class Over(Exception):
    """A sequence is long enough."""


@dataclass
class Run:
    """One concrete run: branches are decided at random, but never against what was said before."""

    random: Random
    events: list[tuple[Event, Decisions]] = field(default_factory=list)
    values: dict[Variable, Value] = field(default_factory=dict)
    answers: dict[Fact, bool] = field(default_factory=dict)
    decided: set[Decision] = field(default_factory=set)
    tries: list[Try | None] = field(default_factory=list)

    def value(self, expr: Expr) -> Value:
        if isinstance(expr, Const):
            return expr.value
        if isinstance(expr, Variable):
            return self.values.setdefault(expr, self.random.choice(VALUES))
        if isinstance(expr, Opaque):
            answer = self.random.random() < 0.5
            if not expr.stable:
                return answer
            return self.answers.setdefault(Fact(expr.text, expr.reads), answer)
        args = [self.value(arg) for arg in expr.args]
        if expr.op == "not":
            return not args[0]
        return args[0] is args[1] if expr.op == "is" else args[0] == args[1]

    def assign(self, name: Variable, value: Value) -> None:
        self.values[name] = value
        self.answers = {fact: v for fact, v in self.answers.items() if name not in fact.reads}

    def run(self, flow: Flow) -> None:
        if isinstance(flow, Emit):
            self.emit(flow.event)
        elif isinstance(flow, Seq):
            for item in flow.items:
                self.run(item)
        elif isinstance(flow, Set):
            unseen = self.random.choice(VALUES)
            self.assign(flow.variable, unseen if flow.value is None else self.value(flow.value))
        elif isinstance(flow, Jump):
            raise Left(flow.label)
        elif isinstance(flow, Alt):
            taken = bool(self.value(flow.test))
            self.decided.add(Decision(logic.show(flow.test), taken))
            self.run(flow.then if taken else flow.orelse)
        elif isinstance(flow, Block):
            self.until(flow.body, flow.label)
        elif isinstance(flow, Loop):
            self.loop(flow)
        else:
            self.attempt(flow)

    def emit(self, event: Event) -> None:
        self.events.append((event, frozenset(self.decided)))
        if len(self.events) > 60:
            raise Over
        self.fail_sometimes()

    def until(self, flow: Flow, label: Label) -> bool:
        """Runs a flow; whether it left by the label."""
        try:
            self.run(flow)
        except Left as left:
            if left.args != (label,):
                raise
            return True
        return False

    def loop(self, loop: Loop) -> None:
        for _ in range(self.random.randint(1, 4)):
            for name in loop.targets:
                self.assign(name, None)
            body = Block(loop.body, Continue(loop.ident))
            if self.until(body, Break(loop.ident)):
                return
        if loop.forever:
            raise Over
        if loop.orelse is not None:
            self.run(loop.orelse)

    def attempt(self, flow: Try) -> None:
        try:
            try:
                self.guarded(flow if flow.handlers else None, flow.body)
            except (Thrown, Left) as error:
                if isinstance(error, Left) and not (flow.handlers and error.args == (RAISE,)):
                    raise
                where = f"an exception in line {flow.site.line}"
                self.decided.add(Decision(where, True, weight=2))
                self.guarded(None, self.random.choice(flow.handlers))
            else:
                self.guarded(None, flow.orelse)
        except Left:
            self.guarded(None, flow.final)
            raise
        self.guarded(None, flow.final)

    def guarded(self, handling: Try | None, flow: Flow) -> None:
        """Runs a part of a `try`; what fails in it goes to that one's handlers, or does not fail."""
        self.tries.append(handling)
        try:
            self.fail_sometimes()
            self.run(flow)
        finally:
            self.tries.pop()

    def fail_sometimes(self) -> None:
        if self.tries and self.tries[-1] is not None and self.random.random() < 0.15:
            raise Thrown


def sample(flow: Flow, seed: int) -> list[tuple[Event, Decisions]]:
    """A sequence of the flow, each event with the decisions that led to it."""
    run = Run(Random(seed))
    with contextlib.suppress(Left, Over):
        run.run(flow)
    return run.events


def found(result: Result) -> dict[tuple[str, Violation], tuple[Decisions, ...]]:
    return {(out.rule.code, out.violation): out.decisions for out in result.outcomes}


@tiers.random(3000)
@given(flows, groups, seeds)
def test_whatever_a_run_breaks_was_predicted(flow: Flow, rules: list[Rule], seed: int) -> None:
    result = explore(flow, rules)
    if result.cut:
        return
    predicted = found(result)
    for number in range(6):
        machine = Automaton(rules)
        node = machine.node()
        for event, decided in sample(flow, 6 * seed + number):
            edge = machine.take(node, event)
            node = edge.node
            for rule, violation in edge.broken:
                if weight(decided) <= MOST_DECISIONS:
                    key = (rule.code, violation)
                    assert key in predicted
                    assert any(path <= decided for path in predicted[key]), (
                        f"{predicted[key]} asks for more than {decided}"
                    )


@many
@given(flows, groups)
def test_decisions_are_capped_and_none_is_idle(flow: Flow, rules: list[Rule]) -> None:
    for paths in found(explore(flow, rules)).values():
        assert paths
        assert all(weight(path) <= DEEPER[-1] + OUTER_DECISIONS for path in paths)
        assert not any(one < other for one in paths for other in paths)


@many
@given(flows, groups)
def test_exploring_twice_gives_the_same(flow: Flow, rules: list[Rule]) -> None:
    one, other = explore(flow, rules), explore(flow, rules)
    assert one.outcomes == other.outcomes


@tiers.random(2000)
@given(flows, groups, st.sampled_from([None, WindowTrial(2, 5), WindowTrial(3, 7)]))
def test_what_a_sweep_finds_clean_an_exploration_does(
    flow: Flow, rules: list[Rule], window: WindowTrial | None
) -> None:
    swept = explore(flow, rules, window=window)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(explore_module, "is_clean", lambda *_: False)
        whole = explore(flow, rules, window=window)
    assert whole.cut or found(swept) == found(whole)


@many
@given(flows, groups)
def test_exploring_ends_soon(flow: Flow, rules: list[Rule]) -> None:
    result = explore(flow, rules, budget=20_000)
    assert result.cut == (result.spent > 20_000)
    assert result.spent < 40_000


# Decisions

ZERO, BACKWARD, STEP, CLIP = (
    Emit(event) for event in (Zero(at(1)), Backward(at(2)), Step(at(3)), Clip(at(4)))
)


def when(
    test: Expr, then: Flow, orelse: Flow = NOTHING, free: tuple[bool, bool] = (False, False)
) -> Alt:
    return Alt(test, then, orelse, at(50), free=free)


def loop(*body: Flow, ident: int = 1, **more: object) -> Loop:
    return Loop(Seq(body), ident, at(60), **more)  # type: ignore[arg-type]


def decisions(flow: Flow, code: str = "ZG101") -> list[set[Decision]] | None:
    """The smallest sets of decisions that lead to a finding; None where there is none."""
    rules = [rule for rule in RULES if rule.code == code]
    paths = [path for out in explore(flow, rules).outcomes for path in out.decisions]
    return sorted(map(set, paths), key=sorted) if paths else None


X, Y, Z = Name("x"), Name("y"), Name("z")


def test_a_straight_loop_needs_no_decision() -> None:
    assert decisions(loop(BACKWARD, STEP)) == [set()]
    assert decisions(loop(ZERO, BACKWARD, STEP)) is None


def test_a_clear_in_one_arm_leaves_one_decision() -> None:
    assert decisions(loop(when(X, ZERO), BACKWARD, STEP)) == [{Decision("x", False)}]


def test_both_arms_giving_the_finding_is_no_decision() -> None:
    both = when(X, Seq([BACKWARD, CLIP]), BACKWARD)
    assert decisions(loop(both, STEP)) == [set()]


def test_arms_cancel_under_another_decision_too() -> None:
    inner = when(X, Seq([BACKWARD, CLIP]), BACKWARD)
    assert decisions(loop(when(Y, ZERO), inner, STEP)) == [{Decision("y", False)}]


def test_a_test_that_cancels_late_reaches_those_who_wait_for_news() -> None:
    known: paths_module.Configurations = {}
    key = (Automaton(RULES).node(), 0)
    bits = paths_module.Numbering().bits
    first, second = (
        bits([Decision("y", True), Decision("x", True)]),
        bits([Decision("y", True), Decision("x", False)]),
    )
    assert paths_module.add(known, key, {first}) == {first}
    assert paths_module.add(known, key, {second}) == {bits([Decision("y", True)])}
    assert paths_module.add(known, key, {first, second}) == set()


def test_a_test_agrees_with_itself() -> None:
    again = loop(when(X, ZERO), when(X, Seq([BACKWARD, STEP])))
    assert decisions(again) is None
    apart = loop(when(X, ZERO), when(Op("not", (X,)), Seq([BACKWARD, STEP])))
    assert decisions(apart) == [{Decision("x", False)}]


def test_a_test_may_change_its_mind_when_what_it_reads_is_assigned() -> None:
    clear, use = (
        replace(when(X, arm), changing=frozenset({Name("x")}))
        for arm in (ZERO, Seq([BACKWARD, STEP]))
    )
    changed = loop(Set(Name("x")), clear, Set(Name("x")), use)
    assert decisions(changed) == [{Decision("x", False), Decision("x", True)}]


def test_a_test_that_is_not_stable_may_change_its_mind() -> None:
    moody = Opaque("random() < p", stable=False)
    assert decisions(loop(when(moody, ZERO), when(moody, Seq([BACKWARD, STEP])))) is not None


def test_a_flag_set_on_the_first_iteration_holds_once() -> None:
    first = Seq([ZERO, Set(Name("first"), Const(False))])
    once = Seq([Set(Name("first"), Const(True)), loop(when(Name("first"), first), BACKWARD, STEP)])
    assert decisions(once) == [set()]
    kept = Seq([Set(Name("first"), Const(True)), loop(when(Name("first"), ZERO), BACKWARD, STEP)])
    assert decisions(kept) is None


def test_a_test_whose_other_arm_leaves_is_free() -> None:
    leaving = when(X, Jump(Break(1)), free=(False, True))
    assert decisions(loop(leaving, BACKWARD, STEP)) == [set()]


def test_more_decisions_than_the_cap_are_no_finding() -> None:
    names = [Name(f"x{n}") for n in range(MOST_DECISIONS + 1)]
    clears = [when(name, ZERO) for name in names]
    assert decisions(loop(*clears[:-1], BACKWARD, STEP)) is not None
    assert decisions(loop(*clears, BACKWARD, STEP)) is None


def test_a_test_for_nan_comes_out_as_in_a_healthy_run() -> None:
    bad = Opaque("torch.isnan(loss)", stable=False)
    assert decisions(loop(when(bad, Seq([ZERO, Jump(Continue(1))])), BACKWARD, STEP)) == [set()]


def test_an_invariant_test_around_the_reported_call_is_no_decision() -> None:
    inside = Seq([BACKWARD, STEP])
    assert decisions(loop(when(X, inside))) == [set()]
    changing = replace(when(X, inside), changing=frozenset({Name("x")}))
    assert decisions(loop(changing)) == [{Decision("x", True)}]


def test_a_test_whose_other_arm_has_left_before_the_reported_call_is_no_decision() -> None:
    leaves = when(X, Jump(Return(1)))
    assert decisions(Block(Seq([leaves, loop(BACKWARD, STEP)]), Return(1))) == [set()]
    # The clear is skipped, and the loop runs all the same.
    skipped = Block(Seq([leaves, ZERO]), Return(1))
    assert decisions(loop(skipped, BACKWARD, STEP)) == [{Decision("x", True)}]


def test_a_changing_test_around_a_loop_that_is_wrong_by_itself_is_no_decision() -> None:
    changing = frozenset({Name("x")})
    inner = replace(when(X, loop(BACKWARD, STEP, ident=2)), changing=changing)
    assert decisions(loop(Set(Name("x")), inner)) == [set()]
    part = replace(when(X, loop(BACKWARD, ident=2)), changing=changing)
    assert decisions(loop(Set(Name("x")), part, STEP)) == [{Decision("x", True)}]


def test_many_tests_that_only_decide_whether_a_loop_runs_are_no_decisions() -> None:
    leaving = [when(Name(f"x{n}"), Seq([ZERO, Jump(Return(1))])) for n in range(5)]
    assert decisions(Block(Seq([*leaving, loop(BACKWARD, STEP)]), Return(1))) == [set()]


# Loops, jumps and exceptions


def test_a_loop_runs_at_least_once() -> None:
    assert decisions(Seq([loop(ZERO), BACKWARD, STEP, loop(ZERO, ident=2), BACKWARD, STEP])) is None


def test_a_finding_that_needs_many_rounds_is_found() -> None:
    flags = [f"x{n}" for n in range(5)]
    shift = [Set(Name(a), Name(b)) for a, b in pairwise(flags)]
    begin = [Set(Name(name), Const(True)) for name in flags]
    late = Seq(
        [
            *begin,
            loop(when(Name("x0"), ZERO), BACKWARD, STEP, *shift, Set(Name("x4"), Const(False))),
        ]
    )
    assert decisions(late) == [set()]


def test_break_leaves_the_loop_and_continue_the_iteration() -> None:
    assert decisions(loop(BACKWARD, STEP, Jump(Break(1)))) is None
    assert decisions(loop(BACKWARD, STEP, Jump(Continue(1)), ZERO)) == [set()]


def test_return_leaves_the_block() -> None:
    called = Block(Seq([when(X, Jump(Return(1))), ZERO]), Return(1))
    assert decisions(loop(called, BACKWARD, STEP)) == [{Decision("x", True)}]


def test_what_follows_an_endless_loop_is_reached_by_break_only() -> None:
    assert decisions(Seq([loop(BACKWARD, STEP, forever=True), ZERO])) == [set()]
    never = Seq([loop(ZERO, BACKWARD, forever=True), STEP, BACKWARD, STEP])
    assert decisions(never) is None


def test_the_else_of_a_loop_is_skipped_by_break() -> None:
    left = loop(BACKWARD, STEP, when(X, Jump(Break(1))), orelse=ZERO)
    assert decisions(Seq([left, BACKWARD, STEP])) is not None
    assert decisions(Seq([loop(when(X, STEP), orelse=ZERO), BACKWARD, STEP])) is None


def test_finally_runs_on_every_way_out() -> None:
    body = Seq([BACKWARD, STEP, when(X, Jump(Continue(1))), when(Y, Jump(Break(1)))])
    assert decisions(loop(Try(body, (), NOTHING, ZERO, at(70)))) is None


def test_finally_does_not_run_for_those_who_left_before() -> None:
    early = when(X, Seq([BACKWARD, STEP, Jump(Continue(1))]))
    cleared = Try(Seq([BACKWARD, STEP]), (), NOTHING, ZERO, at(70))
    assert decisions(loop(early, cleared)) is not None


def test_an_exception_counts_twice() -> None:
    body = Seq([BACKWARD, STEP, ZERO])
    assert decisions(loop(Try(body, [NOTHING], NOTHING, NOTHING, at(70)))) == [
        {Decision("an exception in line 70", True, weight=2)}
    ]


def test_a_handler_knows_what_was_assigned_before_the_raise() -> None:
    body = Seq([BACKWARD, STEP, Set(Name("skip"), Const(True)), Jump(RAISE)])
    handler = when(Name("skip"), NOTHING, ZERO)
    tried = Try(body, [handler], NOTHING, NOTHING, at(70))
    assert decisions(loop(Set(Name("skip"), Const(False)), tried)) is not None


# The budget


def test_too_many_configurations_cut_and_say_so() -> None:
    flow = loop(*[Set(Name(name)) for name in "xyz"], *[when(t, BACKWARD) for t in (X, Y, Z)], STEP)
    whole = explore(flow, RULES)
    assert not whole.cut
    assert whole.outcomes
    cut = explore(flow, RULES, budget=whole.spent - 1)
    assert cut.cut
    assert not cut.outcomes
    assert explore(flow, RULES, budget=whole.spent).outcomes == whole.outcomes


# Executed windows


def tell(before: State, event: Event) -> Violation | None:
    """Says of every step in which iteration it came, and how long its window was."""
    if not isinstance(event, Step) or before.backward is None:
        return None
    return Violation(event.site, f"{before.backward.divisor} {before.window} {event.last}")


TELL = replace(RULES[0], check=tell, reads=frozenset({"grads", "window", "backward"}))


def executed(test: str, length: int, batches: int) -> set[tuple[int, int, bool]]:
    """(iteration, window, last) of every step, as exploring gives them."""
    backward, step = Emit(BACKWARD.event, read("i + 1")), Emit(replace(STEP.event, loop=1))
    body = Seq([backward, replace(when(read(test), Seq([step, ZERO])), counts=True)])
    flow = Seq(
        [
            ZERO,
            Loop(
                body,
                1,
                at(60),
                frozenset({Name("i")}),
                Name("i"),
                trips=Name("batches"),
                counted=True,
            ),
        ]
    )
    window = WindowTrial(length, batches, frozenset({Name("N")}), counters=frozenset())
    result = explore(Seq([Set(Name("batches"), Const(batches)), flow]), [TELL], window=window)
    assert not result.cut
    assert all(out.decisions == (frozenset(),) for out in result.outcomes)
    return {_parsed(out.violation.message) for out in result.outcomes}


def _parsed(message: str) -> tuple[int, int, bool]:
    iteration, window, last = message.split()
    return int(iteration), int(window), last == "True"


def ran(test: str, length: int, batches: int) -> set[tuple[int, int, bool]]:
    """The same, by running the loop."""
    code, window, steps = compile(test, "guard", "eval"), 0, set()
    for i in range(batches):
        window += 1
        if eval(code, {"i": i, "N": length, "batches": batches}):
            steps.add((i + 1, window, i == batches - 1))
            window = 0
    return steps


GUARDS = """
(i + 1) % N == 0
(i + 1) % N == 0 or i + 1 == batches
i % N == 0
i % N == 0 and i > 0
i % N == N - 1
i % N
not i % N
(i + 1) % N
not (i + 1) % N
i % N != 0
i == batches - 1
i > 0 and i % N == 0 or i == batches - 1
(i + 1) // N * N == i + 1
i % (N + 1) == N
i % N == 1
i - i // N * N == N - 1
i + 1 >= N
-i % N == 1
(i + 2) % N == 0
""".strip().splitlines()


@pytest.mark.parametrize("test", GUARDS)
def test_an_executed_guard_gives_the_windows_that_python_gives(test: str) -> None:
    for length in (1, 2, 3, 4):
        for batches in (1, length, 2 * length, 2 * length + 1, 3 * length - 1):
            assert executed(test, length, batches) == ran(test, length, batches)


def guard_text(choose: Choices, depth: int = 2) -> str:
    """Any guard over the counter, N and the number of batches."""
    if depth and choose.below(3) == 2:
        if choose.below(3) == 2:
            return f"not ({guard_text(choose, depth - 1)})"
        joint = choose.of(("and", "or"))
        return f"({guard_text(choose, depth - 1)}) {joint} ({guard_text(choose, depth - 1)})"
    left = f"({choose.of(('i', 'i + 1', 'i - 1', 'i * 2'))}) {choose.of('%+-*')} {choose.of(('N', '2', '3', 'batches'))}"
    return f"{left} {choose.of(('==', '!=', '<', '>='))} {choose.of(('0', '1', 'N', 'N - 1', 'i', 'batches - 1'))}"


@many
@given(st.binary(max_size=30).map(Choices).map(guard_text), st.integers(1, 4), st.integers(1, 9))
def test_any_executed_guard_gives_the_windows_that_python_gives(
    test: str, length: int, batches: int
) -> None:
    batches = min(batches, 3 * length)
    assert executed(test, length, batches) == ran(test, length, batches)


@pytest.mark.parametrize("back", ["0", "count - N"])
@pytest.mark.parametrize("test", ["count == N", "count >= N", "count % N == 0"])
def test_a_counter_that_is_set_back_is_executed(test: str, back: str) -> None:
    backward, step = Emit(BACKWARD.event, read("total + 1")), Emit(replace(STEP.event, loop=1))
    closing = Seq([step, ZERO, Set(Name("count"), read(back))])
    body = Seq(
        [
            backward,
            Set(Name("count"), read("count + 1")),
            Set(Name("total"), read("total + 1")),
            replace(when(read(test), closing), counts=True),
        ]
    )
    for length in (1, 2, 3):
        batches = 2 * length + 1
        flow = Seq([ZERO, Loop(body, 1, at(60), counted=True)])
        window = WindowTrial(
            length,
            batches,
            frozenset({Name("N")}),
            counters=frozenset({Name("count"), Name("total")}),
        )
        result = explore(flow, [TELL], window=window)
        closed = {_parsed(out.violation.message)[:2] for out in result.outcomes}
        assert closed == {(end, length) for end in range(length, batches + 1, length)}


def test_every_part_of_a_flow_is_walked() -> None:
    handler, final, orelse = Emit(ZERO.event), Emit(ZERO.event), Emit(ZERO.event)
    tried = Try(BACKWARD, [handler], orelse, final, at(1))
    parts = {id(part) for part in walk(loop(when(X, tried, Block(STEP, Return(1))), orelse=CLIP))}
    assert {id(part) for part in (BACKWARD, handler, final, orelse, STEP, CLIP)} <= parts
