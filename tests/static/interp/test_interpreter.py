"""The interpreter: a flow for a root, in parts that let go of each other."""

from __future__ import annotations

import gc
import weakref
from typing import TYPE_CHECKING

from zerograd.core.events import Backward, Event, New, Step
from zerograd.explore.flow import Flow, walk
from zerograd.static.analyse import analyse
from zerograd.static.interp.emitter import Act
from zerograd.static.interp.evaluator import Evaluator
from zerograd.static.interp.interpreter import Interpreter, Program
from zerograd.static.read.load import from_text
from zerograd.static.read.project import Project
from zerograd.static.read.values import Fn

if TYPE_CHECKING:
    import pytest

TRAIN = """\
import torch


class Trainer:
    def __init__(self, model):
        self.model = model
        self.opt = torch.optim.SGD(model.parameters(), lr=0.1)

    def train(self, loader):
        def closure():
            return self.opt.step()

        for x, y in loader:
            self.model(x).sum().backward()
            closure()
"""


def program(text: str) -> Program:
    project = Project()
    return Program(project, project.add(from_text(text, "train.py")))


def kinds(flow: Flow) -> set[type[Event]]:
    return {type(part.event) for part in walk(flow) if isinstance(part, Act)}


def test_the_top_level_is_a_flow_of_what_it_calls() -> None:
    text = TRAIN + "\n\nTrainer(torch.nn.Linear(1, 1)).train([])\n"
    assert kinds(program(text).interpreter().top_level()) == {New, Backward, Step}


def test_a_function_is_a_flow_with_unknown_arguments() -> None:
    text = "def step(loss, opt):\n    loss.backward()\n    opt.step()\n"
    one = program(text)
    node = one.module.functions["step"]
    flow = one.interpreter().function(Fn(node, one.module, "step"))
    assert kinds(flow) == {Backward, Step}


def test_an_analysis_leaves_no_interpreter_behind_though_no_collector_runs(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    alive: list[weakref.ref[Evaluator]] = []
    made = Program.interpreter

    def interpreter(self: Program) -> Interpreter:
        new = made(self)
        alive.append(weakref.ref(new.evaluator))
        return new

    monkeypatch.setattr(Program, "interpreter", interpreter)
    gc.disable()
    try:
        findings = analyse(from_text(TRAIN, "train.py")).findings
        left = [ref for ref in alive if ref() is not None]
    finally:
        gc.enable()
    assert findings
    assert alive
    assert left == []


NAMES = """\
import torch

NETS = {"small": torch.nn.Linear(1, 1), "large": torch.nn.Linear(9, 1)}
for name in ["small", "large"]:
    net = NETS[name]
    opt = torch.optim.SGD(net.parameters(), lr=0.1)
"""


def test_a_loop_over_names_is_read_for_each_name() -> None:
    text = NAMES + "    net(x).sum().backward()\n    opt.step()\n"
    assert steps(program(text).interpreter().top_level()) == 2


def test_a_loop_over_names_around_whole_trainings_is_read_once() -> None:
    train = "    for x in loader:\n        net(x).sum().backward()\n        opt.step()\n"
    assert steps(program(NAMES + train).interpreter().top_level()) == 1


def steps(flow: Flow) -> int:
    """How many steps a flow has in it."""
    return sum(isinstance(part, Act) and isinstance(part.event, Step) for part in walk(flow))
