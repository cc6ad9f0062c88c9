"""What a watched run calls the optimizers of a program."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

import zerograd
from support.command import write
from support.command import zerograd as command
from zerograd.runtime.engine import Engine

MODEL = "import torch\nfrom torch.optim import SGD, Adam\nnet, other = torch.nn.Linear(2, 1), torch.nn.Linear(2, 1)\n"
TRAIN = "def train(optimizer, model):\n    model(torch.ones(1, 2)).sum().backward()\n    optimizer.step()\n"

NAMED = {
    "a variable": ("opt = SGD(net.parameters(), 0.1)\ntrain(opt, net)", ["opt: SGD, 2 parameters"]),
    "an attribute": (
        "class T:\n    def __init__(self):\n        self.opt = SGD(net.parameters(), 0.1)\nt = T()\ntrain(t.opt, net)",
        ["self.opt: SGD, 2 parameters"],
    ),
    "two variables at once": (
        "a, b = SGD(net.parameters(), 0.1), Adam(other.parameters())\ntrain(a, net)\ntrain(b, other)",
        ["a: SGD, 2 parameters", "b: Adam, 2 parameters"],
    ),
    "the items of a dictionary": (
        "opts = {'a': SGD(net.parameters(), 0.1)}\ntrain(opts['a'], net)",
        ["opts['a']: SGD, 2 parameters"],
    ),
    "the items of a list": (
        "opts = [SGD(one.parameters(), 0.1) for one in (net, other)]\nfor opt, one in zip(opts, (net, other)):\n    train(opt, one)",
        ["opts[0]: SGD, 2 parameters", "opts[1]: SGD, 2 parameters"],
    ),
    "a function that makes several": (
        "def make(model):\n    optimizer = SGD(model.parameters(), 0.1)\n    return optimizer\na = make(net)\nb = make(other)\ntrain(a, net)\ntrain(b, other)",
        ["a: SGD, 2 parameters", "b: SGD, 2 parameters"],
    ),
    "an argument of a wrapper": (
        "def wrap(x): return x\nopt = wrap(SGD(net.parameters(), 0.1))\ntrain(opt, net)",
        ["opt: SGD, 2 parameters"],
    ),
    "an object that gets it beside others": (
        "class T:\n    def __init__(self, net, opt):\n        self.opt = opt\n        train(self.opt, net)\n        self.opt.step()\ntrainer = T(net, SGD(net.parameters(), 0.1))",
        ["self.opt: SGD, 2 parameters"],
    ),
    "nothing": (
        "def make(model):\n    return SGD(model.parameters(), 0.1)\ndef go():\n    steps = make(net).step, make(other).step\n    for one, do in zip((net, other), steps):\n        one(torch.ones(1, 2)).sum().backward()\n        do()\ngo()",
        ["SGD, 2 parameters", "2nd SGD, 2 parameters"],
    ),
}


@pytest.mark.parametrize("held_by", NAMED)
def test_an_optimizer_is_called_as_the_program_calls_it(held_by: str, tmp_path: Path) -> None:
    source, titles = NAMED[held_by]
    path = tmp_path / "program.py"
    path.write_text(MODEL + TRAIN + source + "\n", encoding="utf-8")
    program = compile(path.read_text(encoding="utf-8"), str(path), "exec")
    # As in a script, the names are there until the watch has ended.
    names: dict[str, Any] = {"__name__": "program", "__builtins__": __builtins__}
    with zerograd.watch(on="collect") as report:
        exec(program, names)
    assert report.watched is not None
    assert list(report.watched.optimizers) == titles


LIBRARY = """\
import torch
class Wrapped:
    def __init__(self, inner):
        self.inner = inner
    def step(self):
        self.inner.step()
    def zero_grad(self):
        self.inner.zero_grad()
class Trainer:
    def __init__(self, optimizer):
        self.optimizer = optimizer
    def fit(self, model):
        model(torch.ones(1, 2)).sum().backward()
        self.optimizer.step()
def made(model):
    return torch.optim.SGD(model.parameters(), 0.1)
