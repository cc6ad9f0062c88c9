"""A test is never judged otherwise than Python would judge it, whatever is still unknown."""

from __future__ import annotations

import operator
from dataclasses import dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st

from support import tiers
from support.event_sequences import Choices
from zerograd.explore import logic
from zerograd.explore.knowledge import Knowledge
from zerograd.explore.logic import (
    UNKNOWN,
    Const,
    Count,
    Expr,
    Fact,
    LastIteration,
    Name,
    Op,
    Opaque,
    Synchronises,
    Value,
    Variable,
    WindowLength,
)

many = tiers.random(800)

NAMES = ("a", "b", "c")
ANSWERS = ("len(loader)", "scheduler.last", "amp")
"""Expressions that the reader cannot look into."""

VALUES: tuple[Value, ...] = (0, 1, True, False, None, 2, 3, 5, -3, 0.5, "", "sgd")
SEEN = tuple(value for value in VALUES if not isinstance(value, bool))
"""Whether an unseen expression is true may be known without its value, so its answers are not truth values."""
ARITHMETIC = ("+", "-", "*", "//", "/", "%")
COMPARING = ("==", "!=", "<", "<=", ">", ">=")


def term(choose: Choices, depth: int = 2) -> Expr:
    """Arithmetic, compared or not."""
    kind = choose.below(8 if depth else 4)
    if kind < 2:
        return Name(choose.of(NAMES))
    if kind == 2:
        return Const(choose.of(VALUES))
    if kind == 3:
        return Opaque(choose.of(ANSWERS), frozenset({Name("c")}))
    if kind == 7:
        return Op("neg", (term(choose, depth - 1),))
    ops = ARITHMETIC if kind == 4 else COMPARING
    return Op(choose.of(ops), (term(choose, depth - 1), term(choose, depth - 1)))


def branch_test(choose: Choices, depth: int = 2) -> Expr:
    """What may stand after `if`."""
    kind = choose.below(7 if depth else 4)
    if kind < 3:
        return term(choose)
    if kind == 3:
        return Op("is", (term(choose, 1), Const(choose.of([None, True]))))
    if kind == 4:
        return Op("not", (branch_test(choose, depth - 1),))
    parts = [branch_test(choose, depth - 1) for _ in choose.some(3, least=2)]
    return Op(choose.of(("and", "or")), tuple(parts))


drawn = st.binary(max_size=40).map(Choices)
terms = drawn.map(term)
tests = drawn.map(branch_test)


@dataclass(frozen=True)
class World:
    """What every variable and every unseen expression really is."""

    names: tuple[Value, ...]
    answers: tuple[Value, ...]

    def of(self, expr: Expr) -> Value:
        """What Python makes of an expression."""
        names = dict(zip(NAMES, self.names, strict=True))
        value: Value = eval(source(expr), {**names, "world": self, "same": operator.is_})
        return value

    def answer(self, number: int) -> Value:
        return self.answers[number]

    def known(self, names: frozenset[str]) -> dict[Variable | Fact, Value]:
        """The part of the world that is known."""
        return {Name(n): v for n, v in zip(NAMES, self.names, strict=True) if n in names}


def source(expr: Expr) -> str:
    """The expression as Python that a world can run."""
    if isinstance(expr, Const):
        return repr(expr.value)
    if isinstance(expr, Variable):
        return str(expr)
    if isinstance(expr, Opaque):
        return f"world.answer({ANSWERS.index(expr.text)})"
    if expr.op in ("neg", "not"):
        return f"({'-' if expr.op == 'neg' else 'not '}{source(expr.args[0])})"
    if expr.op == "is":
        return f"same({', '.join(map(source, expr.args))})"
    return "(" + f" {expr.op} ".join(source(arg) for arg in expr.args) + ")"


def world_of(choose: Choices) -> World:
    names = [choose.of(VALUES) for _ in NAMES]
    return World(tuple(names), tuple(choose.of(SEEN) for _ in ANSWERS))


worlds = st.binary(max_size=6).map(Choices).map(world_of)
some_names = st.integers(0, 7).map(
    lambda n: frozenset(x for i, x in enumerate(NAMES) if n >> i & 1)
)


def runs(world: World, expr: Expr) -> bool:
    """Whether Python can evaluate the expression and every part of it."""
    try:
        for part in logic.parts(expr):
            world.of(part)
    except (TypeError, ZeroDivisionError):
        return False
    return True


# Without any unknown


@many
@given(tests, worlds)
def test_with_everything_known_a_test_comes_out_as_in_python(expr: Expr, world: World) -> None:
    known = everything(world)
    if runs(world, expr):
        assert logic.truth_of(expr, known) is bool(world.of(expr))


@many
@given(terms, worlds)
def test_with_everything_known_a_value_is_python_s(expr: Expr, world: World) -> None:
    if runs(world, expr):
        value = logic.evaluate(expr, everything(world))
        assert (type(value), value) == (type(world.of(expr)), world.of(expr))


