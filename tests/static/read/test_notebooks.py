"""Notebooks: cells become one module, and a place in it is a place in a cell."""

from __future__ import annotations

import ast
import json

import pytest

from support.command import FORGOTTEN_ZERO
from support.notebooks import notebook
from zerograd.core.finding import CellKey
from zerograd.static.check_file import check_text
from zerograd.static.read.load import from_text
from zerograd.static.read.source import Source, Unreadable


def joined(*cells: str | list[str]) -> Source:
    return from_text(notebook(*cells), "train.ipynb")


def test_cells_are_numbered_from_one_and_text_counts() -> None:
    source = joined("#md # Title", "import torch\nx = 1", "#md more", ["y = 2\n", "z = 3"])
    assert source.lines[:4] == ["import torch", "x = 1", "y = 2", "z = 3"]
    assert [source.place(line) for line in (1, 2, 3, 4)] == [(2, 1), (2, 2), (4, 1), (4, 2)]


@pytest.mark.parametrize(
    "magic",
    [
        "%matplotlib inline",
        "!pip install torch \\\n    torchvision",
        "model?",
        "?model",
        "model.forward??",
        "pip install torch",
        "files = !ls",
        "elapsed = %timeit -o f()",
        "if True:\n    !ls",
        "for x in y:\n    %time f(x)",
    ],
)
def test_a_magic_is_blanked_and_no_line_is_lost(magic: str) -> None:
    source = joined(f"before = 1\n{magic}\nafter = 2", "last = 3")
    assert not source.problems
    lines = {
        node.id: node.lineno
        for node in ast.walk(ast.parse(source.text))
        if isinstance(node, ast.Name)
    }
    assert lines["before"] == 1
    assert lines["after"] == 2 + len(magic.split("\n"))
    assert source.place(lines["last"]) == (2, 1)


def test_a_cell_in_another_language_is_blanked() -> None:
    source = joined("%%bash\nfor f in *; do echo $f; done", "x = 1")
    assert not source.problems
    assert source.text.split() == ["x", "=", "1"]


@pytest.mark.parametrize("magic", ["%%time", "%%capture out", "%%timeit -n 1"])
def test_the_python_under_a_timing_magic_is_read(magic: str) -> None:
    source = joined(f"\n{magic}\nx = 1")
    assert source.lines[2] == "x = 1"


def test_a_line_of_arithmetic_that_looks_like_a_magic_is_kept() -> None:
    code = "x = (total\n     %batch)"
    assert joined(code).text == code + "\n"


def test_a_broken_cell_is_said_and_the_others_are_read() -> None:
    source = joined("x = 1", "for for", "y = 2")
    assert source.lines == ["x = 1", "", "y = 2", ""]
    (problem,) = source.problems
    assert "cell 2" in problem.message
    assert "the other cells are checked" in problem.message


@pytest.mark.parametrize(
    "text", ["", "not json", "[1, 2]", "3", "{}", '{"cells": 3}', "[" * 100_000, '{"cells": [']
)
def test_what_is_no_notebook_is_said(text: str) -> None:
    with pytest.raises(Unreadable, match="is not a notebook"):
        from_text(text, "train.ipynb")


def test_a_notebook_of_another_language_is_left_alone() -> None:
    text = notebook("x <- 1", kernelspec={"language": "R"})
    source = from_text(text, "a.ipynb")
    assert (source.text, source.cells) == ("", ())


def test_odd_cells_do_not_hurt() -> None:
    book = {"cells": [3, None, {"cell_type": "code"}, {"cell_type": "code", "source": ["x", 1]}]}
    assert from_text(json.dumps(book), "a.ipynb").cells


def test_the_cells_of_the_old_format_are_found() -> None:
    book = {"worksheets": [{"cells": [{"cell_type": "code", "input": ["x = 1"]}]}]}
    assert from_text(json.dumps(book), "a.ipynb").text == "x = 1\n"


@pytest.mark.parametrize("indent", [None, 1])
def test_a_finding_names_the_cell_and_the_line_in_it(indent: int | None) -> None:
    head, loop = FORGOTTEN_ZERO.split("for ")
    text = notebook("%matplotlib inline\n" + head, "#md now train", f"for {loop}", indent=indent)
    (finding,) = check_text(text, "train.ipynb").findings
    assert (finding.code, finding.site.cell, finding.site.line) == ("ZG101", 3, 3)
    assert {note.site.cell for note in finding.notes} == {3}


def test_the_report_holds_the_lines_of_each_cell_as_they_were_written() -> None:
    head, loop = FORGOTTEN_ZERO.split("for ")
    report = check_text(notebook("%matplotlib inline\n" + head, f"for {loop}"), "train.ipynb")
    assert report.sources[CellKey("train.ipynb", 1)][0] == "%matplotlib inline"
    assert "loss.backward()" in report.sources[CellKey("train.ipynb", 2)][2]
