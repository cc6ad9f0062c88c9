"""Who clears around the calls of a function, by names."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from zerograd.static.read import callers
from zerograd.static.read.callers import may_be_cleared

if TYPE_CHECKING:
    import pytest

STEPS = "class A:\n    def improve(self, x):\n        f(x).backward()\n        self.opt.step()\n"


def project(folder: Path, **files: str) -> str:
    (folder / "setup.py").write_text("")
    (folder / "agent.py").write_text(STEPS)
    for name, text in files.items():
        (folder / f"{name}.py").write_text(text)
    return str(folder / "agent.py")


def asked(path: str, name: str = "improve") -> bool:
    return may_be_cleared(path, [name], ["improve"])


def test_nobody_clears_where_nobody_calls(tmp_path: Path) -> None:
    assert not asked(project(tmp_path))


def test_a_pipe_among_the_files_is_not_waited_for(tmp_path: Path) -> None:
    path = project(tmp_path)
    os.mkfifo(tmp_path / "pipe.py")
    assert not asked(path)
    assert not callers.is_mentioned_elsewhere(path, "opt", [], is_attribute=True)


def test_a_caller_that_clears_is_seen_whatever_it_calls_the_object(tmp_path: Path) -> None:
    caller = "def run(xs):\n    for x in xs:\n        it().improve(x)\n        opt.zero_grad()\n"
    assert asked(project(tmp_path, main=caller))


def test_a_caller_that_clears_for_its_own_backward_does_not_count(tmp_path: Path) -> None:
    caller = "def run(xs):\n    opt.zero_grad()\n    g(xs).backward()\n    opt.step()\n    it().improve(x)\n"
    assert not asked(project(tmp_path, main=caller))


def test_the_caller_of_a_caller_counts(tmp_path: Path) -> None:
    inner = "def one_round(x):\n    it().improve(x)\n"
    outer = "def run(xs):\n    for x in xs:\n        w.grad = None\n        one_round(x)\n"
    assert asked(project(tmp_path, inner=inner, outer=outer))


def test_a_helper_that_only_clears_counts_where_it_is_called(tmp_path: Path) -> None:
    helper = "def fresh(opt):\n    opt.zero_grad()\n"
    assert asked(project(tmp_path, helper=helper, main="fresh(o)\nit().improve(x)\n"))
    assert not asked(project(tmp_path, helper=helper, main="it().improve(x)\n"))


def test_a_function_that_is_handed_on_may_be_cleared(tmp_path: Path) -> None:
    assert asked(project(tmp_path, main="engine.add(agent.improve)\n"))


def test_of_a_large_project_nothing_is_known(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = project(tmp_path, main="pass\n")
    monkeypatch.setattr(callers, "MOST_FILES", 2)
    assert asked(path)


def test_of_a_large_project_the_part_around_a_file_is_looked_at(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    project(tmp_path, main="pass\n")
    part = tmp_path / "part"
    part.mkdir()
    (part / "base.py").write_text("class Base:\n    def before_step(self):\n        pass\n")
    assert callers.first_that_clears(str(part / "base.py"), {"before_step"}) == ""
    (part / "ours.py").write_text(
        "class Ours:\n    def before_step(self):\n        self.opt.zero_grad()\n"
    )
    monkeypatch.setattr(callers, "MOST_FILES", 2)
    assert callers.first_that_clears(str(part / "base.py"), {"before_step"}) == "before_step"
