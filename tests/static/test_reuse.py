"""A check that reuses what it knows of earlier texts finds what a check without a memory finds."""

from __future__ import annotations

import os
import random
import re
from pathlib import Path

import pytest

from support import tiers
from support.casefile import load_all
from support.command import write
from support.edits import edited
from support.paths import ROOT
from zerograd.core.finding import Finding
from zerograd.static.check_file import result_for_bytes
from zerograd.static.reuse import FileMemory

LOOP = """\
def train_NUMBER(model, loader):
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for x in loader:
        loss = model(x).sum()
        loss.backward()
        optimizer.step()
"""
FILE = "import torch\n\n\n" + "\n\n".join(LOOP.replace("NUMBER", str(n)) for n in range(4))

CASES = [text for case in load_all() for name, text in case.files.items() if name.endswith(".py")]


def checked(text: str, memory: FileMemory | None, path: str = "train.py") -> tuple[Finding, ...]:
    verdict = result_for_bytes(text.encode(), path, memory=memory)
    assert not [problem for problem in verdict.problems if "failed" in problem.message]
    return verdict.findings


class Interpreted:
    """Counts the functions that are interpreted."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        from zerograd.static.roots import Roots

        self.names: list[str] = []
        original = Roots._interpret

        def counted(roots, fn, *given, **named):  # type: ignore[no-untyped-def]
            self.names.append(fn.name if fn is not None else "")
            return original(roots, fn, *given, **named)

        monkeypatch.setattr(Roots, "_interpret", counted)


def test_only_the_changed_function_is_interpreted_again(monkeypatch: pytest.MonkeyPatch) -> None:
    memory = FileMemory()
    first = checked(FILE, memory)
    assert len(first) == 4
    seen = Interpreted(monkeypatch)
    changed = FILE.replace(
        "def train_2(model, loader):\n", "def train_2(model, loader):\n    n = 1\n"
    )
    second = checked(changed, memory)
    assert seen.names == ["train_2"]
    assert second == checked(changed, None)
    moved = [
        after.site.line - before.site.line for before, after in zip(first, second, strict=True)
    ]
    assert moved == [0, 0, 1, 1]


def test_a_helper_concerns_those_who_call_it(monkeypatch: pytest.MonkeyPatch) -> None:
    helper = "\n\ndef finish(optimizer):\n    optimizer.step()\n"
    text = FILE.replace("optimizer.step()", "finish(optimizer)", 1) + helper
    memory = FileMemory()
    assert len(checked(text, memory)) == 4
    seen = Interpreted(monkeypatch)
    right = text.replace(helper, helper + "    optimizer.zero_grad()\n")
    assert checked(right, memory) == checked(right, None)
    assert seen.names[0] == "train_0"
    assert "train_3" not in seen.names[:1]


def test_a_line_that_a_doubt_names_moves() -> None:
    text = """import torch


def train(model, optimizer, loader):
    for x, targets in loader:
        self.optimizer.zero_grad()
        for target in targets:
            model(x, target).backward()
        optimizer.step()
"""
    memory = FileMemory()
    (first,) = checked(text, memory)
    assert first.when == ("not (`self.optimizer.zero_grad()` in line 6 clears it, too)",)
    (moved,) = checked(text.replace("\n\n\n", "\n\n\n\n"), memory)
    assert moved.when == ("not (`self.optimizer.zero_grad()` in line 7 clears it, too)",)


def test_a_new_import_concerns_every_function() -> None:
    memory = FileMemory()
    assert len(checked(FILE, memory)) == 4
    other = FILE.replace("import torch\n", "import mxnet\n")
    assert checked(other, memory) == checked(other, None) == ()


def test_a_changed_file_of_the_project_counts(tmp_path: Path) -> None:
    helper = "import torch\n\n\ndef update(optimizer, loss):\n    loss.backward()\n    optimizer.step()\n"
    write(tmp_path, {"pyproject.toml": "", "loops.py": helper})
    text = FILE.replace("import torch\n", "import torch\nfrom loops import update\n").replace(
        "        loss.backward()\n        optimizer.step()\n", "        update(optimizer, loss)\n"
    )
    path = str(tmp_path / "train.py")
    memory = FileMemory()
    assert checked(text, memory, path)
    write(tmp_path, {"loops.py": helper + "    optimizer.zero_grad()\n"})
    os.utime(tmp_path / "loops.py", ns=(1, 1))
    assert checked(text, memory, path) == checked(text, None, path) == ()


def texts(chance: random.Random) -> str:
    """A file with several functions, classes and scripts, some of which know each other's names."""
    if chance.random() < 0.2:
        return FILE
    return "\n\n".join(chance.sample(CASES, chance.randrange(1, 6)))


@pytest.mark.parametrize("seed", tiers.sample(range(40), 4))
def test_after_random_edits_the_findings_are_those_of_a_full_check(seed: int) -> None:
    chance = random.Random(seed)
    text, memory = texts(chance), FileMemory()
    for _ in range(8):
        assert checked(text, memory) == checked(text, None)
        text = edited(text, chance)
    assert memory.names or not memory.units


WHOLE = re.compile(
    r"facts\.values\(\)|\.methods\.items\(\)|\bwalk\((?:\w+\.)*tree\)|facts\[(?:\w+\.)+tree\]"
)
KNOWN = {
    "analyse.py": "whether anything mentions gradients",
    "entry_states.py": "whether the file only scales, and where",
    "explore_root.py": "whether any code reads .grad",
    "interp/emitter.py": "whether an accelerator accumulates",
    "interp/loops.py": "receivers, by their first name",
    "obviously_right.py": "asked by roots, in every analysis",
    "never_stepped.py": "asked in every analysis",
    "read/file_index.py": "makes the index",
    "read/module.py": "makes the index",
    "reuse.py": "is what this is about",
    "roots.py": "asked in every analysis",
    "untrained_modules.py": "asked in every analysis",
}
"""Who asks about a whole file. What a root learns about it must be in `Reuse._facts_of_the_file`."""


def test_nobody_else_asks_about_a_whole_file() -> None:
    static = ROOT / "src" / "zerograd" / "static"
    asking = {
        path.relative_to(static).as_posix()
        for path in static.rglob("*.py")
        if WHOLE.search(path.read_text(encoding="utf-8"))
    }
    assert asking == set(KNOWN), (
        "add the fact to Reuse._facts_of_the_file, then the module to KNOWN"
    )
