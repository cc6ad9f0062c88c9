"""The worked examples of CONTRIBUTING.md work: a rule, a framework and an output format."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from support.command import FORGOTTEN_ZERO, write, zerograd
from support.copies import extended
from support.paths import ROOT

PAGE = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
REPEATED = FORGOTTEN_ZERO.replace(
    "    loss.backward()",
    "    optimizer.zero_grad()\n    optimizer.zero_grad()\n    loss.backward()",
)
TRAINER = """\
import torch
from quicktrain import Trainer

model = torch.nn.Linear(1, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
trainer = Trainer()
for x in torch.ones(3, 1):
    trainer.backward(model(x).sum())
    trainer.update(optimizer)
"""
DISCARDED = TRAINER.replace("    trainer.update", "    optimizer.zero_grad()\n    trainer.update")


def example(path: str) -> str:
    """The code after the first mention of a path."""
    assert f"`src/zerograd/{path}`" in PAGE
    after = PAGE.partition(f"`src/zerograd/{path}`")[2]
    match = re.search(r"^(```+)python\n(.*?)^\1$", after, re.DOTALL | re.MULTILINE)
    assert match is not None
    return match[2]


@pytest.fixture(scope="module")
def package(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the package with all examples."""
    paths = ("rules/repeated_clear.py", "static/frameworks/quicktrain.py", "report/csv.py")
    lines = {
        "rules/catalogue.py": ('    "self_backward",', '    "repeated_clear",'),
        "static/frameworks/registry.py": ('    "timm",', '    "quicktrain",'),
        "report/formats.py": ('    "github": Format(),', '    "csv": Format(),'),
    }
    for _, line in lines.values():
        assert f"`{line.strip()}`" in PAGE
    files = {path: example(path) for path in paths}
    return extended(tmp_path_factory.mktemp("copy"), files, lines)


@pytest.mark.parametrize(
    ("code", "printed"),
    [
        (REPEATED, "ZG150,train.py,8\n"),
        (TRAINER, ""),
        (DISCARDED, "ZG102,train.py,9\nZG150,train.py,10\n"),
    ],
    ids=["rule", "framework, right", "framework, wrong"],
)
def test_an_example_does_what_it_says(
    package: Path, tmp_path: Path, code: str, printed: str
) -> None:
    work = write(tmp_path / "work", {"train.py": code})
    done = zerograd("check", "train.py", "--format", "csv", cwd=work, PYTHONPATH=str(package))
    assert (done.stdout, done.returncode) == (printed, int(bool(printed))), done.stderr
