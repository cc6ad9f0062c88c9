"""The text of an expression is the one that `ast.unparse` gives, also where it is made in a shorter way."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

import zerograd
from zerograd.static.read.syntax_tree import simple_text, text_of


def test_simple_texts_are_those_of_unparse() -> None:
    """Over all expressions of the static reader itself: most of them are simple."""
    home = Path(zerograd.__file__).parent / "static" / "interp"
    trees = [ast.parse(path.read_text()) for path in sorted(home.glob("l*.py"))]
    found = [node for tree in trees for node in ast.walk(tree) if isinstance(node, ast.expr)]
    simple = [node for node in found if simple_text(node) is not None]
    assert len(simple) > len(found) / 2 > 1000
    assert [simple_text(node) for node in simple] == [ast.unparse(node) for node in simple]


@pytest.mark.parametrize(
    "text",
    [
        "f(a, b=c[0], d='x')", "a.b.c(1)[i] % n", "x is not None", "a[b + 1]", "f(a == b)()", "f(x=a * b)",
        "'a' 'b'", "f(\"it's\")", "a[-1]", "a[1:2]", "a[1, 2]", "f(*a, **b)", "1 .real", "(1).real", "1.5", "1e400",
        "u'x'", "b'x'", "...", "-1 + a", "a + b + c", "(a + b) * c", "a < b < c", "(a, b)[0]", "(yield)", "not a",
        "f(x for x in y)", "lambda: 0", "(a if b else c).d", "f(a := 1)", "await_(a) ** -1", "2 ** 3", "f'{a}'.b",
    ],
)  # fmt: skip
def test_a_text_is_that_of_unparse(text: str) -> None:
    node = ast.parse(text, mode="eval").body
    assert simple_text(node) in (None, ast.unparse(node))
    if not isinstance(node, ast.Attribute):
        assert text_of(node) == ast.unparse(node)
