"""The mutants' bench: right loops are right, each operator does what it says, runs tell the truth."""

from __future__ import annotations

import ast
import json
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

import checkout_mutants
import zerograd
from mutation import operators, trial
from support import tiers
from support.paths import ROOT

BENCH = ROOT / "bench"
RIGHT = sorted((BENCH / "right").glob("*.py"))

LOOP = """\
import torch

for i, x in enumerate(loader):
    loss = model(x).mean() / N
    scaler.scale(loss).backward()
    if (i + 1) % N == 0 or i + 1 == len(loader):
        scaler.unscale_(opt)
        clip_grad_norm_(model.parameters(), 1.0)
        scaler.step(opt)
        scaler.update()
        opt.zero_grad()  # and again
"""
"""A right loop; what becomes of it, by kind: the lines that go, and those that come."""
BROKEN: dict[str, list[tuple[list[str], list[str]]]] = {
    "zero deleted": [(["opt.zero_grad()  # and again"], [])],
    "zero every micro-batch": [([], [])],
    "zero hoisted a loop level": [([], [])],
    "zero between backward and step": [([], [])],
    "backward deleted": [(["scaler.scale(loss).backward()"], [])],
    "step deleted": [(["scaler.step(opt)"], [])],
    "step doubled": [([], ["scaler.step(opt)"])],
    "clip after step": [([], [])],
    "clip before backward": [([], [])],
    "clip in the window": [([], [])],
    "unscale deleted": [(["scaler.unscale_(opt)"], [])],
    "clip before unscale": [([], [])],
    "update deleted": [(["scaler.update()"], [])],
    "scaler's step bypassed": [(["scaler.step(opt)"], ["opt.step()"])],
    "loss not scaled": [(["scaler.scale(loss).backward()"], ["loss.backward()"])],
    "guard off by one": [
        (
            ["if (i + 1) % N == 0 or i + 1 == len(loader):"],
            ["if i % N == 0 or i + 1 == len(loader):"],
        )
    ],
    "guard inverted": [
        (
            ["if (i + 1) % N == 0 or i + 1 == len(loader):"],
            ["if (i + 1) % N != 0 or i + 1 == len(loader):"],
        )
    ],
    "remainder not stepped": [
        (["if (i + 1) % N == 0 or i + 1 == len(loader):"], ["if (i + 1) % N == 0:"])
    ],
    "division undone": [(["loss = model(x).mean() / N"], ["loss = model(x).mean()"])],
    "divided by a changing number": [
        (["loss = model(x).mean() / N"], ["loss = model(x).mean() / (i % N + 1)"])
    ],
}


def lines(text: str) -> Counter[str]:
    """The lines of a text, wherever they stand; a comment stays where it is."""
    return Counter(line.strip() for line in text.splitlines())


def test_each_operator_changes_what_it_says_and_nothing_else() -> None:
    made: dict[str, list[tuple[list[str], list[str]]]] = {}
    for mutant in operators.mutants(LOOP):
        moved = lines(LOOP.replace("  # and again", "")) == lines(mutant.text)
        before, after = lines(LOOP), lines(mutant.text)
        change = ([], []) if moved else (list(before - after), list(after - before))
        made.setdefault(mutant.kind.name, []).append(change)
    assert made == BROKEN


def test_what_is_moved_lands_where_it_breaks() -> None:
    texts = {mutant.kind.name: mutant.text.splitlines() for mutant in operators.mutants(LOOP)}

    def follows(kind: str, line: str, before: str) -> bool:
        stripped = [one.strip() for one in texts[kind]]
        return stripped.index(line) + 1 == stripped.index(before)

    clip, zero = "clip_grad_norm_(model.parameters(), 1.0)", "opt.zero_grad()"
    assert follows("zero between backward and step", zero, "scaler.step(opt)")
    assert follows("zero every micro-batch", zero, "loss = model(x).mean() / N")
    assert follows("zero hoisted a loop level", zero, "for i, x in enumerate(loader):")
    assert follows("clip after step", "scaler.step(opt)", clip)
    assert follows("clip before backward", clip, "scaler.scale(loss).backward()")
    assert follows("clip in the window", "scaler.scale(loss).backward()", clip)
    assert follows("clip before unscale", clip, "scaler.unscale_(opt)")


def statements(text: str) -> Counter[str]:
    """The simple statements and the heads of the others."""
    found = []
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.stmt) and not isinstance(node, ast.FunctionDef | ast.ClassDef):
            found.append(ast.unparse(node).partition("\n")[0])
    return Counter(found)


