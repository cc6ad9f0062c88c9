"""What is plainly right gives no finding when it is read: not reading it loses nothing."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from support import tiers
from support.casefile import Case, load_all
from support.rule_pages import example
from zerograd.core.finding import Finding
from zerograd.core.rule import Rule
from zerograd.learn.rule_pages import prelude
from zerograd.rules.catalogue import RULES
from zerograd.static import obviously_right
from zerograd.static.check_file import check_file, check_text
from zerograd.static.read.module import index

ZERO, BACKWARD, STEP = "opt.zero_grad()", "loss_fn(model(x), y).backward()", "opt.step()"
CLIP = "torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)"
HEAD = """\
import torch


def train(model, loader, loss_fn, on):
    opt = torch.optim.SGD(model.parameters(), lr=0.1)
    aux_opt = torch.optim.Adam(model.parameters())
    for x, y in loader:
"""


@contextmanager
def everything_read() -> Iterator[None]:
    """In here nothing counts as plainly right."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(obviously_right.ObviouslyRight, "is_right", lambda *_: False)
        patch.setattr(obviously_right.ObviouslyRight, "is_top_level", lambda *_: False)
        yield


# The shortcut changes nothing


@pytest.mark.parametrize("case", load_all(), ids=lambda case: case.id)
def test_a_case_has_the_same_findings_when_all_of_it_is_read(case: Case, tmp_path: Path) -> None:
    paths = case.write(tmp_path)

    def findings() -> list[list[Finding]]:
        return [check_file(path, pedantic=True).findings for path in paths]

    short = findings()
    with everything_read():
        assert short == findings()


@pytest.mark.parametrize("which", ["bad", "good"])
@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.code)
def test_an_example_has_the_same_findings_when_all_of_it_is_read(rule: Rule, which: str) -> None:
    code = example(rule, which)
    body = "".join(f"    {line}" for line in code.splitlines(keepends=True))
    texts = [prelude(code) + code, f"{prelude(code)}\n\ndef train():\n{body}"]

    def findings() -> list[list[Finding]]:
        return [check_text(text, "train.py", pedantic=True).findings for text in texts]

    short = findings()
    with everything_read():
        assert short == findings()


CALLS = (ZERO, BACKWARD, STEP, CLIP, "aux_opt.zero_grad()", "aux_opt.step()")
ELSE = ("continue", "break", "on = not on", "opt.zero_grad(set_to_none=True)", "model.zero_grad()")


def nested(inner: st.SearchStrategy[list[str]]) -> st.SearchStrategy[list[str]]:
    """Blocks of statements, some of which hold a block themselves."""
    heads = st.sampled_from(["if on:", "for _ in range(2):", "with torch.no_grad():"])
    held = st.builds(lambda head, body: [head, *("    " + line for line in body)], heads, inner)
    return st.lists(st.one_of(held, inner), min_size=1, max_size=3).map(
        lambda parts: [line for part in parts for line in part]
    )


PROGRAMS = st.recursive(
    st.one_of(
        st.just([ZERO, BACKWARD, STEP]),
        st.just([BACKWARD, STEP, ZERO]),
        st.lists(st.sampled_from(CALLS), min_size=1, max_size=6),
        st.lists(st.sampled_from(CALLS + ELSE), min_size=1, max_size=6),
    ),
    nested,
    max_leaves=4,
)


@tiers.random(400)
@given(PROGRAMS)
def test_a_random_program_has_the_same_findings_when_all_of_it_is_read(lines: list[str]) -> None:
    text = HEAD + "".join(f"        {line}\n" for line in lines)
    short = check_text(text, "train.py", pedantic=True).findings
    with everything_read():
        assert short == check_text(text, "train.py", pedantic=True).findings


# What is plain


def body(*lines: str) -> str:
    inside = "".join(f"        {line}\n" for line in lines)
    return f"def train(model, loader, loss_fn, on):\n    for x, y in loader:\n{inside}"


ANOTHER = "\ndef other(optimizer):\n    optimizer.zero_grad()\n"


def is_plain(*lines: str, only: bool = True) -> bool:
    module = index("train.py", ast.parse(body(*lines) + ("" if only else ANOTHER)))
    return obviously_right.is_plain(module.functions["train"], module)


def is_silent(*lines: str) -> bool:
    module = index("train.py", ast.parse(body(*lines)))
    return obviously_right.is_silent(module.facts[module.functions["train"]], module.methods)


