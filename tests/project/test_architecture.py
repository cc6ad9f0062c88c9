"""Who may import whom, that stems and classes are unique, and that the checker never loads torch."""

from __future__ import annotations

import ast
import json
import re
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from support.command import FORGOTTEN_ZERO, environment
from support.paths import ROOT

SOURCE = ROOT / "src" / "zerograd"

ENTRANCES = {"zerograd", "zerograd.__main__"}
"""The public API and `python -m zerograd` may import everything, and nothing imports them."""

MAY_LOAD_TORCH = {"runtime", "runtime.ranks", "stepper", "learn", "learn.lessons"}

SHARED_STEMS = {"rules", "fix", "cli", "integrations"}
"""A fix is named like its rule, a command like what it does, an integration like its library; other stems
are unique."""

MARKS_IN_GRAPHS = {"zerograd.scaled", "zerograd.unscaled"}

_NAMES_A_MODULE = re.compile(r"zerograd(\.\w+)+\.?")
_MAY_IMPORT = re.compile(r"^May import: (.*)\.$", re.MULTILINE)


def modules() -> dict[str, ast.Module]:
    """Every module of the package, by its dotted name."""
    found = {}
    for path in sorted(SOURCE.rglob("*.py")):
        parts = path.relative_to(SOURCE.parent).with_suffix("").parts
        name = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
        found[name] = ast.parse(path.read_text(encoding="utf-8"))
    return found


MODULES = modules()
PACKAGES = {
    ".".join(path.parent.relative_to(SOURCE).parts)
    for path in SOURCE.rglob("__init__.py")
    if path.parent != SOURCE
}
INSIDE = sorted(set(MODULES) - ENTRANCES)


def package(module: str) -> str:
    """The package a module belongs to: `zerograd.static.read.source` is in `static.read`."""
    inner = module.removeprefix("zerograd.")
    return inner if inner in PACKAGES else inner.rpartition(".")[0]


def imports(module: str) -> set[str]:
    """The modules that a module imports, wherever the import is; for types, too."""
    found = set()
    for node in ast.walk(MODULES[module]):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert not node.level, f"{module} has a relative import"
            assert node.module is not None
            for alias in node.names:
                if (node.module, alias.name) == ("zerograd", "__version__"):
                    continue  # a constant, not a way back up
                inner = f"{node.module}.{alias.name}"
                found.add(inner if inner in MODULES else node.module)
    return found


def own_imports(module: str) -> set[str]:
    return {name for name in imports(module) if name in MODULES}


def may_import(name: str) -> set[str]:
    """What the docstring of a package says that it may import."""
    doc = ast.get_docstring(MODULES[f"zerograd.{name}"]) or ""
    said = _MAY_IMPORT.findall(doc)
    assert len(said) == 1, f"the docstring of {name} says once what it may import"
    return set() if said[0] == "nothing of zerograd" else set(said[0].split(", "))


def cycles(graph: dict[str, set[str]]) -> list[frozenset[str]]:
    """The strongly connected components that have more than one member."""
    reach = {name: set(seen) for name, seen in graph.items()}
    for middle in graph:
        for name in graph:
            if middle in reach[name]:
                reach[name] |= reach[middle]
    groups = {frozenset(b for b in graph if b in reach[a] and a in reach[b]) for a in graph}
    return [group for group in groups if group]


@pytest.mark.parametrize("module", INSIDE)
def test_a_module_imports_what_its_package_may_import(module: str) -> None:
    home = package(module)
    assert home, f"{module} lies flat: it belongs into a package"
    seen = {package(name) for name in own_imports(module) - ENTRANCES} - {home}
    upwards = seen - may_import(home)
    assert not upwards, f"{home} may import {sorted(may_import(home))}, not {sorted(upwards)}"
    assert not own_imports(module) & ENTRANCES


@pytest.mark.parametrize("name", sorted(PACKAGES))
def test_a_package_names_only_packages_that_it_imports(name: str) -> None:
    used = {
        package(seen)
        for module in INSIDE
        if package(module) == name
        for seen in own_imports(module) - ENTRANCES
    }
    assert may_import(name) == used - {name}
    assert len((ast.get_docstring(MODULES[f"zerograd.{name}"]) or "").splitlines()) >= 3


def test_packages_import_each_other_one_way() -> None:
    graph = {name: may_import(name) for name in PACKAGES}
    # Inside `runtime` the order is by module, which the next test keeps.
    graph["runtime.ranks"] -= {"runtime"}
    assert cycles(graph) == []


def test_no_module_is_part_of_an_import_cycle() -> None:
    assert cycles({name: own_imports(name) for name in MODULES}) == []


