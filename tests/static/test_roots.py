"""Which parts of a file are interpreted: what nothing calls, and what is not obviously right."""

from __future__ import annotations

from pathlib import Path
from textwrap import dedent

import pytest

from zerograd.static.interp.interpreter import Program
from zerograd.static.read.load import from_text
from zerograd.static.read.project import Project
from zerograd.static.roots import Root, Roots


def roots(text: str, path: str = "train.py") -> list[str]:
    """The names of the roots of a file; `*` marks those that are called once for each batch."""
    project = Project()
    module = project.add(from_text(dedent(text), path))
    found = Roots(Program(project, module), {})
    kept = [root for root in found if isinstance(root, Root)]
    return [f"{root.name}{'*' if root.per_batch else ''}" for root in kept]


RIGHT = """\
import torch
model = torch.nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for x, y in loader:
    optimizer.zero_grad()
    loss = (model(x) - y).pow(2).mean()
    loss.backward()
    optimizer.step()
"""


def test_a_top_level_that_is_obviously_right_is_not_interpreted() -> None:
    assert roots(RIGHT) == []


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("    optimizer.zero_grad()\n", ""),
        ("    optimizer.zero_grad()\n", "    model.zero_grad()\n"),
        ("    optimizer.step()\n", "    optimizer.step()\n    optimizer.step()\n"),
        ("    loss.backward()\n", "    if x:\n        loss.backward()\n"),
        ("    loss.backward()\n", "    loss.backward()\n    if x:\n        continue\n"),
        ("import torch\n", "import torch\nimport accelerate\n"),
        ("import torch\n", "import torch\n\ndef clear():\n    model.zero_grad()\n\n"),
    ],
    ids=[
        "no clear",
        "a module's clear",
        "two steps",
        "a branch",
        "a jump",
        "accelerate",
        "a function that clears",
    ],
)
def test_any_other_top_level_is_interpreted(old: str, new: str) -> None:
    assert old in RIGHT
    assert roots(RIGHT.replace(old, new))[0] == "the top level"


def test_a_function_that_another_root_calls_is_no_root() -> None:
    text = """\
    import torch

    def train(model, optimizer, loader):
        for x in loader:
            step(model, optimizer, x)

    def step(model, optimizer, x):
        model(x).sum().backward()
        optimizer.step()
    """
    assert roots(text) == ["train()"]


def test_the_top_level_comes_before_the_functions_it_does_not_call() -> None:
    text = """\
    import torch

    def unused(optimizer, loss):
        loss.backward()
        optimizer.step()

    def used(optimizer, loss):
        loss.backward()
        optimizer.step()

    used(optimizer, loss)
    """
    assert roots(text) == ["the top level", "unused()"]


def test_a_function_that_does_nothing_to_gradients_is_no_root() -> None:
    text = """\
    import torch

    def load(path):
        return torch.load(path)

    def train(optimizer, loss):
        loss.backward()
        optimizer.step()
    """
    assert roots(text) == ["train()"]


def test_a_function_that_never_steps_is_a_root_if_it_clears_and_fills() -> None:
    text = """\
    import torch

    def fill(optimizer, loss):
        {}
        loss.backward()
    """
    assert roots(text.format("optimizer.zero_grad()")) == ["fill()"]
    assert roots(text.format("print(loss)")) == []


def test_the_methods_of_an_optimizer_are_no_roots() -> None:
    text = """\
    import torch

    class Slow(torch.optim.Optimizer):
        def step(self, closure=None):
            for group in self.param_groups:
                for p in group["params"]:
                    p.data.add_(p.grad, alpha=-0.1)
    """
    assert roots(text) == []


def test_a_function_inside_a_function_is_a_root_if_nothing_calls_it() -> None:
    text = """\
    import torch

    def build(optimizer):
        def update(loss):
            loss.backward()
            optimizer.step()
        return update
    """
    assert roots(text) == ["build()", "update()"]


def test_a_training_step_is_called_once_for_each_batch() -> None:
    text = """\
    import pytorch_lightning as pl

    class Net(pl.LightningModule):
        def training_step(self, batch, index):
            optimizer = self.optimizers()
            self.manual_backward(self.loss(batch))
            optimizer.step()
    """
    assert roots(text) == ["training_step()*"]


BASE = """\
class Base:
    def meta_observe(self, x):
        loss = self.observe(x)
        self.iteration += 1
        return loss

    def norms(self):
        return [p.grad.norm() for p in self.net.parameters()]
"""
MODEL = """\
import torch
from base import Base
class Model(Base):
    def __init__(self, net):
        self.net = net
        self.opt = torch.optim.Adam(net.parameters())

    def observe(self, x):
        self.net(x).mean().backward()
        self.opt.step()
"""


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        ("", "", "observe()"),
        (
            "        loss = self",
            "        for _ in range(3):\n            loss = self",
            "meta_observe()",
        ),
        ("        self.iteration += 1", "        self.opt.zero_grad()", "meta_observe()"),
    ],
    ids=["passes it on", "repeats it", "clears after it"],
)
def test_a_method_of_a_base_is_a_root_if_it_adds_to_what_it_calls(
    tmp_path: Path, old: str, new: str, expected: str
) -> None:
    (tmp_path / "base.py").write_text(BASE.replace(old, new) if old else BASE)
    assert roots(MODEL, str(tmp_path / "model.py")) == [expected]
