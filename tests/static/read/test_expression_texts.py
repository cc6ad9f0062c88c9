"""The text of an expression is the one that `ast.unparse` gives, on one line."""

from __future__ import annotations

import ast

import pytest

from zerograd.static.read.syntax_tree import text_of


@pytest.mark.parametrize(
    "text", ["a", "a.b.c", "f(a, b=c[0]).d", "a[1:2].b", "(a + b).c", "(a if b else c).d", "a % n == 0", "f(*a, **b)"]
)  # fmt: skip
def test_a_text_is_that_of_unparse(text: str) -> None:
    node = ast.parse(text, mode="eval").body
    assert text_of(node) == ast.unparse(node)
    assert text_of(node) == text  # it goes with the node


def test_an_expression_that_is_nested_too_deeply_has_no_text() -> None:
    deep: ast.expr = ast.Name("x", ast.Load())
    for _ in range(3_000):
        deep = ast.UnaryOp(ast.Not(), deep)
    assert text_of(deep) == "…"
