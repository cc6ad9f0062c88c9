"""From bytes to source: what Python itself would read is read, what not is said."""

from __future__ import annotations

import ast
import codecs
import contextlib
import pickle
import warnings
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from zerograd.core.finding import Problem
from zerograd.static.read.load import from_bytes, from_text, read
from zerograd.static.read.source import MAX_TOKENS, Unreadable, parse


def why(data: bytes | str, path: str = "train.py") -> Problem:
    """The problem with a file that cannot be read or parsed."""
    text = data.encode() if isinstance(data, str) else data
    with pytest.raises(Unreadable) as caught:
        parse(from_bytes(text, path))
    assert caught.value.problem.path == path
    return caught.value.problem


def test_a_byte_order_mark_is_not_part_of_the_text() -> None:
    assert from_bytes(codecs.BOM_UTF8 + b"x = 1\n", "a.py").text == "x = 1\n"
    assert from_text("\ufeffx = 1\n", "a.py").text == "x = 1\n"


@pytest.mark.parametrize("end", ["\r\n", "\r"])
def test_every_line_end_counts_as_one(end: str) -> None:
    source = from_bytes(f"a = 1{end}b = 2{end}".encode(), "a.py")
    assert source.lines == ["a = 1", "b = 2", ""]


def test_a_form_feed_ends_no_line_as_in_the_syntax_tree() -> None:
    source = from_text("a = 1\n\x0cb = '\x1c\u2028'\nc = 3\n", "a.py")
    assert parse(source).body[2].lineno == source.lines.index("c = 3") + 1


@pytest.mark.parametrize(
    "head",
    [b"# -*- coding: latin-1 -*-\n", b"#!/usr/bin/python\n# vim: set fileencoding=latin-1:\n"],
)
def test_a_declared_encoding_is_kept(head: bytes) -> None:
    assert "é" in from_bytes(head + "# é\n".encode("latin-1"), "a.py").text


def test_an_encoding_declared_behind_code_is_not_one() -> None:
    problem = why(b"x = 1\n# coding: latin-1\n# \xe9\n")
    assert "not valid UTF-8" in problem.message
    assert problem.line == 3


def test_a_wrong_byte_is_named_with_its_line_and_the_way_out() -> None:
    problem = why(b"x = 1\ny = '\xe9'\n")
    assert problem.line == 2
    assert "0xe9" in problem.message
    assert "coding: latin-1" in problem.message


@pytest.mark.parametrize("name", ["no-such-encoding", "rot13", "hex"])
def test_an_encoding_that_is_none_is_named(name: str) -> None:
    assert name in why(f"# coding: {name}\n# é\n".encode()).message


def test_utf_16_is_recognised() -> None:
    assert "UTF-16" in why("x = 1\n".encode("utf-16")).message


def test_a_null_byte_is_found_on_its_line() -> None:
    problem = why(b"x = 1\ny = \x00 2\n")
    assert "null byte" in problem.message
    assert problem.line == 2


def test_broken_syntax_is_said_with_its_line() -> None:
    problem = why("x = 1\nfor x in\n")
    assert problem.line == 2
    assert problem.message.startswith("does not parse: ")


@pytest.mark.parametrize(
    "code",
    [
        "print 'loss', loss\n",
        "exec 'x = 1'\n",
        "try:\n    pass\nexcept E, e:\n    pass\n",
        "raise E, 'text'\n",
        "if a <> b: pass\n",
        "x = `a`\n",
        "mode = 0777\n",
        "x = 10L\n",
        "x = ur'a'\n",
        "def f(a, (b, c)): pass\n",
        "if x:\n\ta = 1\n        b = 2\n",
    ],
)
def test_python_2_is_recognised(code: str) -> None:
    assert "Python 2" in why(code).message


@pytest.mark.parametrize(
    "code", ["lr = 0.01 0.02\n", "print('a' 1)\n", "# <> `x`\nfor\n", "x = (1,\n"]
)
def test_broken_python_3_is_not_taken_for_python_2(code: str) -> None:
    assert "Python 2" not in why(code).message


def test_a_keyword_that_was_a_name_until_python_37_is_read_in_its_place() -> None:
    code = "async def f(): ...\nx = x.cuda(async=True); z = x\n"
    places = [(part.lineno, part.col_offset) for part in parse(from_text(code, "a.py")).body]
    assert places == [(1, 0), (2, 0), (2, code.splitlines()[1].index("z"))]
    assert why("x.cuda(async=True)\nfor x in\n").line == 2


@pytest.mark.parametrize(
    "code",
    [
        "x = " + "(" * 10_000 + ")" * 10_000,
        "x = " + "[" * 10_000,
        "x = " + "-" * 100_000 + "1",
        "x = " + "lambda: " * 5_000 + "1",
        "x = 1" + "**1" * 50_000,
    ],
)
def test_nesting_beyond_measure_is_said(code: str) -> None:
    assert "nested too deeply" in why(code).message


@pytest.mark.parametrize(
    "code", ["x = 1\n" * 1_000_000, "a\n" * (MAX_TOKENS + 1), "x = [" + "1," * 300_000 + "]"]
)
def test_a_file_that_would_take_too_long_is_not_parsed(code: str) -> None:
    assert "too big" in why(code).message


def test_a_long_file_of_real_code_is_parsed() -> None:
    code = '"""' + "text " * 100_000 + '"""\nx = 1\n'
    assert len(parse(from_text(code, "a.py")).body) == 2


def test_a_warning_about_the_users_code_is_not_ours_to_show() -> None:
    with warnings.catch_warnings(record=True) as shown:
        warnings.simplefilter("always")
        parse(from_text("x = '\\d'\nassert (x, 'y')\nx is 1\n", "a.py"))
    assert shown == []


def test_a_missing_file_is_said(tmp_path: Path) -> None:
    with pytest.raises(Unreadable, match="does not exist"):
        read(tmp_path / "missing.py")


def test_a_problem_survives_the_way_between_processes() -> None:
    error = Unreadable(Problem("a.py", "is broken", 3))
    assert pickle.loads(pickle.dumps(error)).problem == error.problem


@given(st.binary(max_size=200), st.sampled_from(["a.py", "a.ipynb"]))
def test_no_bytes_raise_anything_but_unreadable(data: bytes, path: str) -> None:
    with contextlib.suppress(Unreadable):
        assert isinstance(parse(from_bytes(data, path)), ast.Module)
