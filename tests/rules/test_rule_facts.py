"""No module outside `rules` knows a rule: what is true of one is written in the rule."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from support.paths import ROOT
from zerograd.rules.catalogue import PAGES

SOURCE = ROOT / "src" / "zerograd"
MODULES = sorted(
    path for path in SOURCE.rglob("*.py") if path.relative_to(SOURCE).parts[0] != "rules"
)
CODES = [page.code for page in PAGES]
NAMES = {page.name for page in PAGES}
NAMED = re.compile("|".join([r"\bZG\d", *(rf"\b{name}\b" for name in sorted(NAMES))]))


def constants(text: str) -> Iterator[ast.Constant]:
    """The strings of a module, without its docstrings."""
    tree = ast.parse(text)
    docs = {
        id(node.value)
        for node in ast.walk(tree)
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in docs:
            yield node


def is_code_or_name(value: str) -> bool:
    """Whether a string equals or begins a code, or is a rule's name."""
    begins = len(value) > 1 and any(code.startswith(value) for code in CODES)
    return begins or value in NAMES


@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(SOURCE)))
def test_no_string_is_a_code_or_a_name_of_a_rule(path: Path) -> None:
    found = list(constants(path.read_text(encoding="utf-8")))
    assert [node.lineno for node in found if is_code_or_name(str(node.value))] == []
    # The help of a command shows how rules are named.
    if path.parent.name != "cli":
        assert [node.lineno for node in found if NAMED.search(str(node.value))] == []


@pytest.mark.parametrize(
    "text",
    [
        "f('ZG101')",
        "x = {'ZG3'}",
        "f'ZG{n}'",
        "f('stale-gradient')",
        "if a == 'unused-allow': pass",
    ],
)
def test_such_a_string_would_be_found(text: str) -> None:
    assert any(is_code_or_name(str(node.value)) for node in constants(text))


def test_docstrings_and_other_strings_are_not() -> None:
    text = '"""ZG101"""\nx = 1\n"""stale-gradient"""\ny = ["Z", "stale gradient", "zg101"]\n'
    assert not any(is_code_or_name(str(node.value)) for node in constants(text))


@pytest.mark.parametrize("path", sorted((SOURCE / "fix").glob("*.py")), ids=lambda path: path.stem)
def test_a_fix_names_only_its_own_rule(path: Path) -> None:
    own = {page.code for page in PAGES if page.name.replace("-", "_") == path.stem}
    named = set(re.findall(r"ZG\d+", path.read_text(encoding="utf-8")))
    assert named == own