def everything(world: World) -> dict[Variable | Fact, Value]:
    known = world.known(frozenset(NAMES))
    # A number is a size, as `len(loader)` is; a truth is what a test has said before.
    for text, answer in zip(ANSWERS, world.answers, strict=True):
        known[Fact(text, frozenset({Name("c")}))] = answer
    return known


@pytest.mark.parametrize(
    ("op", "args", "value"),
    [
        ("or", (None, 4), 4),
        ("or", (0, 0), 0),
        ("or", (2, 4), 2),
        ("and", (2, 4), 4),
        ("and", (0, 4), 0),
    ],
)
def test_and_and_or_give_the_operand_that_decides(
    op: str, args: tuple[Value, ...], value: Value
) -> None:
    expr = Op(op, tuple(Const(arg) for arg in args))
    assert (type(logic.evaluate(expr, {})), logic.evaluate(expr, {})) == (type(value), value)
    assert logic.evaluate(Op("+", (expr, Const(1))), {}) == value + 1  # type: ignore[operator]


# With some


@many
@given(tests, worlds, some_names)
def test_what_is_said_with_little_known_holds_in_every_world(
    expr: Expr, world: World, names: frozenset[str]
) -> None:
    if runs(world, expr):
        truth = logic.truth_of(expr, world.known(names))
        assert truth is None or truth is bool(world.of(expr))


@many
@given(terms, worlds, some_names)
def test_a_value_that_is_said_with_little_known_is_python_s(
    expr: Expr, world: World, names: frozenset[str]
) -> None:
    value = logic.evaluate(expr, world.known(names))
    products = [part for part in logic.parts(expr) if isinstance(part, Op) and part.op == "*"]
    text = any(isinstance(v, str) for v in (*world.names, *world.answers))
    if value is not UNKNOWN and runs(world, expr) and not (products and text):
        assert value == world.of(expr)


@many
@given(tests, tests, worlds)
def test_what_one_test_taught_holds_of_every_other(first: Expr, second: Expr, world: World) -> None:
    if runs(world, first) and runs(world, second):
        known = dict(logic.facts(first, bool(world.of(first))))
        truth = logic.truth_of(second, known)
        assert truth is None or truth is bool(world.of(second))


@many
@given(tests, worlds)
def test_a_test_agrees_with_itself(expr: Expr, world: World) -> None:
    if runs(world, expr) and logic.truth_of(expr, {}) is None:
        truth = bool(world.of(expr))
        known = dict(logic.facts(expr, truth))
        assert logic.truth_of(expr, known) is truth
        assert logic.truth_of(Op("not", (expr,)), known) is not truth


@many
@given(tests, worlds, some_names)
def test_what_is_left_of_a_test_decides_it(expr: Expr, world: World, names: frozenset[str]) -> None:
    known = world.known(names)
    if runs(world, expr) and logic.truth_of(expr, known) is None:
        rest = logic.residual(expr, known)
        assert bool(world.of(rest)) is bool(world.of(expr))
        assert logic.truth_of(rest, known) is None


@many
@given(tests, worlds, some_names)
def test_a_test_leans_to_where_it_falls(expr: Expr, world: World, names: frozenset[str]) -> None:
    known = world.known(names)
    truth = logic.truth_of(expr, known)
    if truth is not None:
        assert logic.leaning(expr, known) is truth


def test_unknown_parts_are_left_aside() -> None:
    due, unseen = Op("==", (Name("i"), Const(3))), Opaque("last")
    for i, truth in ((3, True), (2, False)):
        for op in ("and", "or"):
            assert logic.leaning(Op(op, (due, unseen)), {Name("i"): i}) is truth
        negated = Op("not", (Op("or", (unseen, due)),))
        assert logic.leaning(negated, {Name("i"): i}) is not truth
    assert logic.leaning(unseen, {}) is None
    assert logic.leaning(Op("and", (unseen, unseen)), {}) is None


@pytest.mark.parametrize(
    "expr", [Opaque("len(batch)"), Op("%", (Name("i"), Const(4)))], ids=["len(batch)", "i % 4"]
)
def test_that_something_is_true_does_not_say_which_number_it_is(expr: Expr) -> None:
    known = dict(logic.facts(expr, True))
    assert logic.truth_of(expr, known) is True
    for number in (1, 2):
        test = Op("==", (expr, Const(number)))
        assert logic.truth_of(test, known) is None


# Facts and assignments


def test_an_unstable_test_teaches_nothing() -> None:
    moody = Opaque("random.random() < p", stable=False)
    for expr in (moody, Op("not", (moody,)), Op("and", (moody, moody))):
        assert not logic.stable(expr)
        assert logic.facts(expr, True) == logic.facts(expr, False) == []


def test_all_parts_of_a_true_and_are_true_and_of_a_false_or_false() -> None:
    a, b = Name("a"), Opaque("b.ready", frozenset({Name("b")}))
    printed = [(Fact("a", frozenset({a})), True), (Fact("b.ready", b.reads), True)]
    assert logic.facts(Op("and", (a, b)), True) == printed
    assert logic.facts(Op("or", (a, b)), False) == [(fact, False) for fact, _ in printed]
    (whole,) = logic.facts(Op("and", (a, b)), False)
    assert isinstance(whole[0], Fact)
    assert whole[0].reads == {a, Name("b")}


