"""The house is built one way up: who may import whom, and that the checker never loads torch."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

from command import FORGOTTEN_ZERO, environment

ROOT = Path(__file__).parents[1]
SOURCE = ROOT / "src" / "zerograd"

LAYERS = (
    {"events", "guard", "patterns", "records", "selection", "stepper"},
    {"lifecycle"},
    {"rule"},
    {"rules", "finding", "ledger", "flow", "paths", "timeline"},
    {"comments"},
    {"needs", "edges"},
    {"sweep"},
    {"explore"},
    {"live"},
    {"static", "runtime"},
    {"merge"},
    {"settings", "snippet"},
    {"discover", "cache", "fixes"},
    {"repair"},
    {"rewrite"},
    {"check"},
    {"run", "learn", "explain"},
    {"child"},
    {"boot"},
    {"replay"},
    {"page"},
    {"commands"},
    {"cli"},
)
"""From the bottom up. A part sees the layers below its own, and of its own layer only itself."""

RENDERERS_SEE = {"report", "finding", "events", "timeline"}
FRONT_DOOR = {"__init__", "__main__"}
"""What users enter by: it may see everything, and nothing inside goes out through it."""

MAY_LOAD_TORCH = {"runtime", "stepper", "learn"}


def part(module: str) -> str:
    """The part of the house a module belongs to: `zerograd.static.read.vocabulary` is in `static`."""
    parts = module.split(".")
    return parts[1] if len(parts) > 1 else "__init__"


def modules() -> dict[str, ast.Module]:
    """Every module of the package, by its dotted name."""
    found = {}
    for path in sorted(SOURCE.rglob("*.py")):
        parts = path.relative_to(SOURCE.parent).with_suffix("").parts
        name = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
        found[name] = ast.parse(path.read_text(encoding="utf-8"))
    return found


MODULES = modules()


def imports(module: str) -> set[str]:
    """The modules that a module imports, wherever in it the import stands."""
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


def visible_from(name: str) -> set[str]:
    """The parts that a part may import."""
    if name in FRONT_DOOR:
        return set().union(*LAYERS) | {"report", "__init__"}
    if name == "report":
        return RENDERERS_SEE
    for height, layer in enumerate(LAYERS):
        if name in layer:
            below = set().union(*LAYERS[:height]) | {name}
            return (
                below | {"report"} if name in ("run", "learn", "page", "commands", "cli") else below
            )
    raise AssertionError(
        f"zerograd.{name} has no place in LAYERS: give it one, or move what it does"
    )


@pytest.mark.parametrize("module", sorted(MODULES))
def test_imports_point_one_way(module: str) -> None:
    allowed = visible_from(part(module))
    ours = {name for name in imports(module) if name.split(".")[0] == "zerograd"}
    upwards = sorted(name for name in ours if part(name) not in allowed)
    assert not upwards, f"{module} sees {sorted(allowed)}, but imports {upwards}"


@pytest.mark.parametrize("module", sorted(MODULES))
def test_no_import_names_torch_outside_the_parts_that_run_it(module: str) -> None:
    if part(module) not in MAY_LOAD_TORCH:
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