OTHER = ("aux_opt.zero_grad()", "loss.backward()", "aux_opt.step()")
PLAIN: dict[str, tuple[str, ...]] = {
    "clear, backward, step": (ZERO, BACKWARD, STEP),
    "backward, step, clear": (BACKWARD, STEP, ZERO),
    "a clear to None": ("opt.zero_grad(set_to_none=True)", BACKWARD, STEP),
    "a clip between backward and step": (ZERO, BACKWARD, CLIP, STEP),
    "a clip whose norm is kept": (ZERO, BACKWARD, f"norm = {CLIP}", STEP),
    "a clip and the clear last": (BACKWARD, CLIP, STEP, ZERO),
    "two rounds in a row": (ZERO, BACKWARD, STEP, ZERO, BACKWARD, STEP),
    "two optimizers that clear first": (ZERO, BACKWARD, STEP, *OTHER),
    "a round in each arm": ("if on:", *(f"    {s}" for s in (ZERO, BACKWARD, STEP)),
                            "else:", *(f"    {s}" for s in OTHER)),
    "an environment's step beside it": (ZERO, BACKWARD, STEP, "env.step(x)", "scheduler.step()"),
    "a report after the round": (ZERO, BACKWARD, STEP, "print(x)"),
    "a continue before the round": ("if on:", "    continue", ZERO, BACKWARD, STEP),
    "a continue before the backward": (ZERO, "if on:", "    continue", BACKWARD, STEP),
    "a continue after the round": (ZERO, BACKWARD, STEP, "if on:", "    continue", *OTHER),
    "a loop of its own between backward and step": (ZERO, BACKWARD, "for _ in x:", "    break", STEP),
}  # fmt: skip
NOT_PLAIN: dict[str, tuple[str, ...]] = {
    "no clear": (BACKWARD, STEP),
    "no step": (ZERO, BACKWARD),
    "no backward": (ZERO, STEP),
    "the clear between backward and step": (BACKWARD, ZERO, STEP),
    "two backward calls": (ZERO, BACKWARD, BACKWARD, STEP),
    "a clip before the backward": (ZERO, CLIP, BACKWARD, STEP),
    "a clip after the step": (ZERO, BACKWARD, STEP, CLIP),
    "a clip with two optimizers": (ZERO, BACKWARD, CLIP, STEP, *OTHER),
    "the clear of another": (ZERO, BACKWARD, "aux_opt.step()"),
    "two optimizers that clear last": (BACKWARD, STEP, ZERO, BACKWARD, "aux_opt.step()",
                                       "aux_opt.zero_grad()"),
    "a continue between backward and step": (ZERO, BACKWARD, "if on:", "    continue", STEP),
    "a break between backward and step": (ZERO, BACKWARD, "if on:", "    break", STEP),
    "a return between backward and step": (ZERO, BACKWARD, "with x:", "    return", STEP),
    "a continue between step and clear": (BACKWARD, STEP, "if on:", "    continue", ZERO),
    "anything between step and late clear": (BACKWARD, STEP, "check(x)", ZERO),
    "a conditional clear": ("if on:", f"    {ZERO}", BACKWARD, STEP),
    "a conditional step": (ZERO, BACKWARD, "if on:", f"    {STEP}"),
    "a conditional clip": (ZERO, BACKWARD, "if on:", f"    {CLIP}", STEP),
    "a backward in a loop of its own": (ZERO, "for _ in x:", f"    {BACKWARD}", STEP),
    "one clear for a loop of rounds": (ZERO, "for _ in x:", f"    {BACKWARD}", f"    {STEP}"),
    "a nested function": ("def run():", f"    {BACKWARD}", ZERO, BACKWARD, STEP),
    "a lambda": (f"run = lambda: {BACKWARD}", ZERO, BACKWARD, STEP),
    "a gradient handed in": (ZERO, "loss.backward(gradient=x)", STEP),
    "a gradient handed in by position": (ZERO, "loss.backward(x)", STEP),
    "a closure": (ZERO, BACKWARD, "opt.step(closure)"),
    "a loss scaled by a scaler": (ZERO, "scaler.scale(loss).backward()", "scaler.step(opt)"),
    "a gradient read": (ZERO, BACKWARD, "print(x.grad)", STEP),
    "a frozen parameter": (ZERO, BACKWARD, STEP, "x.requires_grad = False"),
    "a callable scaler": (ZERO, BACKWARD, STEP, "loss_scaler(loss, opt)"),
    "a step whose result is kept": (ZERO, BACKWARD, f"done = {STEP}"),
    "a step taken as a value": (ZERO, BACKWARD, STEP, "run = opt.step"),
}  # fmt: skip


@pytest.mark.parametrize("lines", PLAIN.values(), ids=PLAIN.keys())
def test_rounds_in_an_order_that_cannot_go_wrong_are_plain(lines: tuple[str, ...]) -> None:
    assert is_plain(*lines)
    assert check_text(HEAD + "".join(f"        {line}\n" for line in lines)).findings == []


@pytest.mark.parametrize("lines", NOT_PLAIN.values(), ids=NOT_PLAIN.keys())
def test_everything_else_has_to_be_read(lines: tuple[str, ...]) -> None:
    assert not is_plain(*lines)
    assert not is_silent(*lines)


@pytest.mark.parametrize(
    "lines",
    [(ZERO, BACKWARD, STEP, BACKWARD, STEP, ZERO), (BACKWARD, STEP, ZERO, ZERO, BACKWARD, STEP)],
    ids=["around both", "between both"],
)
def test_rounds_that_clear_first_and_last_do_not_mix(lines: tuple[str, ...]) -> None:
    assert not is_plain(*lines)


def test_a_clear_that_comes_last_is_plain_only_where_nobody_else_touches_gradients() -> None:
    assert is_plain(BACKWARD, STEP, ZERO, only=True)
    assert not is_plain(BACKWARD, STEP, ZERO, only=False)
    assert is_plain(ZERO, BACKWARD, STEP, only=False)


@pytest.mark.parametrize(
    "line", ["pass", "env.step(x)", "scheduler.step()", "print(loss)", "x = x.requires_grad"]
)
def test_steps_of_environments_and_schedulers_are_silent(line: str) -> None:
    assert is_silent(line)
    assert not is_plain(line)


@pytest.mark.parametrize(
    "line",
    [ZERO, BACKWARD, STEP, CLIP, "print(x.grad)", "scaler(loss)", "x.requires_grad = True",
     "run = opt.zero_grad", "def run(): loss.backward()"],
)  # fmt: skip
def test_a_function_that_does_anything_to_gradients_is_not_silent(line: str) -> None:
    assert not is_silent(line)