def test_what_equals_a_text_equals_no_other() -> None:
    mode = Name("mode")
    one, other = (Op("==", (mode, Const(text))) for text in ("a", "b"))
    assert logic.truth_of(other, dict(logic.facts(one, True))) is False
    assert logic.truth_of(other, dict(logic.facts(one, False))) is None


@many
@given(tests, worlds, some_names, st.sampled_from(NAMES).map(Name))
def test_an_assignment_takes_away_all_that_was_known_through_the_variable(
    expr: Expr, world: World, names: frozenset[str], name: Name
) -> None:
    known = world.known(names) | dict(logic.facts(expr, True))
    knowledge = Knowledge()
    assert knowledge.about([name]) == 0
    bits = knowledge.bits(known.items())
    assert knowledge.values(bits) == known
    assert knowledge.values(bits & ~knowledge.about([name])) == {
        key: value
        for key, value in known.items()
        if name not in (key.reads if isinstance(key, Fact) else {key})
    }


@many
@given(worlds, some_names)
def test_the_bits_of_keys_are_those_of_all_their_values_that_were_met(
    world: World, names: frozenset[str]
) -> None:
    known, knowledge = world.known(names), Knowledge()
    some = frozenset(list(known)[::2])
    asked_early = knowledge.of(some)
    bits = knowledge.bits(known.items())
    assert asked_early == 0
    assert knowledge.values(bits & knowledge.of(some)) == {key: known[key] for key in some}


def test_one_and_true_are_two_values() -> None:
    knowledge, flag = Knowledge(), Name("flag")
    assert knowledge.values(knowledge.bit(flag, 1))[flag] is not True
    assert knowledge.values(knowledge.bit(flag, True))[flag] is True


@many
@given(tests)
def test_a_test_reads_the_variables_in_it(expr: Expr) -> None:
    found = {part for part in logic.parts(expr) if isinstance(part, Variable)}
    unseen = {Name("c")} if any(isinstance(part, Opaque) for part in logic.parts(expr)) else set()
    assert logic.reads(expr) == found | unseen


@many
@given(tests, worlds)
def test_nothing_a_program_holds_makes_evaluation_fail(expr: Expr, world: World) -> None:
    for known in (everything(world), {}):
        value = logic.evaluate(expr, known)
        assert value is UNKNOWN or value is None or isinstance(value, (int, float, str))
    assert logic.show(expr)


# Healthy runs


@pytest.mark.parametrize(
    ("text", "healthy"),
    [
        ("torch.isnan(loss)", False),
        ("math.isinf(norm)", False),
        ("torch.isfinite(loss)", True),
        ("torch.isnan(loss).any()", False),
        ("torch.isfinite(loss).all()", True),
        ("loss.isnan().item()", False),
        ("any(mask)", None),
        ("loss.item()", None),
        ("isnan", None),
        ("done(isnan_seen)", None),
    ],
)
def test_nothing_is_nan_or_infinite_in_a_healthy_run(text: str, healthy: bool | None) -> None:
    assert logic.healthy(Opaque(text)) is healthy
    negated = None if healthy is None else not healthy
    assert logic.healthy(Op("not", (Opaque(text),))) is negated


def test_health_of_a_compound_needs_all_parts_to_agree() -> None:
    nan, inf, finite = (Opaque(f"torch.{name}(x)") for name in ("isnan", "isinf", "isfinite"))
    assert logic.healthy(Op("or", (nan, inf))) is False
    assert logic.healthy(Op("and", (finite, Op("not", (nan,))))) is True
    assert logic.healthy(Op("or", (nan, Name("skip")))) is None
    assert logic.healthy(Op("and", (nan, finite))) is None


# Text


@pytest.mark.parametrize(
    ("expr", "text"),
    [
        (Const(None), "None"),
        (Name("epoch", 3), "epoch"),
        (Opaque("len(loader)"), "len(loader)"),
        (Op("not", (Name("amp"),)), "not amp"),
        (Op("and", (Name("a"), Name("b"), Const(1))), "a and b and 1"),
        (Op("==", (Name("i"), Const(0)), "i == 0"), "i == 0"),
    ],
)
def test_an_expression_shows_as_source(expr: Expr, text: str) -> None:
    assert logic.show(expr) == text


def test_variables_of_different_kinds_are_never_equal() -> None:
    kinds: list[Variable] = [
        *(Name(text, call) for text in ("a", "sync_gradients") for call in (0, 1)),
        *map(LastIteration, (0, 1)),
        *(WindowLength(literal, text) for literal in (None, 0, 1) for text in ("a", "b")),
        *(kind(text) for kind in (Count, Synchronises) for text in ("a", "b")),
    ]
    assert len(set(kinds)) == len(kinds)
