"""README.md shows the real output, rules and options."""

from __future__ import annotations

import importlib.util
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

from support import tiers
from support.command import Done, zerograd
from support.paths import ROOT

if TYPE_CHECKING:
    import pytest

README = ROOT / "README.md"


def run(*command: str | Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *map(str, command)],
        cwd=ROOT,
        env={**os.environ, "NO_COLOR": "1", "PYTHONUTF8": "1"},
        capture_output=True,
        encoding="utf-8",
        timeout=60,
        check=False,
    )


def test_the_finding_and_the_rules_are_what_the_tool_says(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.syspath_prepend(str(ROOT / "docs"))
    spec = importlib.util.spec_from_file_location("readme", ROOT / "docs" / "readme.py")
    assert spec is not None
    assert spec.loader is not None
    readme = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(readme)

    def warm(*command: str) -> Done:
        return zerograd(*command, readme.EXAMPLE, cwd=ROOT, NO_COLOR="1")

    monkeypatch.setattr(readme, "_said", warm)
    monkeypatch.setattr(sys, "argv", ["readme.py", "--check"])
    assert readme.main() == 0, f"run `python docs/readme.py`:\n{capsys.readouterr().out}"


@tiers.long
def test_the_picture_is_what_torch_computes() -> None:
    done = run("docs/picture.py", "--check")
    assert done.returncode == 0, done.stdout + done.stderr


@tiers.long
def test_a_readme_that_says_something_else_is_noticed(tmp_path: Path) -> None:
    printed = README.read_text(encoding="utf-8")
    for true, untrue in (("| ZG101 |", "| ZG999 |"), ("ZG101 stale-gradient", "all is well")):
        assert true in printed
        copy = tmp_path / "README.md"
        copy.write_text(printed.replace(true, untrue), encoding="utf-8")
        done = run("docs/readme.py", "--check", copy)
        assert done.returncode == 1
        assert f"-{untrue}" in done.stdout or untrue in done.stdout


def test_every_option_in_the_readme_exists() -> None:
    printed = README.read_text(encoding="utf-8").replace("train.py --lr", "train.py")
    options = set(re.findall(r"(?<![\w-])--[a-z][a-z-]+", printed))
    pages = [run("-m", "zerograd", command, "--help").stdout for command in ("check", "run")]
    assert options
    assert options <= set(re.findall(r"--[a-z][a-z-]+", "".join(pages)))


def test_every_file_the_readme_points_at_exists() -> None:
    for name in ("README.md", "CONTRIBUTING.md", "docs/architecture.md", "docs/fixes.md"):
        page = ROOT / name
        for target in re.findall(r"\]\((?!https?:|#)([^)#]+)", page.read_text(encoding="utf-8")):
            assert (page.parent / target).exists(), f"{name} points at {target}"


def test_the_lines_that_install_name_the_package_and_its_command() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    printed = README.read_text(encoding="utf-8")
    package = project["name"]
    assert package in project["scripts"], "uvx runs the command that has the name of the package"
    for line in (f"pip install {package} ", f"pipx install {package} ", f"uvx {package} check "):
        assert f"\n{line}" in printed


@tiers.long
def test_the_demo_goes_as_expected() -> None:
    done = run("docs/demo.py")
    assert done.returncode == 0, done.stdout
    assert "used by step() 8.0" in done.stdout
    assert "ZG101 stale-gradient" in done.stdout
