"""Which tests run against the installed wheel is derived from what they read."""

from __future__ import annotations

import ast

import pytest

from support import installed
from support.paths import ROOT

READERS = {path.relative_to(ROOT / "tests").as_posix() for path in installed.readers()}


def test_tests_of_documents_and_of_the_build_read_the_source_tree() -> None:
    assert {
        "project/test_readme.py",
        "project/test_package.py",
        "project/test_own_mutants.py",
        "rules/test_rule_facts.py",
    } <= READERS


def test_most_tests_do_not() -> None:
    all_of_them = list((ROOT / "tests").rglob("test_*.py"))
    assert len(READERS) < len(all_of_them) / 3
    assert not {"core/test_lifecycle.py", "static/test_cases.py", "runtime/test_watch.py"} & READERS


@pytest.mark.parametrize(
    ("text", "reads"),
    [
        ('x = ROOT / "docs"', True),
        ('x = ROOT / "tests" / "data"', False),
        ('x = ROOT / "tests/data"', False),
        ("f(cwd=ROOT)", True),
        ("from support.paths import ROOT", False),
    ],
)
def test_a_use_of_another_folder_than_the_tests_reads_the_tree(text: str, reads: bool) -> None:
    assert installed._uses_root(ast.parse(text)) is reads
