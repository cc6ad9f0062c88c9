"""What torch.compile makes of a program is the same with a watch as without one."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from typing import Any

import pytest
import torch
import torch._dynamo
from torch import Tensor
from torch._dynamo.utils import counters
from torch.nn.utils import clip_grad_norm_, clip_grad_value_

import zerograd
from support import tiers
from support.training import batches, loss_of, net, sgd, weights
from zerograd.core.finding import Report
from zerograd.report import text

FRAMES = () if torch.__version__.startswith(("2.4.", "2.5.", "2.6.")) else ("frames",)
"""torch up to 2.6 also counts frames that it looks at and does not compile."""
Compile = Callable[[Callable[..., Any]], Callable[..., Any]]
Program = Callable[[Compile], list[Tensor]]


class PlainDescent(torch.optim.Optimizer):
    """An optimizer whose step has nothing in it that torch cannot compile."""

    def __init__(self, params: Any) -> None:
        super().__init__(params, {"lr": 0.01})

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:  # type: ignore[override]
        for group in self.param_groups:
            for param in group["params"]:
                if param.grad is not None:
                    param.add_(param.grad, alpha=-group["lr"])


def clips_by_norm(compiled: Compile) -> list[Tensor]:
    model = net()
    optimizer, params = sgd(model), list(model.parameters())
    clip = compiled(lambda: clip_grad_norm_(params, 0.1))
    for x in batches(4):
        optimizer.zero_grad()
        loss_of(model, x).backward()
        clip()
        optimizer.step()
    return weights(model)


def clips_by_value(compiled: Compile) -> list[Tensor]:
    model = net()
    optimizer = sgd(model)
    clip = compiled(lambda: clip_grad_value_(model.parameters(), 0.1))
    for x in batches(4):
        optimizer.zero_grad()
        loss_of(model, x).backward()
        clip()
        optimizer.step()
    return weights(model)


def clears_the_module(compiled: Compile) -> list[Tensor]:
    model = net()
    optimizer = sgd(model)

    @compiled
    def clear() -> None:
        model.zero_grad()

    for x in batches(4):
        clear()
        loss_of(model, x).backward()
        optimizer.step()
    return weights(model)


def forward_and_loss(compiled: Compile) -> list[Tensor]:
    model = net()
    optimizer = sgd(model)
    loss = compiled(loss_of)
    for number, x in enumerate(batches(4)):
        optimizer.zero_grad()
        loss(model, x[: 3 + number % 2]).backward()
        optimizer.step()
    return weights(model)


def steps(compiled: Compile) -> list[Tensor]:
    model = net()
    optimizer = PlainDescent(model.parameters())

    @compiled
    def step() -> None:
        optimizer.step()

    for x in batches(4):
        optimizer.zero_grad()
        loss_of(model, x).backward()
        step()
    return weights(model)


def adam_steps(compiled: Compile) -> list[Tensor]:
    model = net()
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    step = compiled(optimizer.step)
    for x in batches(4):
        optimizer.zero_grad()
        loss_of(model, x).backward()
        step()
    return weights(model)


def trains(compiled: Compile) -> list[Tensor]:
    model = net()
    optimizer = sgd(model)

    @compiled
    def train(x: Tensor) -> None:
        model.zero_grad()
        loss_of(model, x).backward()
        clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()

    for x in batches(4):
        train(x)
    return weights(model)


WHOLE: dict[str, Program] = {
    "clip_grad_norm_": clips_by_norm,
    "clip_grad_value_": clips_by_value,
    "module.zero_grad": clears_the_module,
    "forward and loss": forward_and_loss,
    "step": steps,
}
"""What torch compiles as one graph."""
PROGRAMS = {**WHOLE, "Adam's step": adam_steps, "a train step": trains}


def run(
    program: Program, *, watched: bool, backend: str = "eager", fullgraph: bool = False
) -> tuple[list[Tensor], dict[str, dict[str, int]], list[str], Report | None]:
    """The weights, what the compiler counts, what it warns of, and the report."""
    torch._dynamo.reset()
    counters.clear()
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        with zerograd.watch(on="collect") if watched else nullcontext() as report:
            found = program(torch.compile(backend=backend, fullgraph=fullgraph))
    kinds = ("stats", "graph_break", *FRAMES, "recompiles", "unimplemented", "inline_call")
    counted = {kind: dict(counters[kind]) for kind in kinds}
    ours = [str(one.message) for one in said if "script_method" not in str(one.message)]
    torch._dynamo.reset()
    return found, counted, ours, report


@pytest.mark.parametrize("name", tiers.sample(PROGRAMS, ["a train step"]))
@pytest.mark.parametrize("backend", tiers.sample(["eager", "aot_eager", "inductor"]))
def test_graphs_breaks_and_warnings_are_those_without_a_watch(name: str, backend: str) -> None:
    program = PROGRAMS[name]
    # The first time, torch compiles its own imports, and looks at what Python does once for a class, as in
    # isinstance(given, Iterable): torch 2.9 counts that.
    run(program, watched=True)
    run(program, watched=False, backend=backend)
    bare, graphs, said, _ = run(program, watched=False, backend=backend)
    found, watched_graphs, watched_said, report = run(program, watched=True, backend=backend)
    assert watched_graphs == graphs
    assert watched_said == said
    assert all(a.equal(b) for a, b in zip(bare, found, strict=True))
    assert report is not None
    assert (report.errors, report.findings) == ([], [])


@contextmanager
def as_one_graph() -> Iterator[None]:
    """For a program without a watch: older versions of torch do not compile all of them as one graph."""
    try:
        yield
    except torch._dynamo.exc.Unsupported as error:
        torch._dynamo.reset()
        reason = str(error).partition("\n")[0]
        pytest.skip(f"torch {torch.__version__} does not compile it as one graph: {reason}")


@pytest.mark.parametrize("name", WHOLE)
def test_what_is_one_graph_is_one_graph_with_a_watch(name: str) -> None:
    with as_one_graph():
        bare, *_ = run(WHOLE[name], watched=False, fullgraph=True)
    found, graphs, said, report = run(WHOLE[name], watched=True, fullgraph=True)
    assert all(a.equal(b) for a, b in zip(bare, found, strict=True))
    assert (said, graphs["graph_break"]) == ([], {})
    assert report is not None
    assert (report.errors, report.findings) == ([], [])


def test_the_summary_says_that_a_compiled_step_was_not_watched() -> None:
    *_, report = run(steps, watched=True, fullgraph=True)
    assert report is not None
    assert report.watched is not None
    assert report.watched.compiled == ("PlainDescent, 4 parameters",)
    assert "not watched  steps of PlainDescent, 4 parameters, in code that torch.compile" in (
        text.closing(report, "train.py")
    )
    *_, report = run(forward_and_loss, watched=True)
    assert report is not None
    assert report.watched is not None
    assert report.watched.compiled == ()


@pytest.mark.parametrize("compiled_first", [True, False])
def test_steps_that_nobody_sees_accuse_nobody(compiled_first: bool) -> None:
    """A compiled step between watched ones: clipped, stepped, cleared where nobody watches."""
    torch._dynamo.reset()
    model = net()
    optimizer = PlainDescent(model.parameters())

    def finish() -> None:
        optimizer.step()
        model.zero_grad()

    with as_one_graph():
        torch.compile(finish, backend="eager", fullgraph=True)()
    torch._dynamo.reset()
    compiled = torch.compile(finish, backend="eager", fullgraph=True)
    with zerograd.watch(on="collect") as report:
        for number, x in enumerate(batches(12)):
            loss_of(model, x).backward()
            clip_grad_norm_(model.parameters(), 1.0)
            if (number % 2 == 0) is compiled_first:
                compiled()
            else:
                finish()
    torch._dynamo.reset()
    assert (report.errors, report.findings) == ([], [])
    assert report.watched is not None
    assert report.watched.compiled == ("PlainDescent, 4 parameters",)
