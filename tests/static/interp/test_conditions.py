"""Conditions: tests, counters and divisors of the code as expressions that guards are executed with."""

from __future__ import annotations

import ast

import pytest

from zerograd.explore.logic import (
    Const,
    Expr,
    LastIteration,
    Name,
    Op,
    Opaque,
    Variable,
    WindowLength,
)
from zerograd.static.interp.conditions import Conditions, is_none_check
from zerograd.static.interp.interpreter import Interpreter, Program
from zerograd.static.read.keys import local
from zerograd.static.read.load import from_text
from zerograd.static.read.project import Project
from zerograd.static.read.values import Frame, Lit, Thing, Value


def interpreter(**variables: Value) -> Interpreter:
    """One whose current frame holds these variables."""
    project = Project()
    made = Program(project, project.add(from_text("", "train.py"))).interpreter()
    made.env.frame.env.update(variables)
    made.evaluator.complete()
    return made


def conditions(**variables: Value) -> Conditions:
    return interpreter(**variables).conditions


def node(text: str) -> ast.expr:
    return ast.parse(text, mode="eval").body


def expression(text: str, **variables: Value) -> Expr:
    return conditions(**variables).expression(node(text))


# Expressions


@pytest.mark.parametrize(
    ("text", "expr"),
    [
        ("3", Const(3)),
        ("None", Const(None)),
        ("x", Name("x")),
        ("x.y", Name("x.y")),
        ("not x", Op("not", (Name("x"),), "not x")),
        ("-x", Op("neg", (Name("x"),), "-x")),
        ("+x", Name("x")),
        ("x and y", Op("and", (Name("x"), Name("y")), "x and y")),
        ("x or y", Op("or", (Name("x"), Name("y")), "x or y")),
        ("x + 1", Op("+", (Name("x"), Const(1)), "x + 1")),
        ("x < 3", Op("<", (Name("x"), Const(3)), "x < 3")),
        ("bool(x)", Name("x")),
        ("int(x)", Name("x")),
        ("(y := x)", Name("x")),
        ("p.requires_grad", Const(True)),
        ("torch.is_grad_enabled()", Const(True)),
        ("__name__ == '__main__'", Const(True)),
    ],
)
def test_a_test_is_an_expression(text: str, expr: Expr) -> None:
    assert expression(text) == expr


def test_a_variable_that_holds_a_literal_is_that_literal() -> None:
    assert expression("n", n=Lit(4)) == Const(4)
    assert expression("n", n=Thing(local("n"))) == Name("n")


def test_a_variable_of_a_call_is_known_by_the_call() -> None:
    inside = interpreter()
    inside.env.enter(Frame(inside.env.top.module, locals=frozenset({"x"}), call=3))
    assert inside.conditions.expression(node("x.y")) == Name("x.y", 3)


@pytest.mark.parametrize(
    ("text", "denied"),
    [("x != 0", Op("==", (Name("x"), Const(0)), "x == 0")),
     ("x is not y", Op("is", (Name("x"), Name("y")), "x is y"))],
)  # fmt: skip
def test_an_inequality_is_the_opposite_of_an_equality(text: str, denied: Expr) -> None:
    assert expression(text) == Op("not", (denied,), text)


@pytest.mark.parametrize(
    ("text", "is_true"),
    [("x is True", True), ("x == True", True), ("x is not False", True), ("x != False", True),
     ("x is False", False), ("x == False", False), ("x is not True", False), ("x != True", False)],
)  # fmt: skip
def test_a_comparison_with_true_or_false_is_the_flag_or_its_opposite(
    text: str, is_true: bool
) -> None:
    flag = Name("x")
    assert expression(text) == (flag if is_true else Op("not", (flag,), text))


def test_a_chain_of_comparisons_is_all_of_them() -> None:
    text = "0 < x < 3"
    assert expression(text) == Op(
        "and", (Op("<", (Const(0), Name("x")), text), Op("<", (Name("x"), Const(3)), text)), text
    )


def test_a_literal_that_is_counted_by_is_the_length_of_a_window() -> None:
    modulo = Op("%", (Name("i"), WindowLength(4)), "i % 4")
    assert expression("i % 4") == modulo
    assert expression("i % 4 == 0") == Op("==", (modulo, Const(0)), "i % 4 == 0")
    assert expression("i % n") == Op("%", (Name("i"), Name("n")), "i % n")
    assert expression("i % 1") == Op("%", (Name("i"), Const(1)), "i % 1")


def test_the_last_count_of_a_window_is_its_length_less_one() -> None:
    last = Op("-", (WindowLength(4), Const(1)))
    modulo = Op("%", (Name("i"), WindowLength(4)), "i % 4")
    assert expression("i % 4 == 3") == Op("==", (modulo, last), "i % 4 == 3")
    assert expression("i % 4 == 2") == Op("==", (modulo, Const(2)), "i % 4 == 2")


