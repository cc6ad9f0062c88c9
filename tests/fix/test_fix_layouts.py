"""However training code is laid out, its repair is the same program, and keeps what it does not touch."""

from __future__ import annotations

import ast
import io
import re
import tokenize
from dataclasses import dataclass
from functools import cache

import pytest
from hypothesis import given
from hypothesis import strategies as st

from support import tiers
from support.repairs import HEAD, repaired
from support.rule_pages import example
from zerograd.fix.repair import module_of
from zerograd.learn.rule_pages import prelude
from zerograd.rules.catalogue import RULES
from zerograd.static.check_file import result_for_bytes

SIMPLE = ("loss", "optimizer", "scaler", "torch", "p.", "accelerator")
BY_CODE = {rule.code: rule for rule in RULES}


def tree(text: str) -> str:
    return ast.dump(ast.parse(text))


def comments(text: str) -> list[str]:
    tokens = tokenize.generate_tokens(io.StringIO(text.replace("\r\n", "\n")).readline)
    return sorted(token.string for token in tokens if token.type == tokenize.COMMENT)


@cache
def wanted(code: str) -> str:
    """The tree of the repaired example, as it is usually laid out."""
    bad = example(BY_CODE[code], "bad")
    return tree(repaired(prelude(bad) + bad).document.text)


@dataclass
class Layout:
    """A way to write the lines of an example down."""

    text: str
    shared: bool
    """Whether statements share lines."""


@st.composite
def layouts(draw: st.DrawFn, code: str) -> Layout:
    bad = example(BY_CODE[code], "bad")
    level = draw(st.sampled_from(["    ", "  ", " ", "\t", "        "]))
    newline = draw(st.sampled_from(["\n", "\r\n"]))
    joins = draw(st.booleans())
    lines: list[str] = []
    shared = False
    for line in bad.splitlines():
        depth = (len(line) - len(line.lstrip())) // 4
        words, indent = line.strip(), level * depth
        simple = words.startswith(SIMPLE) and not words.endswith(":")
        for _ in range(draw(st.integers(0, 1))):
            lines.append(draw(st.sampled_from(["", indent + "# a word", indent + "# wörter"])))
        alike = lines and lines[-1].startswith(indent) and lines[-1].strip().startswith(SIMPLE)
        if joins and simple and alike and "#" not in lines[-1] and draw(st.booleans()):
            if not lines[-1][len(indent) :].startswith((" ", "\t")):
                lines[-1] += draw(st.sampled_from(["; ", ";", " ;  "])) + words
                shared = True
                continue
        lines.append(indent + words)
        if words and draw(st.booleans()):
            lines[-1] += draw(st.sampled_from(["  # why", "\t# größer", " "]))
    text = prelude(bad) + "\n".join(lines)
    text = text.replace("\n", newline) + draw(st.sampled_from(["", newline]))
    return Layout(text, shared)


@pytest.mark.parametrize("code", sorted(rule.code for rule in RULES if module_of(rule)))
@tiers.random(15)
@given(data=st.data())
def test_a_repair_does_not_depend_on_the_layout(code: str, data: st.DataObject) -> None:
    layout = data.draw(layouts(code))
    before = layout.text
    assert [one.code for one in result_for_bytes(before.encode(), "train.py").findings] == [code]
    done = repaired(before)
    after = done.document.text
    if layout.shared and after == before:
        assert done.result.findings[0].refused
        return
    assert tree(after) == wanted(code)
    assert comments(after) == comments(before)
    assert set(re.findall(r"\r?\n", after)) == set(re.findall(r"\r?\n", before))
    assert repaired(after).document.text == after


@pytest.mark.parametrize("mark", [b"", b"\xef\xbb\xbf"])
@pytest.mark.parametrize("newline", [b"\n", b"\r\n", b"\r"])
@pytest.mark.parametrize("end", [b"", b"\n"])
def test_a_byte_order_mark_and_every_line_end_stay(mark: bytes, newline: bytes, end: bytes) -> None:
    lines = [
        b"import torch",
        b"def train(model, loader):",
        b"    optimizer = torch.optim.SGD(model.parameters())",
        b"    for x in loader:",
        b"        model(x).sum().backward()",
        b"        optimizer.step()",
    ]
    right = [*lines[:4], b"        optimizer.zero_grad()", *lines[4:]]
    before, after = (
        mark + newline.join(one) + end.replace(b"\n", newline) for one in (lines, right)
    )
    assert repaired(before).document.data == after


