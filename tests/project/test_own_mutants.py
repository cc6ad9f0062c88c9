"""The changes of mutation testing: each is one change, makes a module that compiles, and leaves types and texts for readers alone."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

import own_mutants
from support.paths import ROOT

MODULE = '''\
"""Text for readers."""
from typing import Literal

Kind = Literal["a"]

def f(a: int, b: bool) -> int:
    """Text for readers."""
    assert a
    if b:
        return g(a, key=1)
    return a + 1 if a < 3 and not b else 0
'''


def changed(folder: Path, text: str) -> list[tuple[int, str, str]]:
    path = folder / "core" / "module.py"
    path.parent.mkdir(exist_ok=True)
    path.write_text(text, encoding="utf-8")
    return [(one.line, one.change, ast.unparse(one.tree())) for one in own_mutants.mutants(path)]


def test_every_kind_of_change_is_made_once(tmp_path: Path) -> None:
    found = changed(tmp_path, MODULE)
    assert [(line, change) for line, change, _ in found] == [
        (9, "not b"),
        (10, "return None"),
        (10, "without key="),
        (10, "1 -> 2"),
        (11, "return None"),
        (11, "And -> Or"),
        (11, "without a < 3"),
        (11, "without not b"),
        (11, "Lt -> LtE"),
        (11, "3 -> 4"),
        (11, "without not"),
        (11, "Add -> Sub"),
        (11, "1 -> 2"),
        (11, "0 -> 1"),
    ]
    texts = [text for _, _, text in found]
    assert len(set(texts)) == len(texts)
    assert ast.unparse(ast.parse(MODULE)) not in texts
    assert all(text.count("Text for readers.") == 2 for text in texts)


@pytest.mark.parametrize(
    ("text", "changes"),
    [
        ("x = 'a'", ["'a' -> with X"]),
        ("x = [i for i in y if i]", []),
        ("for i in y:\n    break", ["break -> continue"]),
        ("f()", ["without f()"]),
        ("x += y", ["assigned, not added"]),
        ("x = y is None", ["Is -> IsNot"]),
        ("T = TypeVar('T')", []),
        ("if TYPE_CHECKING:\n    x = 1", []),
        ("x = True", ["True -> False"]),
    ],
)
def test_what_is_changed(tmp_path: Path, text: str, changes: list[str]) -> None:
    assert [change for _, change, _ in changed(tmp_path, text)] == changes


def test_mutants_of_our_own_modules_can_be_distinguished() -> None:
    path = ROOT / "src" / "zerograd" / "core" / "lifecycle.py"
    found = list(own_mutants.mutants(path))
    assert len({(one.key, one.number) for one in found}) == len(found) > 200
