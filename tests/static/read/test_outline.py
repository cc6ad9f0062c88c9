"""Which files lead to a step is decided by the names that they export and import."""

from __future__ import annotations

from pathlib import Path

from zerograd.static.read.outline import Outline, Outlines, import_lines, imported_names

ENGINE = """
class Engine:
    def train_step(self, x):
        self.net(x).backward()
        self.opt.step()
    def helper(self):
        return 1
class Meter:
    def add(self, x):
        self.total += x
def fit(net, opt, loader):
    for x in loader:
        net(x).backward()
        opt.step()
def update(loss, opt):
    loss.backward()
    opt.step()
def both(loss, opt):
    update(loss, opt)
"""


def outline(folder: Path, name: str, text: str) -> Outline:
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return Outline(text.encode(), str(path))


def leads(folder: Path, text: str, farthest: int = 3) -> bool:
    return Outlines(farthest).leads_to_a_step(outline(folder, "main.py", text))


def test_names_that_lead_to_a_step_outside_of_a_loop_are_exported(tmp_path: Path) -> None:
    engine = outline(tmp_path, "engine.py", ENGINE)
    assert Outlines(0).exports(engine) == [b"Engine", b"update", b"both"]


def test_a_file_leads_to_a_step_if_it_imports_what_steps(tmp_path: Path) -> None:
    outline(tmp_path, "engine.py", ENGINE)
    assert leads(tmp_path, "from engine import Engine\nfor x in data:\n    engine.train_step(x)\n")
    assert leads(tmp_path, "from engine import update\nsteps = [update(x) for x in data]\n")
    assert leads(tmp_path, "from engine import Meter, both\n")
    assert not leads(tmp_path, "from engine import Meter, fit\nfit(net, opt, loader)\n")


def test_a_function_that_hands_a_step_on_leads_to_it(tmp_path: Path) -> None:
    made = "from functools import partial\n"
    made += "def build(opt):\n    return partial(update, opt)\n"
    made += "def other(opt):\n    return partial(Meter, opt)\n"
    outline(tmp_path, "engine.py", ENGINE + made)
    assert leads(tmp_path, "from engine import build\n")
    assert not leads(tmp_path, "from engine import other\n")


def test_a_class_that_clips_or_clears_leads_to_a_step(tmp_path: Path) -> None:
    hook = "class Hook:\n    def after(self, run):\n        run.optimizer.zero_grad()\n"
    outline(tmp_path, "hooks.py", hook)
    assert leads(tmp_path, "from hooks import Hook\n")


def test_only_the_imported_names_count(tmp_path: Path) -> None:
    outline(tmp_path, "engine.py", ENGINE)
    text = "from engine import Meter\nfor x in data:\n    thing.train_step(x)\n"
    assert not leads(tmp_path, text)


def test_a_package_and_a_class_that_inherits_lead_on(tmp_path: Path) -> None:
    outline(tmp_path, "lab/engine.py", ENGINE)
    outline(tmp_path, "lab/__init__.py", "from .engine import Engine\n")
    mine = "from lab import Engine\nclass Mine(Engine):\n    def loss(self, x):\n        return x\n"
    outline(tmp_path, "mine.py", mine)
    text = "from mine import Mine\nfor x in data:\n    Mine().train_step(x)\n"
    assert leads(tmp_path, text)


def test_files_that_import_each_other_end(tmp_path: Path) -> None:
    loop = "import {other}\nfrom {other} import *\nclass A({other}.A):\n    def f(self):\n        self.f()\n"
    outline(tmp_path, "one.py", loop.format(other="two"))
    outline(tmp_path, "two.py", loop.format(other="one"))
    assert not leads(tmp_path, "from one import A\nfor x in data:\n    A().f()\n")


def test_imports_of_well_known_libraries_are_left_out() -> None:
    text = b"""import os, lab.engine as engine
import torch
from torch import nn
from numpy import (
    array,
)
from .steps import (
    one,  # the first
    two as second,
)
def f():
    from lab import three
"""
    names = dict(imported_names(import_lines(text)))
    assert b"torch" not in names
    assert names[b"engine"] == b"lab.engine"
    assert names[b"one"] == b".steps.one"
    assert names[b"second"] == b".steps.two"
    assert names[b"three"] == b"lab.three"
