"""The case files' format: what a comment expects, and what is refused."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from support.casefile import NOTEBOOK, CaseError, Expectation, parse


def block(*lines: str, info: str = "python") -> str:
    return "\n".join([f"```{info}", *lines, "```", ""])


def test_a_comment_at_the_end_of_a_line_is_an_expectation_about_that_line() -> None:
    (case,) = parse("topic", "## A claim\n" + block("a()", "b()  # ZG101", "c()  # ZG203?"))
    assert case.id == "topic:A claim"
    assert case.expected == {
        Expectation("train.py", 2, "ZG101"),
        Expectation("train.py", 3, "ZG203", certain=False),
    }


def test_a_line_may_expect_several_findings() -> None:
    (case,) = parse("topic", "## A claim\n" + block("a()  # ZG101, ZG302"))
    assert {one.code for one in case.expected} == {"ZG101", "ZG302"}


def test_a_refuted_finding_is_not_expected() -> None:
    (case,) = parse("topic", "## A claim\n" + block("a()  # not ZG101"))
    assert case.silent
    assert case.refuted == {Expectation("train.py", 1, "ZG101")}


def test_a_code_in_a_sentence_is_no_expectation() -> None:
    (case,) = parse("topic", "## A claim\n" + block("a()  # ZG101 would be wrong here"))
    assert case.silent


def test_a_named_block_keeps_its_name_as_its_first_line(tmp_path: Path) -> None:
    text = "## A claim\n" + block("# file: pkg/a.py", "a()  # ZG101") + block("b()")
    (case,) = parse("topic", text)
    assert case.expected == {Expectation("pkg/a.py", 2, "ZG101")}
    assert case.write(tmp_path) == [tmp_path / "pkg" / "a.py", tmp_path / "train.py"]


def test_cells_are_counted_from_one_with_the_text_cells_among_them() -> None:
    cells = [
        block("# A title, not code", info="markdown cell"),
        block("%time a()", "b()  # ZG101", info="python cell"),
    ]
    (case,) = parse("topic", "## A claim\n" + "".join(cells))
    assert case.expected == {Expectation(NOTEBOOK, 2, "ZG101", cell=2)}
    book = json.loads(case.files[NOTEBOOK])
    assert [cell["cell_type"] for cell in book["cells"]] == ["markdown", "code"]
    assert book["cells"][1]["source"] == ["%time a()\n", "b()  # ZG101"]


def test_a_case_runs_only_where_every_block_says_so() -> None:
    both = block("a()", info="python run") + block("# file: b.py", "b()")
    cases = parse("topic", f"## One\n{block('a()', info='python run')}\n## Two\n{both}")
    assert [case.runnable for case in cases] == [True, False]


@pytest.mark.parametrize(
    ("markdown", "complaint"),
    [
        ("## A claim\n", "without code"),
        ("## A claim\n```python\na()\n", "never closed"),
        ("## A claim\n" + block("a()", info="c"), "not of python"),
        ("## A claim\n" + block("a()") + block("b()"), "two blocks"),
    ],
)
def test_a_file_that_breaks_the_format_is_refused(markdown: str, complaint: str) -> None:
    with pytest.raises(CaseError, match=complaint):
        parse("topic", markdown)