"""
IN_LIBRARIES = {
    "a wrapper": (
        "opt = alibrary.Wrapped(alibrary.made(net))\nfit = alibrary.Trainer(opt.inner).fit\nfit(net)",
        "opt",
    ),
    "a wrapper in a function": (
        "def go():\n    opt = alibrary.Wrapped(alibrary.made(net))\n    net(torch.ones(1, 2)).sum().backward()\n    opt.step()\ngo()",
        "opt",
    ),
    "a trainer": (
        "trainer = alibrary.Trainer(alibrary.made(net))\ntrainer.fit(net)",
        "trainer.optimizer",
    ),
    "an object of the program": (
        "class Loop: pass\nloop = Loop()\nloop.opt = alibrary.made(net)\nfit = alibrary.Trainer(loop.opt).fit\nfit(net)",
        "Loop.opt",
    ),
}


@pytest.mark.parametrize("held_by", IN_LIBRARIES)
def test_what_a_library_holds_has_the_name_that_the_program_has_for_it(
    held_by: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source, name = IN_LIBRARIES[held_by]
    library, path = tmp_path / "site-packages" / "alibrary.py", tmp_path / "program.py"
    write(library.parent, {library.name: LIBRARY})
    path.write_text(f"{MODEL}import alibrary\n{source}\n", encoding="utf-8")
    monkeypatch.syspath_prepend(str(library.parent))
    monkeypatch.delitem(sys.modules, "alibrary", raising=False)
    names: dict[str, Any] = {"__name__": "program", "__builtins__": __builtins__}
    with zerograd.watch(on="collect") as report:
        exec(compile(path.read_text(encoding="utf-8"), str(path), "exec"), names)
    assert report.watched is not None
    assert report.watched.optimizers == (f"{name}: SGD, 2 parameters",)


class Net(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = torch.nn.Linear(2, 1)
        self.inner = torch.optim.SGD(self.layer.parameters(), 0.1)


def test_an_attribute_of_a_module_is_a_name() -> None:
    net = Net()
    step = net.inner.step
    with zerograd.watch(on="collect") as report:
        net.layer(torch.ones(1, 2)).sum().backward()
        step()
    assert report.watched is not None
    assert report.watched.optimizers == ("Net.inner: SGD, 2 parameters",)


def test_a_name_keeps_nothing_of_the_program_alive() -> None:
    net = torch.nn.Linear(2, 1)
    with zerograd.watch(on="collect") as report:
        opt = torch.optim.SGD(net.parameters(), 0.1)
        net(torch.ones(1, 2)).sum().backward()
        opt.step()
        before = sys.getrefcount(opt)
        assert Engine.running is not None
        assert list(Engine.running.watcher.lanes.titles.values()) == ["opt: SGD, 2 parameters"]
        assert sys.getrefcount(opt) == before
        del opt
    assert report.watched is not None
    assert report.watched.optimizers == ("opt: SGD, 2 parameters",)


STALE = """\
import torch
def update(optimizer, loss):
    loss.backward()
    optimizer.step()
net = torch.nn.Linear(2, 1)
class Trainer:
    def __init__(self):
        self.opt_g = torch.optim.SGD(net.parameters(), 0.1)
    def fit(self):
        for _ in range(4):
            update(self.opt_g, net(torch.ones(1, 2)).sum())
Trainer().fit()
"""


def test_terminal_json_replay_and_page_have_the_name(tmp_path: Path) -> None:
    write(tmp_path, {"train.py": STALE})
    ran = command("run", "--record", "r.jsonl", "--html", "p.html", "train.py", cwd=tmp_path)
    assert "   opt   self.opt_g\n" in ran.stderr
    assert "optimizer   self.opt_g: SGD, 2 parameters" in ran.stderr
    shown = json.loads(command("replay", "r.jsonl", "--format", "json", cwd=tmp_path).stdout)
    assert [one["optimizer"] for one in shown["findings"]] == ["self.opt_g"]
    assert shown["optimizers"] == ["self.opt_g: SGD, 2 parameters"]
    assert "self.opt_g: SGD, 2 parameters" in (tmp_path / "p.html").read_text(encoding="utf-8")


def test_a_check_names_the_optimizer_where_it_is_made() -> None:
    source = STALE.replace("Trainer().fit()\n", "") + (
        "opt_a = torch.optim.SGD(net.parameters(), 0.1)\n"
        "for _ in range(4):\n    update(opt_a, net(torch.ones(1, 2)).sum())\n"
    )
    found = zerograd.check_source(source, path="train.py").findings
    assert [one.optimizer for one in found] == ["opt_a"]
