"""What is built is what users get: the wheel holds all it needs and its command works."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import zipfile
from email.parser import Parser
from importlib.metadata import version
from pathlib import Path

import pytest

import zerograd
from support import tiers
from support.paths import ROOT


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    target = tmp_path_factory.mktemp("dist")
    command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(target)]
    subprocess.run(command, cwd=ROOT, check=True, capture_output=True, timeout=120)
    (built,) = target.glob("*.whl")
    return built


def test_the_wheel_holds_every_source_file_and_the_licence(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
    package = ROOT / "src" / "zerograd"
    expected = {
        path.relative_to(package.parent).as_posix()
        for path in package.rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    assert "zerograd/py.typed" in expected
    assert expected == {name for name in names if name.startswith("zerograd/")}
    assert any(name.endswith("licenses/LICENSE") for name in names)


def test_the_wheel_needs_torch_only_as_an_extra(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        (name,) = (name for name in archive.namelist() if name.endswith(".dist-info/METADATA"))
        metadata = Parser().parsestr(archive.read(name).decode())
    assert metadata["License-Expression"] == "Apache-2.0"
    assert metadata["Requires-Python"] == ">=3.10"
    needed = metadata.get_all("Requires-Dist") or []
    assert [one for one in needed if "extra ==" not in one] == [
        "tomli>=2.0; python_version < '3.11'"
    ]
    assert "torch>=2.4; extra == 'torch'" in needed


def test_the_installed_wheel_runs_without_anything_else(wheel: Path, tmp_path: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(tmp_path)
    code = "import sys; sys.path.insert(0, sys.argv.pop(1)); from zerograd.cli.main import main; main()"
    command = [sys.executable, "-I", "-S", "-c", code, str(tmp_path), "--version"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.stdout.strip() == f"zerograd {zerograd.__version__}", done.stderr


def test_the_version_is_said_once() -> None:
    assert version("zerograd") == zerograd.__version__
    changelog = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    assert re.findall(r"^## \[(.+?)\]", changelog, re.MULTILINE)[:1] in (
        ["Unreleased"],
        [zerograd.__version__],
    )


def test_every_development_requirement_is_pinned() -> None:
    folder = ROOT / "requirements"
    pins = re.findall(r"^([\w-]+)==", (folder / "constraints.txt").read_text(), re.MULTILINE)
    assert pins[0] == "torch"
    for name in ("build", "base", "dev"):
        asked = re.findall(r"^[\w-]+", (folder / f"{name}.in").read_text(), re.MULTILINE)
        assert asked
        assert set(asked) <= set(pins)


@pytest.mark.parametrize("name", ["build", "base", "dev", "docs", "libraries"])
def test_every_requirement_that_is_installed_has_its_version_and_its_hashes(name: str) -> None:
    text = (ROOT / "requirements" / f"{name}.txt").read_text()
    entries = re.split(r"\n(?=\w)", re.sub(r"(?m)^ *#.*\n", "", text))
    assert len(entries) > 2
    for entry in entries:
        assert re.match(r"[\w.\[\]-]+==\S+ .*\\\n +--hash=sha256:[0-9a-f]{64}", entry), entry


@tiers.long
def test_wheel_and_sdist_are_the_same_bytes_wherever_and_whenever_they_are_built(
    tmp_path: Path,
) -> None:
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, check=True)
    built: list[dict[str, bytes]] = []
    for number, folder in enumerate(("here", "somewhere/else")):
        copy = tmp_path / folder
        for name in listed.stdout.decode().split("\0"):
            if name.startswith(
                ("src/", "README", "LICENSE", "CHANGELOG", "pyproject", ".gitignore")
            ):
                target = copy / name
                target.parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(ROOT / name, target)
                os.utime(target, (1_600_000_000 + number, 1_600_000_000 + number))
        out = tmp_path / f"dist{number}"
        command = [sys.executable, "-m", "hatchling", "build", "-d", str(out)]
        subprocess.run(command, cwd=copy, check=True, capture_output=True, timeout=120)
        built.append({path.name: path.read_bytes() for path in out.iterdir()})
    assert len(built[0]) == 2
    assert built[0] == built[1]
