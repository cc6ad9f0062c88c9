"""Optimizers that are cleared again and again, and never step; losses that are their own gradients."""

from __future__ import annotations

import linecache
import sys
import textwrap
from pathlib import Path
from typing import Any

import pytest
import torch

import zerograd
from zerograd.runtime import idle_optimizers
from zerograd.runtime.program_source import program_files

LOOP = """
def train():
    net = torch.nn.Linear(3, 1)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    for x in torch.randn(TIMES, 4, 3):
        optimizer.zero_grad()
        net(x).mean().backward()
        USE
train()
AFTER
"""


@pytest.fixture(autouse=True)
def _alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """The program has one file: these tests read gradients, too."""
    monkeypatch.setattr(idle_optimizers, "program_files", lambda: ["idle.py"])


def found(use: str = "pass", times: int = 9, after: str = "", code: str = LOOP) -> list[str]:
    """The codes of what a run of the program breaks."""
    return [one.code for one in watched(use, times, after, code).findings]


def watched(
    use: str = "pass", times: int = 9, after: str = "", code: str = LOOP
) -> zerograd.Report:
    """A run of the program."""
    text = code.replace("USE", use).replace("TIMES", str(times)).replace("AFTER", after)
    text = textwrap.dedent(text)
    # The watch reads the program's source, as it reads that of a file.
    linecache.cache["idle.py"] = (len(text), None, text.splitlines(keepends=True), "idle.py")
    names: dict[str, Any] = {"torch": torch}
    with zerograd.watch(on="collect") as report:
        exec(compile(text, "idle.py", "exec"), names)
    assert report.errors == []
    return report


def test_an_optimizer_that_never_steps_is_found_when_it_is_gone() -> None:
    assert found() == ["ZG102"]


def test_an_optimizer_that_never_steps_is_found_at_the_end_of_the_run() -> None:
    kept = LOOP.replace("def train():", "def train():\n    global net, optimizer")
    assert found(code=kept) == ["ZG102"]


def test_the_finding_is_where_the_optimizer_is_made_and_says_no_step() -> None:
    (finding,) = watched().findings
    assert finding.message == "the optimizer receives gradients, but never steps"
    assert finding.site.iteration is None
    lines = LOOP.splitlines()
    assert "torch.optim.SGD" in lines[finding.site.line - 1]
    assert ".backward()" in lines[finding.notes[0].site.line - 1]


@pytest.mark.parametrize(
    "use",
    [
        "optimizer.step()",
        "net.weight.data.sub_(0.1)",
        "total = net.weight.grad.norm()",
        "net.weight.data = net.weight.data - 0.1",
        "other = torch.optim.SGD(net.parameters(), lr=0.1); other.step()",
        "torch.optim.SGD([net.weight], lr=0.1).step()",
        "norm = torch.nn.utils.clip_grad_norm_(net.parameters(), float('inf'))",
        "taken = getattr(net.weight, 'grad')",
        "net.weight.register_hook(print) if x is None else None",
    ],
)
def test_gradients_that_are_used_are_not_idle(use: str) -> None:
    assert "ZG102" not in found(use)


def test_gradients_that_are_limited_are_meant_for_a_step() -> None:
    assert found("torch.nn.utils.clip_grad_norm_(net.parameters(), 1.0)") == ["ZG102"]


def test_gradients_that_another_file_of_the_program_reads_are_not_idle(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    helper = tmp_path / "helper_that_reads.py"
    helper.write_text("def flat(net):\n    return [p.grad for p in net.parameters()]\n")
    monkeypatch.syspath_prepend(tmp_path)
    assert found("import helper_that_reads") == ["ZG102"]
    assert str(helper) in set(program_files())
    monkeypatch.setattr(idle_optimizers, "program_files", lambda: [str(helper)])
    assert found("import helper_that_reads") == []
    del sys.modules["helper_that_reads"]


def test_files_of_libraries_are_none_of_the_program() -> None:
    files = set(program_files())
    assert __file__ in files
    assert files.isdisjoint({torch.__file__, zerograd.__file__, pytest.__file__, textwrap.__file__})


def test_a_library_that_runs_the_backward_may_use_the_gradients(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    installed = tmp_path / "site-packages"
    installed.mkdir()
    (installed / "an_explainer.py").write_text("def explain(loss):\n    loss.backward()\n")
    monkeypatch.syspath_prepend(installed)
    by_library = LOOP.replace("net(x).mean().backward()", "import an_explainer; an_explainer.explain(net(x).mean())")  # fmt: skip
    assert found(code=by_library) == []
    assert found() == ["ZG102"]
    del sys.modules["an_explainer"]


def test_a_test_of_a_few_batches_may_have_no_step() -> None:
    assert found(times=3) == []
    assert found(times=4) == ["ZG102"]


def test_an_optimizer_that_steps_later_is_not_idle() -> None:
    measured = LOOP.replace("train()\nAFTER", "    optimizer.zero_grad(); net(x).mean().backward(); optimizer.step()\ntrain()")  # fmt: skip
    assert found(code=measured) == []


def test_a_clear_of_the_module_says_nothing_of_the_optimizer() -> None:
    assert found(code=LOOP.replace("optimizer.zero_grad()", "net.zero_grad()")) == []


def test_an_optimizer_that_was_made_before_may_have_stepped_before() -> None:
    model = torch.nn.Linear(2, 1)
    made = torch.optim.SGD(model.parameters(), lr=0.1)
    with zerograd.watch(on="collect") as report:
        for x in torch.randn(9, 1, 2):
            made.zero_grad()
            model(x).sum().backward()
    assert report.findings == []


def test_a_run_that_was_stopped_is_not_blamed() -> None:
    text = LOOP.replace("TIMES", "9").replace("USE", "pass").replace("AFTER", "")
    names: dict[str, Any] = {"torch": torch}
    text = text.replace("def train():", "def train():\n    global net, optimizer")
    watch = zerograd.watch(on="collect")
    report = watch.start()
    exec(text, names)
    watch.stop(clean=False)
    assert names["optimizer"] is not None
    assert report.findings == []


SELF = """
net = torch.nn.Linear(3, OUT)
optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
for x in torch.randn(5, 1, 3):
    optimizer.zero_grad()
    loss = net(x)
    loss.backward(GIVEN)
    optimizer.step()
"""


@pytest.mark.parametrize(
    ("out", "given", "codes"),
    [
        (1, "loss", ["ZG109"]),
        (1, "loss.clone()", []),
        (1, "torch.ones_like(loss)", []),
        (2, "loss", []),
    ],
)
def test_a_loss_that_is_its_own_gradient(out: int, given: str, codes: list[str]) -> None:
    assert found(code=SELF.replace("OUT", str(out)).replace("GIVEN", given)) == codes


def test_every_such_backward_counts() -> None:
    with zerograd.watch(on="collect") as report:
        exec(SELF.replace("OUT", "1").replace("GIVEN", "loss"), {"torch": torch})
    assert [one.seen for one in report.findings] == [5]