@pytest.mark.parametrize("module", sorted(MODULES))
def test_a_string_that_names_a_module_names_one_that_exists(module: str) -> None:
    """What is imported or looked up by a string fails late, or never, after a module was renamed."""
    named = {
        node.value.rstrip(".")
        for node in ast.walk(MODULES[module])
        if isinstance(node, ast.Constant) and isinstance(node.value, str)
        if _NAMES_A_MODULE.fullmatch(node.value)
    }
    assert named - set(MODULES) - MARKS_IN_GRAPHS == set()


def test_stems_of_modules_are_unique() -> None:
    stems = Counter(
        name.rpartition(".")[2]
        for name in INSIDE
        if name.removeprefix("zerograd.") not in PACKAGES and package(name) not in SHARED_STEMS
    )
    assert [stem for stem, count in stems.items() if count > 1] == []


def test_names_of_classes_are_unique() -> None:
    # The stepper shares no code with the rest, and each integration has the callback of its library.
    names = Counter(
        node.name
        for module in INSIDE
        if package(module) not in ("stepper", "integrations")
        for node in ast.walk(MODULES[module])
        if isinstance(node, ast.ClassDef) and not node.name.startswith("_")
    )
    assert [name for name, count in names.items() if count > 1] == []


def test_only_the_automaton_moves_states_and_checks_rules() -> None:
    """A lesson shows the table of the transitions."""
    movers, checkers = set(), set()
    for module, tree in MODULES.items():
        for node in ast.walk(tree):
            if isinstance(node, ast.Call):
                called = ast.unparse(node.func)
                movers |= {module} if called == "advance" else set()
                checkers |= {module} if called == "rule.check" else set()
    assert movers == {"zerograd.core.automaton", "zerograd.learn.lessons.bucket"}
    assert checkers == {"zerograd.core.automaton"}


@pytest.mark.parametrize("module", sorted(MODULES))
def test_no_import_names_torch_outside_the_parts_that_run_it(module: str) -> None:
    if package(module) not in MAY_LOAD_TORCH:
        assert not {name for name in imports(module) if name.split(".")[0] == "torch"}


@pytest.fixture
def without_torch(tmp_path: Path) -> dict[str, str]:
    """An environment in which `import torch` ends the process, children included."""
    poison = tmp_path / "poison"
    (poison / "torch").mkdir(parents=True)
    # SystemExit passes through every `except Exception` and `except ImportError`.
    (poison / "torch" / "__init__.py").write_text("raise SystemExit('torch was imported')\n")
    return environment(tmp_path / "cache", PYTHONPATH=str(poison))


def run(
    *command: str | Path, env: dict[str, str], cwd: Path | None = None
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *map(str, command)],
        env=env,
        cwd=cwd,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def test_the_poison_works(without_torch: dict[str, str]) -> None:
    done = run("-c", "try: import torch\nexcept Exception: pass", env=without_torch)
    assert done.returncode == 1
    assert "torch was imported" in done.stderr


def test_importing_zerograd_does_not_import_torch(without_torch: dict[str, str]) -> None:
    code = """\
import zerograd
for name in set(zerograd.__all__) - {"Stepper"}:
    getattr(zerograd, name)
print("done")
"""
    done = run("-c", code, env=without_torch)
    assert (done.returncode, done.stdout, done.stderr) == (0, "done\n", "")


def test_check_does_not_import_torch(without_torch: dict[str, str], tmp_path: Path) -> None:
    for number in range(3):
        (tmp_path / f"train{number}.py").write_text(FORGOTTEN_ZERO)
    for arguments in (["train0.py"], ["--jobs", "2", "."]):
        done = run("-m", "zerograd", "check", *arguments, env=without_torch, cwd=tmp_path)
        assert done.returncode == 1, done.stderr
        assert "ZG101" in done.stdout


@pytest.mark.skipif(sys.version_info < (3, 11), reason="Python 3.10 needs tomli to read TOML")
def test_check_needs_nothing_but_the_standard_library(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(FORGOTTEN_ZERO)
    (tmp_path / "pyproject.toml").write_text("[tool.zerograd]\nselect = ['ZG101']\n")
    env = environment(tmp_path / "cache", PYTHONPATH=str(SOURCE.parent))
    done = run("-S", "-m", "zerograd", "check", "train.py", env=env, cwd=tmp_path)
    assert done.returncode == 1, done.stderr
    assert "ZG101" in done.stdout


def test_a_check_of_a_plain_script_goes_through_few_modules_and_functions() -> None:
    """25 modules and 131 functions on Python 3.11, where each comprehension counts as a function."""
    done = subprocess.run(
        [sys.executable, ROOT / "bench" / "walk.py", "--only", "check", "--json"],
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    walk = json.loads(done.stdout)["check"]
    assert walk["modules"] <= 25
    assert walk["functions"] <= 131
