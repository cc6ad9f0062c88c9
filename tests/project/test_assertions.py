"""Every test asserts something, itself or through a helper that it calls by name."""

from __future__ import annotations

import ast
from functools import cache
from pathlib import Path
from typing import NamedTuple

import pytest

from support.paths import ROOT

TESTS = ROOT / "tests"
MODULES = sorted(TESTS.rglob("test_*.py"))
EXPECTING = {"pytest.raises", "pytest.warns", "pytest.fail"}


class Function(NamedTuple):
    """What a function does that matters here."""

    asserts: bool
    calls: frozenset[str]


@cache
def functions(path: Path) -> dict[str, Function]:
    """The functions at the top of a module, and those that it imports from `support`."""
    found: dict[str, Function] = {}
    for node in ast.parse(path.read_text(encoding="utf-8")).body:
        if isinstance(node, ast.FunctionDef):
            found[node.name] = _function(node)
        elif isinstance(node, ast.ImportFrom) and (node.module or "").startswith("support"):
            assert node.module is not None
            for alias in node.names:
                name = alias.asname or alias.name
                helpers = TESTS / f"{node.module.replace('.', '/')}.py"
                if helpers.exists():
                    helper = functions(helpers).get(alias.name)
                    asserts = helper is not None and _asserts(helpers, alias.name, frozenset())
                    found[name] = Function(asserts, frozenset())
    return found


def _function(node: ast.FunctionDef) -> Function:
    asserts, calls = False, set()
    for part in ast.walk(node):
        if isinstance(part, ast.Assert):
            asserts = True
        elif isinstance(part, ast.Call):
            called = ast.unparse(part.func)
            # The last one is of the results of pytester.
            asserts = asserts or called in EXPECTING or called.endswith(".assert_outcomes")
            calls.add(called)
    return Function(asserts, frozenset(calls))


def _asserts(path: Path, name: str, seen: frozenset[str]) -> bool:
    function = functions(path).get(name)
    if function is None or name in seen:
        return False
    return function.asserts or any(_asserts(path, one, seen | {name}) for one in function.calls)


def without(path: Path) -> list[str]:
    """The tests of a module that cannot fail but by raising."""
    tests = [name for name in functions(path) if name.startswith("test_")]
    return [name for name in tests if not _asserts(path, name, frozenset())]


@pytest.mark.parametrize("path", MODULES, ids=lambda path: path.stem)
def test_every_test_asserts(path: Path) -> None:
    assert without(path) == []


def test_a_test_without_an_assertion_is_noticed(tmp_path: Path) -> None:
    module = tmp_path / "test_module.py"
    module.write_text(
        "from support.training import assert_found, net\n"
        "def helper(): assert 1\n"
        "def through(): helper()\n"
        "def looping(): looping()\n"
        "def test_a(): assert 1\n"
        "def test_b(): through()\n"
        "def test_c(): assert_found(1)\n"
        "def test_d():\n    with pytest.raises(ValueError): pass\n"
        "def test_e(): net()\n"
        "def test_f(): looping()\n"
    )
    assert without(module) == ["test_e", "test_f"]
