"""Helps in the names of the user's code."""

from __future__ import annotations

import pytest

import zerograd
from zerograd.core.events import Site
from zerograd.core.finding import Finding
from zerograd.core.help_text import code, helped, with_help
from zerograd.core.records import replace
from zerograd.report import agent, github, html_fragment, junit, sarif, text
from zerograd.report import json as json_format

HEAD = "import torch\n"


def found(source: str, wanted: str) -> tuple[Finding, str]:
    """The finding of a rule in a source, and its help as it is printed."""
    report = zerograd.check_source(HEAD + source, path="train.py")
    report.sources["train.py"] = (HEAD + source).split("\n")
    (one,) = (finding for finding in report.findings if finding.code == wanted)
    said = helped(one, report.sources)
    for form in (text, json_format, github, sarif, junit, agent, html_fragment):
        shown = form.render(report)
        assert said.replace("%", "%25") in shown if form is github else said in shown
    return one, said


STALE = """
class Trainer:
    def __init__(self, model):
        self.opt = torch.optim.SGD(model.parameters(), lr=0.1)

    def fit(self, loader, model):
        for x, y in loader:
            loss = model(x).sum()
            loss.backward()
            self.opt.step()
"""
CLIPPED = """
amp = torch.amp.GradScaler()
adam = torch.optim.Adam(model.parameters())
for x, y in loader:
    adam.zero_grad()
    amp.scale(model(x).sum()).backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    amp.step(adam)
    amp.update()
"""
GUARDED = """
sgd = torch.optim.SGD(model.parameters(), lr=0.1)
for step, (x, y) in enumerate(batches):
    loss = model(x).sum() / accumulate
    loss.backward()
    if step % accumulate == 0:
        sgd.step()
        sgd.zero_grad()
"""


CROSSED = """
for x in loader:
    fake = G(x)
    D(fake).mean().backward()
    opt_g.step()
    opt_g.zero_grad()
    D(fake.detach()).mean().backward()
    opt_d.step()
    opt_d.zero_grad()
"""


def test_the_clear_is_that_of_the_optimizer_whose_step_shows_it() -> None:
    both = "opt_d = torch.optim.Adam(D.parameters())\nopt_g = torch.optim.Adam(G.parameters())"
    one, said = found(both + CROSSED, "ZG106")
    assert said.endswith(": opt_d.zero_grad()")
    unnamed = replace(one, optimizer="")
    assert helped(unnamed, {one.site.path: (HEAD + both + CROSSED).split("\n")}) == said


def test_the_clear_is_that_of_the_programs_optimizer() -> None:
    _, said = found(STALE, "ZG101")
    assert said.endswith(": self.opt.zero_grad()")


def test_the_unscale_names_scaler_and_optimizer() -> None:
    _, said = found(CLIPPED, "ZG201")
    assert said == "call amp.unscale_(adam) before the clip"


def test_the_guard_has_the_programs_counter() -> None:
    _, said = found(GUARDED, "ZG302")
    assert said.endswith("(step + 1) % accumulate == 0")


@pytest.mark.parametrize("source", [STALE, GUARDED])
def test_a_guard_is_never_said_to_be_where_the_step_is(source: str) -> None:
    report = zerograd.check_source(HEAD + source, path="train.py")
    lines = (HEAD + source).split("\n")
    for finding in report.findings:
        for note in finding.notes:
            if "guard" in note.message:
                assert ".step(" not in lines[note.site.line - 1]


def test_names_that_no_line_shows_stay() -> None:
    finding = Finding(
        "ZG205", "scaled-step", "error", "", Site("train.py", 1), help="call scaler.step(optimizer)"
    )
    assert helped(finding, {}) == "call scaler.step(optimizer)"


@pytest.mark.parametrize(
    ("said", "copied"),
    [
        ("clear the gradients: self.opt.zero_grad()", "self.opt.zero_grad()"),
        ("call scaler.unscale_(opt) before the clip", "scaler.unscale_(opt)"),
        ("clear them first: clear_all(model)", "clear_all(model)"),
        ("call z.step() or optimizer.zero_grad()", "optimizer.zero_grad()"),
        ("clip once, just before step()", ""),
        ("divide the loss by the number of micro-batches in the window", ""),
    ],
)
def test_the_code_of_a_help_can_be_copied(said: str, copied: str) -> None:
    assert code(said) == copied


def shown(help_: str, *lines: str, line: int = 1, step: int | None = None) -> str:
    """A help about the last of some lines."""
    at_step = None if step is None else Site("train.py", step)
    finding = Finding(
        "ZG101", "", "error", "message", Site("train.py", line), help=help_, step=at_step
    )
    return with_help(finding, {"train.py": list(lines)})


@pytest.mark.parametrize(
    ("help_", "line", "said"),
    [
        ("say nothing", "opt.step()", "say nothing"),
        ("scaler.step(optimizer)", "gs.step(opt)", "gs.step(opt)"),
        ("scaler.step(optimizer)", "gs.unscale_(self.opts[0])", "gs.step(self.opts[0])"),
        ("optimizer.zero_grad()", "opt.zero_grad( set_to_none=True )", "opt.zero_grad()"),
        ("scaler.scale(loss).backward()", "gs.scale(l).backward()", "gs.scale(l).backward()"),
        (
            "scaler.scale(loss).backward()",
            "gs.scale(a + b).backward()",
            "gs.scale(loss).backward()",
        ),
        ("scaler.scale(loss).backward()", "err.backward()", "scaler.scale(err).backward()"),
        ("(i + 1) % N == 0", "if (step + 1) % every == 0:", "(step + 1) % every == 0"),
        ("(i + 1) % N == 0", "if step % 4 == 0:", "(step + 1) % 4 == 0"),
    ],
)
def test_a_help_has_the_names_of_the_line(help_: str, line: str, said: str) -> None:
    assert shown(help_, line) == f"message; {said}"


def test_the_first_line_that_shows_a_name_decides() -> None:
    lines = ("first.step()", "second.step()")
    assert shown("optimizer.zero_grad()", *lines, line=2, step=1) == "message; second.zero_grad()"
    assert shown("optimizer.zero_grad()", "x = 1", *lines, step=3) == "message; second.zero_grad()"


def test_the_loop_above_shows_the_counter_and_the_loader() -> None:
    loop = "for n, x in enumerate(batches):"
    help_ = "… or i + 1 == len(loader)"
    assert shown(help_, loop, "    pass", line=2) == "message; … or n + 1 == len(batches)"
    assert shown(help_, f"{loop} f()") == "message; … or n + 1 == len(batches)"
    # Another counter is in the guard: the loop may be another one.
    guarded = "    if k % 4 == 0:"
    assert shown(help_, loop, guarded, line=2) == "message; … or k + 1 == len(loader)"
    far = [loop, *["    pass"] * 70]
    assert shown(help_, *far, line=59) == "message; … or n + 1 == len(batches)"
    assert shown(help_, *far, line=60) == "message; … or i + 1 == len(loader)"
    inner = "    for m, y in enumerate(inner):"
    assert shown(help_, loop, inner, "pass", line=3) == "message; … or m + 1 == len(inner)"


def test_a_finding_without_a_help_says_its_message() -> None:
    assert shown("", "opt.step()") == "message"