@pytest.mark.parametrize(
    ("text", "expr"),
    [
        ("i == 9", Op("and", (LastIteration(7),), "i == 9")),
        ("i + 1 == 10", Op("and", (LastIteration(7),), "i + 1 == 10")),
        ("i < 9", Op("not", (LastIteration(7),), "i < 9")),
        ("i == 8", Op("==", (Name("i"), Const(8)), "i == 8")),
        ("i < 5", Op("<", (Name("i"), Const(5)), "i < 5")),
    ],
)
def test_a_test_that_singles_out_the_last_iteration_is_read_so(text: str, expr: Expr) -> None:
    inside = interpreter()
    inside.nesting.lengths[Name("i")] = (7, 0, Const(10))
    assert inside.conditions.expression(node(text)) == expr


@pytest.mark.parametrize(
    ("text", "expr"),
    [
        ("i == n - 1", Op("and", (LastIteration(7),), "i == n - 1")),
        ("i < n - 1", Op("not", (LastIteration(7),), "i < n - 1")),
        ("i < m", Op("<", (Name("i"), Name("m")), "i < m")),
        ("i > n - 3", Op(">", (Name("i"), expression("n - 3")), "i > n - 3")),
    ],
)
def test_the_last_iteration_is_known_by_a_length_that_is_not(text: str, expr: Expr) -> None:
    inside = interpreter()
    inside.nesting.lengths[Name("i")] = (7, 0, Name("n"))
    assert inside.conditions.expression(node(text)) == expr


# What cannot be evaluated


@pytest.mark.parametrize(
    ("text", "reads", "stable"),
    [
        ("x in y", {Name("x"), Name("y")}, True),
        ("f(x)", {Name("f"), Name("x")}, False),
        ("len(x)", {Name("len"), Name("x")}, True),
        ("isinstance(x, y)", {Name("isinstance"), Name("x"), Name("y")}, True),
        ("x[i]", {Name("x"), Name("i")}, True),
    ],
)
def test_anything_else_is_known_by_its_text_and_by_what_it_reads(
    text: str, reads: set[Variable], stable: bool
) -> None:
    assert expression(text) == Opaque(text, frozenset(reads), stable)


# What a variable holds


@pytest.mark.parametrize(
    ("text", "meaning"),
    [
        ("x + 1", Op("+", (Name("x"), Const(1)), "x + 1")),
        ("int(x)", Name("x")),
        ("Trainer()", Const("an object")),
        ("[y for y in x]", Const("an object")),
        ("list(x)", Const("an object")),
        ("list()", None),
        ("f(x)", None),
        ("x[0]", None),
    ],
)
def test_a_variable_means_what_can_be_computed(text: str, meaning: Expr | None) -> None:
    assert conditions().meaning(node(text)) == meaning


def test_the_number_of_batches_is_kept_though_it_is_unknown() -> None:
    assert isinstance(conditions().meaning(node("len(loader)")), Opaque)


# What a literal settles


@pytest.mark.parametrize(
    ("text", "truth"),
    [
        ("True", True),
        ("0", False),
        ("flag", False),
        ("not flag", True),
        ("x", None),
        ("flag and x", False),
        ("x and flag", False),
        ("x or True", True),
        ("flag or x", None),
        ("True and not flag", True),
        ("count > 1", True),
        ("x > 1", None),
        ("count + 1", None),
    ],
)
def test_a_test_may_be_settled_by_a_literal(text: str, truth: bool | None) -> None:
    assert conditions(flag=Lit(False), count=Lit(2)).constant(node(text)) is truth


# Is there a gradient, is there an object


@pytest.mark.parametrize(
    ("text", "present"),
    [
        ("p.grad is not None", True),
        ("p.grad != None", True),
        ("p.grad is None", False),
        ("p.grad", True),
        ("not p.grad", False),
        ("not p.grad is None", True),
        ("p.requires_grad and p.grad is not None", True),
        ("p.grad is None or not p.requires_grad", False),
        ("p.requires_grad or p.grad is not None", None),
        ("p.grad is other", None),
        ("p is not None", None),
        ("grad", None),
    ],
)
def test_a_test_may_ask_whether_there_is_a_gradient(text: str, present: bool | None) -> None:
    assert is_none_check(node(text)) is present


@pytest.mark.parametrize(
    ("text", "present"),
    [
        ("opt", True),
        ("opt is not None", True),
        ("opt is None", False),
        ("not opt", False),
        ("opt is other", None),
        ("opt > 1", None),
    ],
)
def test_a_test_may_ask_whether_there_is_an_object(text: str, present: bool | None) -> None:
    known = conditions(opt=Thing(local("opt")), other=Thing(local("other")))
    expected = None if present is None else (local("opt"), present)
    assert known.exists_check(node(text)) == expected
