"""The extension for VS Code: its client speaks to the real server in node, and it can be packaged."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

import zerograd
from support import tiers
from support.paths import ROOT

EXTENSION = ROOT / "editors" / "vscode"
MANIFEST = json.loads((EXTENSION / "package.json").read_text(encoding="utf-8"))
PAGE = (ROOT / "docs" / "howto" / "editors.md").read_text(encoding="utf-8")


def npm(folder: Path, *words: str) -> str:
    """Run npm; what it prints."""
    command = shutil.which("npm")
    if command is None or shutil.which("node") is None:
        pytest.skip("there is no node here: https://nodejs.org")
    server = json.dumps([sys.executable, "-m", "zerograd", "server"])
    done = subprocess.run(
        [command, *words],
        cwd=folder,
        env={**os.environ, "ZEROGRAD_COMMAND": server},
        capture_output=True,
        text=True,
        timeout=280,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The extension with what it needs, in a folder of its own."""
    folder = tmp_path_factory.mktemp("extension") / "vscode"
    shutil.copytree(EXTENSION, folder, ignore=shutil.ignore_patterns("node_modules", "*.vsix"))
    npm(folder, "ci", "--ignore-scripts", "--no-audit", "--no-fund")
    return folder


@tiers.long
def test_the_client_shows_what_the_server_finds(installed: Path) -> None:
    printed = npm(installed, "test")
    assert re.search(r"^# pass 2$", printed, re.MULTILINE), printed


@tiers.long
def test_the_extension_is_packaged_without_its_tests(installed: Path) -> None:
    npm(installed, "run", "package")
    with zipfile.ZipFile(installed / f"zerograd-{zerograd.__version__}.vsix") as archive:
        names = archive.namelist()
    assert "extension/extension.js" in names
    assert any(name.startswith("extension/node_modules/vscode-languageclient/") for name in names)
    assert not [name for name in names if name.startswith("extension/test/")]


def test_the_extension_has_the_version_of_zerograd() -> None:
    lock = json.loads((EXTENSION / "package-lock.json").read_text(encoding="utf-8"))
    assert MANIFEST["version"] == lock["version"] == zerograd.__version__
    assert f"zerograd-{zerograd.__version__}.vsix" in PAGE


def test_the_lock_names_no_host() -> None:
    assert '"resolved"' not in (EXTENSION / "package-lock.json").read_text(encoding="utf-8")


def test_the_page_knows_the_settings_of_the_extension() -> None:
    settings = MANIFEST["contributes"]["configuration"]["properties"]
    assert list(settings) == ["zerograd.command"]
    assert '"zerograd.command"' in PAGE
    assert settings["zerograd.command"]["default"] == ["zerograd", "server"]
