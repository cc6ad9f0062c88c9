"""A new library is one file and one line: its table is added to a copy of the package."""

from __future__ import annotations

import json
import re
import shutil
from typing import TYPE_CHECKING

import pytest

from support.command import zerograd
from support.paths import ROOT

if TYPE_CHECKING:
    from pathlib import Path

TABLE = '''"""Nimbus: its rocket runs backward, and `launch` steps and clears."""

from zerograd.static.frameworks.table import Clears, Framework, LibraryCall, Role, RunsBackward, Steps, Whose

ROCKET = Role("rocket")

TABLE = Framework(
    packages=["nimbus"],
    classes={"Rocket": ROCKET},
    calls=[
        LibraryCall("run_backward", RunsBackward(required=True), on=ROCKET),
        LibraryCall("launch_step", Steps(Whose.FIRST), Clears(Whose.FIRST), on=ROCKET),
        LibraryCall("keep_step", Steps(Whose.FIRST), on=ROCKET),
    ],
)
'''
PROGRAM = """\
import torch
from nimbus import Rocket

model = torch.nn.Linear(1, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
rocket = Rocket()
for x in torch.ones(3, 1):
    rocket.run_backward(model(x).sum())
    rocket.{step}(optimizer)
"""


@pytest.fixture(scope="module")
def package(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the package with one table more; the folder it is in."""
    folder = tmp_path_factory.mktemp("copy")
    copied = shutil.copytree(
        ROOT / "src" / "zerograd",
        folder / "zerograd",
        ignore=shutil.ignore_patterns("__pycache__"),
    )
    (copied / "static" / "frameworks" / "nimbus.py").write_text(TABLE)
    registry = copied / "static" / "frameworks" / "registry.py"
    text, count = re.subn(
        r'( +)"accelerate",\n',
        r'\g<0>\1"nimbus",' + "\n",
        registry.read_text(encoding="utf-8"),
    )
    assert count == 1
    registry.write_text(text, encoding="utf-8")
    return folder


def codes(package: Path, folder: Path, step: str) -> list[str]:
    (folder / "train.py").write_text(PROGRAM.format(step=step))
    done = zerograd("check", "train.py", "--format", "json", cwd=folder, PYTHONPATH=str(package))
    return [finding["code"] for finding in json.loads(done.stdout)["findings"]]


def test_what_its_calls_do_is_known(package: Path, tmp_path: Path) -> None:
    assert codes(package, tmp_path, "keep_step") == ["ZG101"]
    assert codes(package, tmp_path, "launch_step") == []


def test_without_the_table_nothing_is_known(tmp_path: Path) -> None:
    assert codes(ROOT / "src", tmp_path, "keep_step") == []
