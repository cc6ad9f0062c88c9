"""`check --loops` and `--why`: every training loop has a verdict, the same by every way to it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from support.command import FORGOTTEN_ZERO, RIGHT, write, zerograd
from support.notebooks import notebook
from zerograd.core.training_loop import NotFollowed
from zerograd.static.obviously_right import ObviouslyRight


def loops(folder: Path, *arguments: str) -> list[dict[str, Any]]:
    done = zerograd("check", *arguments, "--loops", "--format", "json", cwd=folder)
    found = json.loads(done.stdout)["loops"]
    assert isinstance(found, list)
    return found


def verdict(folder: Path, source: str) -> tuple[str, str | None]:
    write(folder, {"train.py": source})
    (one,) = loops(folder, "train.py")
    return one["verdict"], one["reason_code"]


SETUP = """\
import torch
from torch import nn
model = nn.Linear(2, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
"""
LOOP = """\
for x, y in loader:
    optimizer.zero_grad()
    loss = (model(x) - y).square().mean()
    loss.backward()
    optimizer.step()
"""


def test_a_loop_is_right_or_wrong(tmp_path: Path) -> None:
    write(tmp_path, {"a.py": RIGHT, "b.py": FORGOTTEN_ZERO})
    right, wrong = loops(tmp_path, ".")
    assert right == {
        "path": "a.py",
        "cell": None,
        "line": 5,
        "column": 1,
        "name": "<module>",
        "kind": "loop",
        "verdict": "right",
        "reason_code": None,
        "reason": None,
        "cause": None,
        "findings": [],
        "steps": [
            {
                "path": "a.py",
                "cell": None,
                "line": right["steps"][0]["line"],
                "column": 5,
                "call": "optimizer.step()",
                "subject": "optimizer",
            }
        ],
    }
    assert (wrong["path"], wrong["verdict"], wrong["findings"]) == ("b.py", "wrong", [0])


def test_the_summary_counts_the_loops(tmp_path: Path) -> None:
    write(tmp_path, {"a.py": RIGHT, "b.py": FORGOTTEN_ZERO, "c.py": "x = 1\n"})
    done = zerograd("check", ".", cwd=tmp_path)
    assert done.stdout.splitlines()[-3:] == [
        "checked 3 files: 2 training loops: 1 right, 1 wrong",
        "found 1 error",
        "fixable: 1 with --fix",
    ]
    done = zerograd("check", "c.py", cwd=tmp_path)
    assert done.stdout == "checked 1 file: no training loop\n"


def test_json_has_no_loops_unless_asked(tmp_path: Path) -> None:
    write(tmp_path, {"a.py": RIGHT})
    done = zerograd("check", ".", "--format", "json", cwd=tmp_path)
    assert "loops" not in json.loads(done.stdout)


def test_a_check_without_a_path_checks_this_directory(tmp_path: Path) -> None:
    write(tmp_path, {"a.py": RIGHT, "sub/b.py": RIGHT})
    assert zerograd("check", cwd=tmp_path).stdout.startswith("checked 2 files: 2 training loops")


def test_an_allow_comment_hides_a_finding_and_leaves_the_loop_wrong(tmp_path: Path) -> None:
    allowed = FORGOTTEN_ZERO.replace(
        "loss.backward()", "loss.backward()  # zerograd: allow[stale-gradient]"
    )
    write(tmp_path, {"a.py": allowed})
    (one,) = loops(tmp_path, ".")
    assert (one["verdict"], one["findings"]) == ("wrong", [])
    assert zerograd("check", ".", cwd=tmp_path).returncode == 0


def test_a_rule_that_is_not_selected_does_not_make_a_loop_wrong(tmp_path: Path) -> None:
    write(tmp_path, {"a.py": FORGOTTEN_ZERO})
    (one,) = loops(tmp_path, ".", "--ignore", "ZG101")
    assert one["verdict"] == "right"


def test_advice_makes_a_loop_wrong_only_if_it_is_selected_by_name(tmp_path: Path) -> None:
    advice = SETUP + (
        "def train(loader):\n"
        "    optimizer.zero_grad()\n"
        "    for i, (x, y) in enumerate(loader):\n"
        "        loss = (model(x) - y).square().mean() / 4\n"
        "        loss.backward()\n"
        "        if (i + 1) % 4 == 0:\n"
        "            optimizer.step()\n"
        "            optimizer.zero_grad()\n"
    )
    write(tmp_path, {"a.py": advice})
    (one,) = loops(tmp_path, ".")
    assert (one["verdict"], one["reason_code"]) == ("not followed", "advice")
    assert one["findings"]
    (one,) = loops(tmp_path, ".", "--select", "ZG303,ZG304")
    assert one["verdict"] == "wrong"


def test_an_optimizer_in_unseen_hands_is_not_followed_and_the_cause_is_named(
    tmp_path: Path,
) -> None:
    source = (
        "from elsewhere import start_batch\n"
        + SETUP
        + LOOP.replace("    optimizer.zero_grad()\n", "    start_batch(optimizer)\n")
    )
    write(tmp_path, {"train.py": source})
    (one,) = loops(tmp_path, ".")
    assert (one["verdict"], one["reason_code"]) == ("not followed", "unseen-call")
    assert one["reason"] == "optimizer is handed to `start_batch()`, which is not in this project"
    assert (one["cause"]["path"], one["cause"]["line"]) == ("train.py", 7)


def test_a_clear_after_the_unseen_call_makes_it_followed(tmp_path: Path) -> None:
    source = "from elsewhere import foo\n" + SETUP + "foo(optimizer)\n" + LOOP
    assert verdict(tmp_path, source) == ("right", None)


def test_a_step_without_a_backward_is_not_followed(tmp_path: Path) -> None:
    source = SETUP + "for x in loader:\n    compute(x)\n    optimizer.step()\n"
    assert verdict(tmp_path, source) == ("not followed", "no-backward")


def test_a_step_with_a_loss_that_an_unseen_optimizer_gets_is_not_followed(tmp_path: Path) -> None:
    source = (
        "import torch\ndef train(loader, optimizer, model):\n"
        "    for x in loader:\n"
        "        optimizer.zero_grad()\n"
        "        loss = model(x)\n"
        "        loss.backward()\n"
        "        optimizer.step(loss)\n"
    )
    assert verdict(tmp_path, source) == ("not followed", "unseen-step")


def test_an_assignment_that_may_be_for_an_unseen_optimizer_is_named(tmp_path: Path) -> None:
    source = (
        "import torch\ndef train(loader, optimizer, model, masters):\n"
        "    for x in loader:\n"
        "        model.zero_grad()\n"
        "        model(x).sum().backward()\n"
        "        for p, m in zip(model.parameters(), masters):\n"
        "            m.grad = p.grad.float()\n"
        "        optimizer.step()\n"
    )
    assert verdict(tmp_path, source) == ("not followed", "unclear-assignment")


def test_what_is_added_by_hand_to_used_gradients_is_no_clean_bill(tmp_path: Path) -> None:
    source = SETUP + (
        "model(torch.ones(2)).sum().backward()\n"
        "for x, y in loader:\n"
        "    for p in model.parameters():\n"
        "        p.grad.add_(p.detach())\n"
        "    model(x).sum().backward()\n"
        "    optimizer.step()\n"
    )
    assert verdict(tmp_path, source) == ("not followed", "unclear-assignment")


def test_a_possible_finding_is_no_clean_bill(tmp_path: Path) -> None:
    source = SETUP + (
        "for x, y in loader:\n"
        "    if a(x):\n"
        "        optimizer.zero_grad()\n"
        "    if b(x):\n"
        "        optimizer.zero_grad()\n"
        "    loss = (model(x) - y).square().mean()\n"
        "    loss.backward()\n"
        "    optimizer.step()\n"
    )
    write(tmp_path, {"a.py": source})
    (one,) = loops(tmp_path, ".")
    assert (one["verdict"], one["reason_code"]) == ("not followed", "possible")
    (one,) = loops(tmp_path, ".", "--pedantic")
    assert one["verdict"] == "wrong"


def test_every_reason_has_a_code_and_says_its_subject() -> None:
    codes = [one.value for one in NotFollowed]
    assert len(set(codes)) == len(codes)
    for one in NotFollowed:
        assert one.reason.format(subject="opt", call="foo()")


# Whose loop a step belongs to

LIGHTNING = """\
import torch, pytorch_lightning as pl
class Net(pl.LightningModule):
    def training_step(self, batch, index):
        opt = self.optimizers()
        opt.zero_grad()
        self.manual_backward(self.loss(batch))
        opt.step()
"""


def test_a_step_with_a_closure_is_one_step_of_its_optimizer(tmp_path: Path) -> None:
    source = """\
import torch
def train_step(model, opt, x):
    def closure():
        opt.zero_grad()
        loss = model(x).sum()
        loss.backward()
        return loss
    opt.step(closure)
def train(model, loader, optimizer):
    for x in loader:
        train_step(model, optimizer, x)
"""
    write(tmp_path, {"a.py": source})
    (loop,) = loops(tmp_path, "a.py")
    assert [step["subject"] for step in loop["steps"]] == ["opt"]


def test_loops_over_optimizers_and_parameters_do_not_count(tmp_path: Path) -> None:
    source = (
        "import torch\na, b = torch.nn.Linear(1, 1), torch.nn.Linear(1, 1)\n"
        "opts = [torch.optim.SGD(a.parameters(), 0.1), torch.optim.SGD(b.parameters(), 0.1)]\n"
        "for x in loader:\n"
        "    for opt in opts:\n"
        "        opt.zero_grad()\n"
        "    (a(x) + b(x)).sum().backward()\n"
        "    for opt in opts:\n"
        "        opt.step()\n"
    )
    write(tmp_path, {"a.py": source})
    (one,) = loops(tmp_path, ".")
    assert (one["line"], one["kind"]) == (4, "loop")


def test_a_helper_that_two_loops_drive_gives_two_loops_and_none_of_its_own(tmp_path: Path) -> None:
    helper = SETUP + (
        "def train_step(x):\n"
        "    optimizer.zero_grad()\n"
        "    model(x).sum().backward()\n"
        "    optimizer.step()\n"
    )
    drive = "for x in first:\n    train_step(x)\nfor x in second:\n    train_step(x)\n"
    write(tmp_path, {"a.py": helper + drive})
    assert [(one["line"], one["kind"]) for one in loops(tmp_path, ".")] == [
        (9, "loop"),
        (11, "loop"),
    ]
    (tmp_path / "a.py").unlink()
    write(
        tmp_path,
        {
            "engine.py": helper,
            "one.py": "from engine import train_step\nfor x in first:\n    train_step(x)\n",
            "two.py": "from engine import train_step\nfor x in second:\n    train_step(x)\n",
        },
    )
    named = loops(tmp_path, "engine.py", "one.py", "two.py")
    found = [(one["path"], one["line"], one["kind"]) for one in named]
    assert found == [("one.py", 2, "loop"), ("two.py", 2, "loop")]


BASE = """\
class Base:
    def fit(self, loader):
        for batch in loader:
            self.one(batch)

    def one(self, batch):
        self.learn(self.model(batch).mean())

    def learn(self, loss):
        raise NotImplementedError
"""
SUBCLASS = """\
class Trainer(Base):
    def __init__(self, model):
        self.model = model
        self.opt = torch.optim.SGD(model.parameters(), lr=0.1)

    def learn(self, loss):
        loss.backward()
        self.opt.step()
        self.opt.zero_grad()
"""


STEP = """\
import torch
class Step:
    def __init__(self, model):
        self.model = model
        self.opt = torch.optim.SGD(model.parameters(), lr=0.1)

    def __call__(self, batch):
        self.model(batch).mean().backward()
        self.opt.step()
"""
DRIVER = """\
from step import Step
def main(model, loader):
    learn = Step(model)
    for batch in loader:
        learn(batch)
"""


def test_a_loop_that_calls_an_object_of_another_file_repeats_its_step(tmp_path: Path) -> None:
    write(tmp_path, {"step.py": STEP, "main.py": DRIVER})
    (one,) = loops(tmp_path, ".")
    assert (one["path"], one["line"], one["verdict"]) == ("main.py", 4, "wrong")
    cleared = STEP.replace(
        "        self.model(", "        self.opt.zero_grad()\n        self.model("
    )
    write(tmp_path, {"step.py": cleared})
    (one,) = loops(tmp_path, ".")
    assert (one["path"], one["line"], one["verdict"]) == ("main.py", 4, "right")


LEARNER = """\
import torch
class Learner:
    def __init__(self, model, callbacks=()):
        self.model = model
        self.opt = torch.optim.SGD(model.parameters(), lr=0.1)
        self.callbacks = callbacks

    def fit(self, loader):
        for batch in loader:
            self.model(batch).mean().backward()
            self.opt.step()
            for callback in self.callbacks:
                callback(self)
"""


def test_a_layer_that_is_called_for_its_result_is_no_callback(tmp_path: Path) -> None:
    forward = LEARNER.replace("callback(self)", "batch = callback(batch)")
    main = "def clear(learner):\n    learner.opt.zero_grad()\nkept = [clear]"
    write(tmp_path, {"learner.py": forward, "main.py": main, "pyproject.toml": ""})
    (one,) = loops(tmp_path, ".")
    assert one["verdict"] == "wrong"


@pytest.mark.parametrize(
    ("main", "expected"),
    [
        (
            "def clear(learner):\n    learner.opt.zero_grad()\nkept = [clear]\nopt.zero_grad()",
            "not followed",
        ),
        ("def clear(learner):\n    learner.opt.zero_grad()\nkept = [print]", "wrong"),
        ("class Clear:\n    def __call__(self, one):\n        one.opt.zero_grad()", "not followed"),
        ("kept = [print]", "wrong"),
    ],
    ids=["handed-on", "not-handed-on", "an-object", "none"],
)
def test_a_function_that_the_project_hands_on_may_be_the_callback_that_clears(
    tmp_path: Path, main: str, expected: str
) -> None:
    write(tmp_path, {"learner.py": LEARNER, "main.py": main, "pyproject.toml": ""})
    (one,) = loops(tmp_path, ".")
    assert (one["path"], one["line"], one["verdict"]) == ("learner.py", 9, expected)


HOOKS = """\
class Base:
    def before_epoch(self):
        pass

    def before_batch(self):
        raise NotImplementedError

    def fit(self, epochs):
        for _ in range(epochs):
            self.before_epoch()
            for batch in self.loader:
                self.before_batch()
                self.model(batch).mean().backward()
                self.opt.step()
"""
HOOKED = """\
import torch
from base import Base
class Clears(Base):
    def __init__(self, model, loader):
        self.model, self.loader = model, loader
        self.opt = torch.optim.SGD(model.parameters(), lr=0.1)

    def before_batch(self):
        self.opt.zero_grad()
"""


@pytest.mark.parametrize("method", ["before_batch", "before_epoch"])
def test_a_method_that_does_nothing_is_left_to_the_subclass_that_clears_in_it(
    tmp_path: Path, method: str
) -> None:
    subclass = HOOKED.replace("before_batch", method)
    write(tmp_path, {"base.py": HOOKS, "train.py": subclass, "pyproject.toml": ""})
    (one,) = loops(tmp_path, ".")
    verdict = "right" if method == "before_batch" else "wrong"
    assert (one["path"], one["line"], one["verdict"]) == ("base.py", 11, verdict)


def test_a_class_without_a_subclass_that_clears_is_judged_as_it_is(tmp_path: Path) -> None:
    subclass = HOOKED.replace("self.opt.zero_grad()", "print()")
    write(tmp_path, {"base.py": HOOKS, "train.py": subclass, "pyproject.toml": ""})
    (one,) = loops(tmp_path, ".")
    assert one["verdict"] == "wrong"
    write(tmp_path, {"train.py": HOOKED})
    (one,) = loops(tmp_path, "base.py")
    assert (one["verdict"], one["reason_code"]) == ("not followed", "left-to-subclass")


LOSSES = """\
import torch
class Base:
    def __init__(self, maker, judge):
        self.maker, self.judge = maker, judge
        self.opt_m = torch.optim.Adam(maker.parameters())
        self.opt_j = torch.optim.Adam(judge.parameters())

    def maker_loss(self, batch):
        raise NotImplementedError

    def judge_loss(self, batch):
        raise NotImplementedError

    def fit(self, loader):
        for batch in loader:
            self.opt_m.zero_grad()
            self.maker_loss(batch).backward()
            self.opt_m.step()
            self.judge_loss(batch).backward()
            self.opt_j.step()
            self.opt_j.zero_grad()
"""
LOSS = """\
from base import Base
class Real(Base):
    def maker_loss(self, batch):
        return self.judge(self.maker(batch)).mean()

    def judge_loss(self, batch):
        return self.judge(batch).mean()
"""


@pytest.mark.parametrize("through", [False, True], ids=["right", "wrong"])
def test_losses_that_are_left_to_a_subclass_are_those_of_the_subclass(
    tmp_path: Path, through: bool
) -> None:
    subclass = (
        LOSS if through else LOSS.replace("self.judge(self.maker(batch))", "self.maker(batch)")
    )
    write(tmp_path, {"base.py": LOSSES, "real.py": subclass, "pyproject.toml": ""})
    (one,) = loops(tmp_path, ".")
    assert one["verdict"] == ("wrong" if through else "right")
    (one,) = loops(tmp_path, "base.py")
    assert (one["verdict"], one["reason_code"]) == ("not followed", "left-to-subclass")


def test_a_loop_is_right_whatever_its_losses_fill_if_each_optimizer_is_cleared_first(
    tmp_path: Path,
) -> None:
    cleared = LOSSES.replace(
        "            self.judge_loss",
        "            self.opt_j.zero_grad()\n            self.judge_loss",
    )
    write(tmp_path, {"base.py": cleared, "pyproject.toml": ""})
    (one,) = loops(tmp_path, ".")
    assert one["verdict"] == "right"


def test_what_runs_between_the_yields_of_a_generator_is_left_to_the_caller(tmp_path: Path) -> None:
    code = """\
def batches(loader, optimizer):
    for batch in loader:
        optimizer.zero_grad()
        yield batch
        optimizer.step()
"""
    write(tmp_path, {"train.py": code, "pyproject.toml": ""})
    (one,) = loops(tmp_path, ".")
    assert (one["verdict"], one["reason_code"]) == ("not followed", "left-to-caller")


@pytest.mark.parametrize("clear", ["", "optimizer.zero_grad()"])
def test_a_function_that_fills_and_steps_and_never_clears_leaves_the_clear_to_its_callers(
    tmp_path: Path, clear: str
) -> None:
    code = f"""\
def adapt(model, optimizer, x):
    model(x).mean().backward()
    optimizer.step()
    {clear}
"""
    write(tmp_path, {"train.py": code, "pyproject.toml": ""})
    (one,) = loops(tmp_path, ".")
    said = (one["verdict"], one["reason_code"])
    assert said == (("right", None) if clear else ("not followed", "left-to-caller"))


@pytest.mark.parametrize("loss", ["judge(x)", "net(x)"])
def test_a_loop_is_not_right_if_only_another_loop_fills_what_it_steps(
    tmp_path: Path, loss: str
) -> None:
    code = f"""\
import torch
net, judge = torch.nn.Linear(2, 2), torch.nn.Linear(2, 2)
opt, opt_j = torch.optim.Adam(net.parameters()), torch.optim.Adam(judge.parameters())
for x in first:
    opt.zero_grad()
    opt_j.zero_grad()
    (net(x).mean() + judge(x).mean()).backward()
    opt.step()
    opt_j.step()
for x in second:
    opt.zero_grad()
    opt_j.zero_grad()
    ({loss}.mean() + judge(x).mean()).backward()
    opt.step()
    opt_j.step()
"""
    write(tmp_path, {"train.py": code, "pyproject.toml": ""})
    one, other = loops(tmp_path, ".")
    assert one["verdict"] == "right"
    expected = ("right", None) if loss == "net(x)" else ("not followed", "no-backward")
    assert (other["verdict"], other["reason_code"]) == expected


@pytest.mark.parametrize("clear", ["", "self.opt.zero_grad()"], ids=["wrong", "right"])
@pytest.mark.parametrize("apart", [False, True], ids=["one-file", "two-files"])
def test_the_loop_of_a_base_class_is_the_loop_of_a_step_in_its_subclass(
    tmp_path: Path, apart: bool, clear: str
) -> None:
    subclass = SUBCLASS.replace("self.opt.zero_grad()", clear)
    if apart:
        files = {"base.py": BASE, "train.py": f"import torch\nfrom base import Base\n{subclass}"}
    else:
        files = {"train.py": f"import torch\n{BASE}{subclass}"}
    write(tmp_path, files)
    (one,) = loops(tmp_path, ".")
    place = ("base.py", 3) if apart else ("train.py", 4)
    assert (one["path"], one["line"]) == place
    assert one["verdict"] == ("right" if clear else "wrong")


@pytest.mark.parametrize(
    ("source", "name", "kind"),
    [
        (SETUP + LOOP.replace("for x, y in loader:", "if True:"), "<module>", "module"),
        (
            SETUP + "def one(x):\n    optimizer.zero_grad()\n    model(x).sum().backward()\n"
            "    optimizer.step()\n",
            "one",
            "function",
        ),
        (
            LIGHTNING,
            "Net.training_step",
            "per-batch",
        ),
    ],
)
def test_a_step_without_a_loop_belongs_to_its_function_or_file(
    tmp_path: Path, source: str, name: str, kind: str
) -> None:
    write(tmp_path, {"a.py": source})
    (one,) = loops(tmp_path, ".")
    assert (one["name"], one["kind"]) == (name, kind)


def test_schedulers_and_environments_have_no_loops(tmp_path: Path) -> None:
    source = (
        "import torch\nfor epoch in range(9):\n    scheduler.step()\n    env.step(action)\n"
        "    loss.backward()\n"
    )
    write(tmp_path, {"a.py": source})
    assert loops(tmp_path, "a.py") == []


def test_a_loop_of_a_notebook_has_its_cell(tmp_path: Path) -> None:
    (tmp_path / "a.ipynb").write_text(notebook(SETUP, LOOP))
    (one,) = loops(tmp_path, ".")
    assert (one["cell"], one["line"], one["verdict"]) == (2, 1, "right")
    done = zerograd("check", "--why", "a.ipynb:2:4", cwd=tmp_path)
    assert done.returncode == 0
    assert "a.ipynb:cell 2:1:1  right" in done.stdout


# The same by every way


def test_warm_equals_cold(tmp_path: Path) -> None:
    write(tmp_path, {"a.py": RIGHT, "b.py": FORGOTTEN_ZERO, "c.py": SETUP + LOOP})
    cold = loops(tmp_path, ".")
    assert loops(tmp_path, ".") == cold == loops(tmp_path, ".", "--no-cache")


def test_code_that_is_obviously_right_has_the_loops_that_interpreting_finds(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from zerograd.static.analyse import analyse
    from zerograd.static.read.load import from_text

    source = (
        SETUP
        + LOOP
        + (
            "def train(loader, opt):\n"
            "    for epoch in range(3):\n"
            "        for x in loader:\n"
            "            opt.zero_grad()\n"
            "            model(x).sum().backward()\n"
            "            opt.step()\n"
            "class Trainer:\n"
            "    def fit(self, loader):\n"
            "        while True:\n"
            "            self.opt.zero_grad()\n"
            "            self.net(next(loader)).sum().backward()\n"
            "            self.opt.step()\n"
        )
    )
    short = analyse(from_text(source, "a.py"))
    monkeypatch.setattr(ObviouslyRight, "is_right", lambda *_: False)
    monkeypatch.setattr(ObviouslyRight, "is_top_level", lambda *_: False)
    assert analyse(from_text(source, "a.py")).loops == short.loops
    assert len(short.loops) == 3


# Why


def test_why_explains_a_loop(tmp_path: Path) -> None:
    source = SETUP + (
        "optimizer.zero_grad()\n"
        "for i, (x, y) in enumerate(loader):\n"
        "    loss = (model(x) - y).square().mean() / 4\n"
        "    loss.backward()\n"
        "    if (i + 1) % 4 == 0 or i + 1 == len(loader):\n"
        "        nn.utils.clip_grad_norm_(model.parameters(), 1.0)\n"
        "        optimizer.step()\n"
        "        optimizer.zero_grad()\n"
    )
    write(tmp_path, {"train.py": source})
    done = zerograd("check", "--why", "train.py:8", cwd=tmp_path)
    assert done.returncode == 0
    for line in (
        "train.py:6:1",
        "step        optimizer.step() (train.py:11:9)",
        "subject     optimizer, which steps model",
        "filled by   loss.backward() (train.py:8:5)",
        "cleared by  optimizer.zero_grad() (train.py:12:9)",
        "clipped by  nn.utils.clip_grad_norm_() (train.py:10:9)",
        "guarded by  ",
        "assumed     its guard was executed for windows of 2 and 3 micro-batches",
    ):
        assert line in done.stdout
    printed = json.loads(
        zerograd("check", "--why", "train.py:8", "--format", "json", cwd=tmp_path).stdout
    )
    (why,) = printed["why"]
    assert [one["call"] for one in why["accounts"][0]["backwards"]] == ["loss.backward()"]


def test_why_says_what_decisions_held_back(tmp_path: Path) -> None:
    tests = "".join(
        f"    {'if' if not n else 'elif'} c{n}(x):\n        optimizer.zero_grad()\n"
        for n in range(3)
    )
    source = (
        SETUP
        + "for x in loader:\n"
        + tests
        + ("    model(x).sum().backward()\n    optimizer.step()\n")
    )
    write(tmp_path, {"train.py": source})
    done = zerograd("check", "--why", "train.py:5", "--format", "json", cwd=tmp_path)
    (why,) = json.loads(done.stdout)["why"]
    (held,) = [one for account in why["accounts"] for one in account["withheld"]]
    assert held["code"] == "ZG101"
    assert len(held["when"]) == 3


def test_why_without_a_loop_names_the_nearest(tmp_path: Path) -> None:
    write(tmp_path, {"train.py": SETUP + LOOP, "none.py": "x = 1\n"})
    done = zerograd("check", "--why", "train.py:1", cwd=tmp_path)
    assert done.returncode == 2
    assert "the nearest is at train.py:5:1" in done.stderr
    done = zerograd("check", "--why", "none.py:1", cwd=tmp_path)
    assert done.returncode == 2
    assert "there is none in none.py" in done.stderr
    assert zerograd("check", "--why", "train.py", cwd=tmp_path).returncode == 2


def test_a_loop_with_a_repairable_finding_is_accounted_for_in_json_too(tmp_path: Path) -> None:
    write(tmp_path, {"train.py": FORGOTTEN_ZERO})
    words = ("check", "--why", "train.py:7", "--format", "json")
    (why,) = json.loads(zerograd(*words, cwd=tmp_path).stdout)["why"]
    assert [one["call"] for one in why["accounts"][0]["backwards"]] == ["loss.backward()"]