@pytest.mark.parametrize("path", RIGHT, ids=lambda path: path.stem)
def test_a_right_loop_is_silent_and_its_mutants_differ_in_one_place(path: Path) -> None:
    text = path.read_bytes().decode("utf-8-sig")
    assert zerograd.check_source(text, str(path), pedantic=True).findings == []
    mutants = list(operators.mutants(text))
    assert mutants
    before = statements(text)
    for mutant in mutants:
        after = statements(mutant.text)
        gone, new = before - after, after - before
        del gone["pass"], new["pass"]
        # A loop over parameters, or a test with what it decides, is one thing.
        assert sum(gone.values()) <= 4, mutant.kind.name
        assert sum(new.values()) <= 2, mutant.kind.name
        assert ("\r\n" in text) == ("\r\n" in mutant.text)
        assert mutant.text.count("\n") == mutant.text.count("\r\n") or "\r\n" not in text


def test_the_corpus_is_large_and_every_kind_occurs_in_it() -> None:
    kinds = Counter(
        mutant.kind.name
        for path in RIGHT
        for mutant in operators.mutants(path.read_bytes().decode("utf-8-sig"))
    )
    assert len(RIGHT) >= 60
    assert set(kinds) == {kind.name for kind in operators.KINDS}


@tiers.long
def test_runs_distinguish_what_is_the_same_and_what_is_not(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "path", [*sys.path])  # no other test is to meet the stand-ins
    trial.prepare()
    path = BENCH / "right" / "plain_zero_first.py"
    text = path.read_text(encoding="utf-8")
    right = trial.run(text, path)
    assert right.weights
    assert trial.run(text, path, watch=True) == right
    wrong = trial.run(text.replace("optimizer.zero_grad()", ""), path, watch=True)
    assert wrong.watched == ("ZG101",)
    assert not wrong.same(right)
    assert trial.run(text.replace("optimizer", "opt", 1), path).nonsense
    unscaled = text.replace("loss.backward()", "model.weight.grad.zero_()")
    failed = trial.run(unscaled, path)
    assert failed.error.startswith("AttributeError")
    assert not failed.same(failed)


def bench(*words: str) -> tuple[int, Any]:
    """The exit code of the command, and what it measured."""
    run = subprocess.run(
        [sys.executable, str(BENCH / "mutants.py"), "--jobs", "1", "--json", *words],
        capture_output=True,
        text=True,
        check=False,
    )
    assert run.stdout, run.stderr
    return run.returncode, json.loads(run.stdout)


@tiers.long
def test_the_command_finds_repairs_and_compares() -> None:
    code, measured = bench("--only", "plain_zero_first")
    (judged,) = measured["files"]
    assert judged["wrong"] == []
    deleted = [v for v in judged["verdicts"] if v["kind"] == "zero deleted"]
    assert [(v["real"], v["found"], v["safe"], v["safe_same"]) for v in deleted] == [(True,) * 4]
    assert measured["score"]["found"] == measured["score"]["wrong"] > 0
    assert (code, measured["goals_met"]) == (0, True)


@tiers.long
def test_a_missed_goal_is_an_exit_code(tmp_path: Path) -> None:
    shape = BENCH / "right" / "plain_zero_first.py"
    (tmp_path / "train.py").write_bytes(shape.read_bytes())
    (tmp_path / "wrong.py").write_bytes(shape.read_bytes().replace(b"optimizer.zero_grad()", b""))
    code, measured = bench("--only", "sam_two_steps", "--no-fix", str(tmp_path))
    assert (code, measured["goals_met"]) == (1, False)
    by_file = {Path(one["file"]).name: one for one in measured["files"]}
    assert not by_file["train.py"]["executed"]
    assert by_file["train.py"]["verdicts"]
    # What is found to be wrong to begin with is not broken further; nor is what says no zero_grad.
    assert set(by_file) == {"sam_two_steps.py", "train.py"}


