"""A look at the bytes: what can break a rule is parsed, and little else."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from zerograd.static.read.prefilter import worth_parsing

LOOP = "optimizer.zero_grad()\nloss.backward()\noptimizer.step()\n"


@pytest.mark.parametrize(
    "code",
    [
        b"loss.backward()\noptimizer.step()",
        b"loss.backward ()\nopt.step ()",
        b"run, finish = loss.backward, opt.step",
        b"self.manual_backward(loss)\nself.optimizers().step()",
        b"engine.backward(loss)\nengine.step()",
        b"backward_step(loss)",
        b"loss.backward()\nxm.optimizer_step(optimizer)",
        b"optimizer.first_step(zero_grad=True)",
        b"optimizer.zero_grad()\noptimizer.step()",
        b"x.grad.zero_()\nloss.backward()",
        b"loss.backward()\nw.data -= lr * w.grad",
        b"optimizer.zero_grad()\nnative_scaler(loss, optimizer)",
    ],
)
def test_what_fills_or_clears_gradients_and_uses_them_is_worth_parsing(code: bytes) -> None:
    assert worth_parsing(code)


@pytest.mark.parametrize(
    "code",
    [b"loss_scaler(loss, optimizer)", b"loss_scaler( loss)", b"scaler = NativeScaler ()"],
)
def test_a_callable_loss_scaler_does_both_in_one_call(code: bytes) -> None:
    assert worth_parsing(code)


@pytest.mark.parametrize("code", [b"optimizer.step()", b"self.opt_g.step ()"])
def test_an_optimizer_that_is_stepped_may_be_filled_in_another_file(code: bytes) -> None:
    assert worth_parsing(code)


@pytest.mark.parametrize(
    "code",
    [
        b"print('hello')",
        b"loss.backward()",
        b"self.manual_backward(loss)",
        b"optimizer.zero_grad()",
        b"optimizer.zero_grad()\nloss.backward()",
        b"env.step(action)\nscheduler.step()",
        b"xm.optimizer_step(optimizer)",
        b"norm = p.grad.norm()\nenv.step(action)",
        b"# kept for backward compatibility (and backwards, too)\nenv.step(action)",
        b"MinMaxScaler.fit(data)\nscaler.transform(data)",
        b"scaled = StandardScaler().fit_transform(data)",
        b"optimizer.zero_grad()  # then optimizer.step()",
        b"'''loss.backward()\noptimizer.step()'''\nprint(loss)",
        b'print("loss.backward() and \\"optimizer.step()")',
        b"class F(Function):\n    def backward(ctx, x):\n        return env.step(x)",
    ],
)
def test_less_than_that_cannot_break_a_rule_and_is_not_parsed(code: bytes) -> None:
    assert not worth_parsing(code)


@given(st.text(st.sampled_from("abc '\"\\\n#")))
def test_no_string_or_comment_before_it_hides_a_loop(before: str) -> None:
    assert worth_parsing(f"words = {before!r}\n{LOOP}".encode())
    comment = before.replace("\n", " ")
    assert worth_parsing(f"# {comment}\n{LOOP}".encode())


def test_the_code_of_a_notebook_is_in_strings() -> None:
    book = json.dumps({"cells": [{"cell_type": "code", "source": LOOP}]}).encode()
    assert worth_parsing(book, notebook=True)


def test_an_allow_comment_is_read_whatever_is_beside_it() -> None:
    assert worth_parsing(b"x = 1  # zerograd: allow[stale-gradient]")