def test_a_declared_encoding_stays() -> None:
    before = (
        "# -*- coding: latin-1 -*-\nimport torch\n\n\ndef train(model, loader):\n"
        "    optimizer = torch.optim.SGD(model.parameters())  # größer\n    for x in loader:\n"
        "        model(x, 'ß').sum().backward()\n        optimizer.step()\n"
    ).encode("latin-1")
    after = repaired(before).document.data
    assert after == before.replace(
        b"        model(", b"        optimizer.zero_grad()\n        model("
    )


@pytest.mark.parametrize(
    ("before", "after"),
    [
        pytest.param(
            "for x in data: model(x).sum().backward(); optimizer.step()\n",
            "for x in data: optimizer.zero_grad(); model(x).sum().backward(); optimizer.step()\n",
            id="one-line loop",
        ),
        pytest.param(
            "for x in data:\n    loss = model(x).sum(); loss.backward(); optimizer.step()\n",
            "for x in data:\n    optimizer.zero_grad()\n    loss = model(x).sum(); loss.backward(); optimizer.step()\n",
            id="semicolons",
        ),
        pytest.param(
            "for x in data:\n    model(x).sum().backward(); optimizer.zero_grad(); optimizer.step()\n",
            "for x in data:\n    optimizer.zero_grad()\n    model(x).sum().backward(); optimizer.step()\n",
            id="moved out of a shared line",
        ),
        pytest.param(
            "for x in data:\n    model(x).sum().backward(); optimizer.zero_grad()  # why\n    optimizer.step()\n",
            "for x in data:\n    optimizer.zero_grad()\n    model(x).sum().backward()  # why\n    optimizer.step()\n",
            id="moved from the end of a shared line",
        ),
        pytest.param(
            "for x in data: \\\n    model(x).sum().backward(); \\\n    optimizer.step()\n",
            "for x in data: \\\n    optimizer.zero_grad(); model(x).sum().backward(); \\\n    optimizer.step()\n",
            id="a one-line loop over several lines",
        ),
        pytest.param(
            "for x in data:\n    loss = model(x) \\\n        .sum()\n    loss.backward()\n    optimizer \\\n        .step()\n",
            "for x in data:\n    optimizer.zero_grad()\n    loss = model(x) \\\n        .sum()\n    loss.backward()\n    optimizer \\\n        .step()\n",
            id="backslashes",
        ),
        pytest.param(
            "def wrap(f): return f\n\n\n@wrap\n@wrap\ndef train():\n    @wrap\n    def inner(x):\n        return model(x).sum()\n"
            "    for x in data:\n        inner(x).backward()\n        optimizer.step()\n",
            "def wrap(f): return f\n\n\n@wrap\n@wrap\ndef train():\n    @wrap\n    def inner(x):\n        return model(x).sum()\n"
            "    for x in data:\n        optimizer.zero_grad()\n        inner(x).backward()\n        optimizer.step()\n",
            id="decorators",
        ),
        pytest.param(
            "for x in data:\n    @torch.no_grad()\n    def look(): pass\n    model(x).sum().backward()\n    optimizer.step()\n",
            "for x in data:\n    optimizer.zero_grad()\n    @torch.no_grad()\n    def look(): pass\n    model(x).sum().backward()\n    optimizer.step()\n",
            id="above a decorator",
        ),
        pytest.param(
            "for x in data:\n    # forward\n    loss = model(x).sum()\n    # backward\n    loss.backward()\n    # update\n    optimizer.step()\n",
            "for x in data:\n    optimizer.zero_grad()\n    # forward\n    loss = model(x).sum()\n    # backward\n    loss.backward()\n    # update\n    optimizer.step()\n",
            id="comments between the statements",
        ),
        pytest.param(
            "for x in data:\n    loss = model(x).sum()\n    loss.backward()\n    # clear the gradients\n    # of the last batch\n    optimizer.zero_grad()  # all\n    optimizer.step()\n",
            "for x in data:\n    # clear the gradients\n    # of the last batch\n    optimizer.zero_grad()  # all\n    loss = model(x).sum()\n    loss.backward()\n    optimizer.step()\n",
            id="a statement moves with its comments",
        ),
        pytest.param(
            "for x in data:\n    loss = model(x).sum()\n    # train\n    loss.backward()\n    optimizer.zero_grad()\n    optimizer.step()\n",
            "for x in data:\n    optimizer.zero_grad()\n    loss = model(x).sum()\n    # train\n    loss.backward()\n    optimizer.step()\n",
            id="and without those of others",
        ),
        pytest.param(
            "for i, x in enumerate(data):\n\tmodel(x).sum().backward()\n\ttorch.nn.utils.clip_grad_norm_(\n\t\tmodel.parameters(),\n\n\t\t1.0,\n\t)\n\tif (i + 1) % N == 0 or i + 1 == len(data):\n\t\toptimizer.step()\n\t\toptimizer.zero_grad()\n",
            "for i, x in enumerate(data):\n\tmodel(x).sum().backward()\n\tif (i + 1) % N == 0 or i + 1 == len(data):\n\t\ttorch.nn.utils.clip_grad_norm_(\n\t\t\tmodel.parameters(),\n\n\t\t\t1.0,\n\t\t)\n\t\toptimizer.step()\n\t\toptimizer.zero_grad()\n",
            id="tabs, and a statement of several lines one level deeper",
        ),
        pytest.param(
            "for x in data:\n    for p in model.parameters(): p.grad.zero_()\n    model(x).sum().backward()\n    optimizer.step()\n",
            "for x in data:\n    model.zero_grad(set_to_none=False)\n    model(x).sum().backward()\n    optimizer.step()\n",
            id="no room for a test",
        ),
        pytest.param(
            "for x in data:\n    optimizer.zero_grad()\n    scaler.scale(model(x).sum()).backward(); scaler.step(optimizer)\n",
            "for x in data:\n    optimizer.zero_grad()\n    scaler.scale(model(x).sum()).backward(); scaler.step(optimizer); scaler.update()\n",
            id="after the last of a shared line",
        ),
        pytest.param(
            "for x in data:\n    optimizer.zero_grad()\n    (model(x) + 1).sum().backward()\n    scaler.step(optimizer)\n    scaler.update()\n",
            "for x in data:\n    optimizer.zero_grad()\n    scaler.scale((model(x) + 1).sum()).backward()\n    scaler.step(optimizer)\n    scaler.update()\n",
            id="an expression is scaled as it is",
        ),
    ],
)
def test_what_is_written_unusually_is_repaired_in_place(before: str, after: str) -> None:
    done = repaired(HEAD + before, unsafe=False)
    assert done.document.text[len(HEAD) :] == after
    assert done.result.findings == ()


@pytest.mark.parametrize(
    ("before", "reason"),
    [
        pytest.param(
            "for x in data:\n    model(x).sum().backward()\n    if True: optimizer.zero_grad()\n    optimizer.step()\n",
            "",
            id="a clear that is all its block holds moves with it",
        ),
        pytest.param(
            "for x in data:\n    [p.grad.zero_() for p in model.parameters()]\n    model(x).sum().backward()\n    optimizer.step()\n",
            "it is part of a larger expression",
            id="a comprehension",
        ),
        pytest.param(
            "for x in data:\n    y = [p.grad.zero_() for p in model.parameters()]\n    model(x).sum().backward()\n    optimizer.step()\n",
            "its result is used",
            id="a value that is used",
        ),
    ],
)
def test_what_cannot_be_repaired_says_why(before: str, reason: str) -> None:
    done = repaired(HEAD + before)
    if not reason:
        assert done.result.findings == ()
        return
    assert done.document.text == HEAD + before
    assert [one.refused for one in done.result.findings] == [reason]
