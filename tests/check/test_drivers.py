"""A directory is checked as a program: a loop in one file, and the step that it repeats in another."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from zerograd.check.cache import Cache, stamp
from zerograd.check.check_session import CheckOptions, run
from zerograd.check.drivers import drivers
from zerograd.static.check_file import FileResult, result_for_file

ENGINE = """
import torch
class Engine:
    def __init__(self, net):
        self.net = net
        self.opt = torch.optim.SGD(net.parameters(), lr=0.1)
    def train_step(self, x):
        self.net(x).mean().backward()
        self.opt.step()
"""
QUIET = ENGINE.replace(
    "def train_step(self, x):", "def other(self, x):\n        self.opt.zero_grad()"
)
LOOP = """
from engine import Engine
def main(net, loader):
    engine = Engine(net)
    for batch in loader:
        engine.train_step(batch)
"""
LONG_AGO = 1_600_000_000


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("ZEROGRAD_CACHE_DIR", str(tmp_path / "cache"))
    folder = tmp_path / "here"
    folder.mkdir()
    monkeypatch.chdir(folder)
    return folder


def put(path: Path, text: str, when: int = LONG_AGO) -> None:
    path.write_text(text)
    os.utime(path, (when, when))


def old(folder: Path, when: int = LONG_AGO) -> None:
    """Let a folder, and the one above it, look as if nothing had changed in them for long."""
    for one in (folder, folder.parent):
        os.utime(one, (when, when))


def test_a_finding_names_the_loop_that_repeats_its_step(here: Path) -> None:
    put(here / "engine.py", ENGINE + "    def reset(self):\n        self.opt.zero_grad()\n")
    put(here / "bad.py", LOOP)
    put(here / "good.py", LOOP.replace("        engine", "        engine.reset()\n        engine"))
    report = run(CheckOptions((".",), cache=False, jobs=1), lambda _done, _all: None).report
    (finding,) = report.findings
    assert finding.site.path == "engine.py"
    assert ("bad.py", 5) in [(note.site.path, note.site.line) for note in finding.notes]


def found(*, cache: bool = True) -> list[tuple[str, str, int]]:
    outcome = run(CheckOptions((".",), cache=cache, jobs=1), lambda _done, _all: None)
    assert not outcome.report.errors
    return [(one.code, one.site.path, one.site.line) for one in outcome.report.findings]


STALE = ("ZG101", "engine.py", 8)


def test_a_loop_without_gradients_is_read_with_the_step_it_repeats(here: Path) -> None:
    put(here / "engine.py", ENGINE)
    put(here / "train.py", LOOP)
    assert found(cache=False) == [STALE]


def test_a_warm_check_finds_what_a_cold_one_does(here: Path) -> None:
    put(here / "engine.py", ENGINE)
    put(here / "train.py", LOOP)
    assert found() == found() == found(cache=False) == [STALE]


def test_an_unchanged_loop_is_read_again_if_the_step_appears(here: Path) -> None:
    put(here / "engine.py", QUIET)
    put(here / "train.py", LOOP)
    assert found() == []
    put(here / "engine.py", ENGINE, LONG_AGO + 1)
    assert found() == [STALE]
    put(here / "engine.py", QUIET, LONG_AGO + 2)
    assert found() == []


def test_a_verdict_that_asked_for_callers_is_kept_until_one_comes_or_goes(here: Path) -> None:
    put(here / "setup.py", "")
    put(here / "engine.py", ENGINE.replace("train_step", "improve"))
    old(here)
    assert found() == [STALE]
    assert Cache((".",)).get("engine.py", *stamp("engine.py")) is not None
    assert found() == [STALE]
    clears = "def run(engine, batch):\n    engine.opt.zero_grad()\n    engine.improve(batch)\n"
    put(here / "other.py", clears)
    old(here, LONG_AGO + 1)
    assert found() == found(cache=False) == []
    put(here / "other.py", "x = 1\n", LONG_AGO + 2)
    assert found() == [STALE]
    put(here / "other.py", clears, LONG_AGO + 3)
    assert found() == []
    (here / "other.py").unlink()
    old(here, LONG_AGO + 4)
    assert found() == [STALE]


def test_the_order_of_files_does_not_matter(here: Path) -> None:
    for name in ("a", "b", "engine", "z"):
        put(here / f"{name}.py", ENGINE if name == "engine" else LOOP)
    verdicts = {name: result_for_file(name) for name in ("a.py", "b.py", "engine.py", "z.py")}
    forwards = drivers(verdicts)
    backwards = drivers(dict(reversed(verdicts.items())))
    assert sorted(forwards) == sorted(backwards) == ["a.py", "b.py", "z.py"]


def test_a_file_that_imports_nothing_of_the_project_is_not_read_again() -> None:
    assert drivers({"a.py": FileResult(unparsed=b"import glob"), "b.py": FileResult()}) == []


CALLABLE = """
import torch
class NativeScaler:
    def __init__(self):
        self._scaler = torch.cuda.amp.GradScaler()
    def __call__(self, loss, optimizer, update_grad=True):
        self._scaler.scale(loss).backward()
        if update_grad:
            self._scaler.step(optimizer)
            self._scaler.update()