@pytest.mark.parametrize(
    ("source", "spare"),
    [
        ("for x in loader:\n    opt.zero_grad()\n    net(x).backward()\n    opt.step()\n", [False]),
        (
            ("class Trainer:\n"
            "    def make(self):\n"
            "        self.opt.zero_grad()\n"
            "    def train(self, loader):\n"
            "        for x in loader:\n"
            "            self.opt.zero_grad()\n"
            "            self.net(x).backward()\n"
            "            self.opt.step()\n"),
            [True, False],
        ),
        (("class Trainer:\n"
        "    def judge(self, x):\n"
        "        self.opt.zero_grad()\n"
        "        self.opt_d.zero_grad()\n"
        "        self.net(x).backward()\n"
        "        self.opt.step()\n"), [False, True]),
        ("net.zero_grad()\nnet(x).backward()\nopt.step()\n", [True]),
        ("for x in loader:\n    opt.zero_grad()\n    nn.init.zeros_(w)\n    net(x).backward()\n    opt.step()\n", [False]),
        ("def train():\n    exit()\n    opt.zero_grad()\n    net().backward()\n    opt.step()\n", [True]),
        (
            ("def pull(opt, net, queue):\n    while True:\n        opt.zero_grad()\n"
            "        for p, g in zip(net.parameters(), queue.get()):\n            p._grad = g\n        opt.step()\n"),
            [True],
        ),
        ("def show():\n    log.clear_log()\n    opt.zero_grad()\n    net().backward()\n    opt.step()\n", [False]),
    ],
    ids=["a loop", "a constructor", "of what is not stepped", "run once", "an initial value", "after exit()", "set by hand", "another clear"],
)  # fmt: skip
def test_of_real_files_only_mutants_that_are_wrong_are_counted(
    source: str, spare: list[bool]
) -> None:
    deleted = ("zero deleted", "zero of one of several deleted")
    made = [one for one in operators.mutants(source) if one.kind.name in deleted]
    assert [checkout_mutants.is_spare(source, one) for one in made] == spare


SURGERY = """\
def train(loader, net, opt):
    for x in loader:
        opt.zero_grad()
        {call}
        net(x).backward()
        opt.step()
"""


@pytest.mark.parametrize(("call", "spare"), [("surgery.apply(net)", True), ("log(net)", False)])
def test_a_clear_beside_a_function_that_clears_may_be_missing(
    tmp_path: Path, call: str, spare: bool
) -> None:
    helper = tmp_path / "surgery.py"
    helper.write_text(
        "def apply(net):\n    _apply(net)\n\n\n"
        "def _apply(net):\n    net.zero_grad()\n\n\n"
        "def log(net):\n    pass\n"
    )
    helpers = frozenset(checkout_mutants.clearing_helpers(helper))
    assert helpers == {"_apply", "apply"}
    source = SURGERY.format(call=call)
    (deleted,) = (one for one in operators.mutants(source) if one.kind.name == "zero deleted")
    assert checkout_mutants.is_spare(source, deleted, helpers) is spare


CLIPPED = """\
for x in loader:
    opt.zero_grad()
    net(x).backward()
    norm = clip_grad_norm_(net.parameters(), 1.0)
    {between}
    opt.step()
"""


@pytest.mark.parametrize(("between", "spare"), [("print(norm)", True), ("print(x)", False)])
def test_a_clip_whose_norm_is_read_before_the_step_cannot_be_moved_behind_it(
    between: str, spare: bool
) -> None:
    source = CLIPPED.format(between=between)
    (moved,) = (one for one in operators.mutants(source) if one.kind.name == "clip after step")
    assert checkout_mutants.is_spare(source, moved) is spare


SEVERAL = """\
for x in loader:
    opt.zero_grad()
    other.zero_grad()
    net(x).backward()
    clip_grad_norm_(net.parameters(), 1.0)
    opt.step()
    {between}
    other.step()
"""


@pytest.mark.parametrize(("between", "spare"), [("print(x)", True), ("net(x).backward()", False)])
def test_a_clip_that_is_moved_behind_one_of_several_steps_may_be_right(
    between: str, spare: bool
) -> None:
    source = SEVERAL.format(between=between)
    (moved,) = (one for one in operators.mutants(source) if one.kind.name == "clip after step")
    assert checkout_mutants.is_spare(source, moved) is spare


ONCE = """\
for epoch in range(9):
    for x in {loader}:
        opt.zero_grad()
        net(x).backward()
        opt.step()
        {end}
"""


@pytest.mark.parametrize(
    ("loader", "end", "spare"),
    [("data", "break", True), ("range(1)", "pass", True), ("data", "pass", False)],
)
def test_a_clear_may_be_moved_out_of_a_loop_that_runs_once(
    loader: str, end: str, spare: bool
) -> None:
    source = ONCE.format(loader=loader, end=end)
    (moved,) = (
        one for one in operators.mutants(source) if one.kind.name == "zero hoisted a loop level"
    )
    assert checkout_mutants.is_spare(source, moved) is spare


LAST = """\
for epoch in range(9):
    for i, x in enumerate(data):
        keep(x)
        if {test}:
            opt.zero_grad()
            net(x).backward()
            opt.step()
"""


@pytest.mark.parametrize(
    ("test", "spare"), [("i == len(data) - 1", True), ("(i + 1) % 4 == 0", False)]
)
def test_a_clear_of_the_last_iteration_may_be_moved_before_the_loop(test: str, spare: bool) -> None:
    source = LAST.format(test=test)
    (moved,) = (
        one for one in operators.mutants(source) if one.kind.name == "zero hoisted a loop level"
    )
    assert checkout_mutants.is_spare(source, moved) is spare