"""
EPOCH = """
def one_epoch(model, loader, optimizer, loss_scaler, accum_iter):
    for i, x in enumerate(loader):
        due = (i + 1) % accum_iter == 0 or i + 1 == len(loader)
        loss = model(x).mean() / accum_iter
        loss_scaler(loss, optimizer, update_grad=due)
"""
MAIN = """
import torch
from scaling import NativeScaler
from epoch import one_epoch
def main(args, loader):
    model = torch.nn.Linear(3, 3)
    optimizer = torch.optim.AdamW(model.parameters())
    scaler = NativeScaler()
    for _ in range(args.epochs):
        one_epoch(model, loader, optimizer, scaler, args.accum_iter)
"""


def test_a_loop_that_calls_a_scaler_of_another_file_is_told_once(here: Path) -> None:
    put(here / "scaling.py", CALLABLE)
    put(here / "epoch.py", EPOCH)
    put(here / "main.py", MAIN)
    report = run(CheckOptions((".",), cache=False, jobs=1), lambda _done, _all: None).report
    told = [(one.code, one.site.path, one.site.line) for one in report.findings]
    assert told == [("ZG101", "epoch.py", 6)]


def test_a_callback_that_clips_is_read_where_a_file_hands_it_to_a_loop(here: Path) -> None:
    put(
        here / "main.py",
        "import c, r\nfrom c import Clip\nfrom r import Runner\nRunner([Clip()])\n",
    )
    put(here / "r.py", ENGINE.replace("Engine", "Runner").replace("x):", "x):\n      for x in x:"))
    callback = "def on_end(self, it):\n        torch.nn.utils.clip_grad_norm_(it.params, 1.0)\n"
    put(here / "c.py", f"import torch\nclass Clip:\n    {callback}")
    verdicts = {name: result_for_file(name) for name in ("main.py", "r.py", "c.py")}
    assert verdicts["c.py"].exports == (b"Clip",)
    assert drivers(verdicts) == ["main.py"]


def test_a_file_that_runs_a_backward_and_leaves_the_step_to_a_base_class_is_read(
    here: Path,
) -> None:
    put(here / "base.py", "class Base:\n    def finish(self):\n        self.optimizer.step()\n")
    body = "def learn(self, x):\n        self.net(x).mean().backward()\n        self.finish()\n"
    put(here / "mine.py", f"from base import Base\nclass Mine(Base):\n    {body}")
    verdicts = {name: result_for_file(name) for name in ("base.py", "mine.py")}
    assert drivers(verdicts) == ["mine.py"]
