"""`# zerograd: allow[name]` silences what it names, where it is, and nothing else."""

from __future__ import annotations

import ast

import pytest

from support.command import FORGOTTEN_ZERO
from zerograd.core.events import Site
from zerograd.core.finding import Finding, Report
from zerograd.core.suppressions import allows, find_allows
from zerograd.static.check_file import check_text

LINE = "    loss.backward()"
ALLOW = "# zerograd: allow[stale-gradient]"

FUNCTION = """\
import torch


def train(model, optimizer, loader):
    for x, y in loader:
        loss = (model(x) - y).square().mean()
        loss.backward()
        optimizer.step()


def again(model, optimizer, loader):
    for x, y in loader:
        loss = (model(x) - y).square().mean()
        loss.backward()
        optimizer.step()
"""


def check(text: str) -> Report:
    report = check_text(text, "train.py")
    assert not report.errors
    return report


def codes(text: str) -> list[str]:
    return [finding.code for finding in check(text).findings]


def lines(text: str) -> list[int]:
    return [finding.site.line for finding in check(text).findings if finding.code == "ZG101"]


def test_the_examples_are_findings_without_it() -> None:
    assert codes(FORGOTTEN_ZERO) == ["ZG101"]
    assert len(lines(FUNCTION)) == 2


@pytest.mark.parametrize(
    "comment",
    [
        "# zerograd: allow[stale-gradient]",
        "# zerograd: allow[ZG101]",
        "#zerograd:allow[stale-gradient]",
        "# zerograd: allow[ zero-in-window , ZG101 ]",
        "# noqa: X100  # zerograd: allow[ZG101] on purpose",
    ],
)
def test_on_the_line_of_the_finding(comment: str) -> None:
    assert "ZG101" not in codes(FORGOTTEN_ZERO.replace(LINE, f"{LINE}  {comment}"))


def test_on_any_line_of_the_statement() -> None:
    spread = f"    loss.backward(\n        retain_graph=False,  {ALLOW}\n    )"
    assert codes(FORGOTTEN_ZERO.replace(LINE, spread)) == []


def test_alone_above_the_statement() -> None:
    assert codes(FORGOTTEN_ZERO.replace(LINE, f"    {ALLOW}\n{LINE}")) == []


def test_above_a_function_for_that_function() -> None:
    second = lines(FUNCTION)[1]
    assert lines(FUNCTION.replace("def train", f"{ALLOW}\ndef train")) == [second + 1]


def test_above_a_decorated_function() -> None:
    text = FUNCTION.replace("def train", f"{ALLOW}\n@torch.enable_grad()\ndef train")
    assert len(lines(text)) == 1


def test_behind_the_head_of_a_function() -> None:
    text = FUNCTION.replace("loader):", f"loader):  {ALLOW}", 1)
    assert len(lines(text)) == 1


def test_atop_the_file_for_the_file() -> None:
    assert codes(f'{ALLOW}\n"""Trains."""\n{FUNCTION}') == []
    assert codes(f'"""Trains."""\n\n{ALLOW}\n{FUNCTION}') == []


def test_only_for_the_rule_it_names() -> None:
    text = FORGOTTEN_ZERO.replace(LINE, f"{LINE}  # zerograd: allow[repeated-step]")
    assert codes(text) == ["ZG101", "ZG001"]


def test_elsewhere_it_allows_nothing_and_is_reported() -> None:
    text = FORGOTTEN_ZERO.replace("import torch", f"import torch  {ALLOW}")
    report = check(text)
    assert {finding.code for finding in report.findings} == {"ZG101", "ZG001"}
    (unused,) = (finding for finding in report.findings if finding.code == "ZG001")
    assert (unused.name, unused.level) == ("unused-allow", "advice")
    assert (unused.site.line, unused.site.column) == (1, len("import torch  ") + 1)
    assert "allows nothing" in unused.message


def test_a_name_that_is_no_rule_is_reported() -> None:
    text = FORGOTTEN_ZERO.replace(LINE, f"{LINE}  # zerograd: allow[stale-gradients, ZG101]")
    (finding,) = check(text).findings
    assert finding.code == "ZG001"
    assert "allow[stale-gradients] names no rule" in finding.message


@pytest.mark.parametrize("comment", ["# zerograd: allow", "# zerograd: allow[]"])
def test_an_allow_without_a_name_is_reported(comment: str) -> None:
    text = FORGOTTEN_ZERO.replace(LINE, f"{LINE}  {comment}")
    assert codes(text) == ["ZG101", "ZG001"]


def test_in_a_string_it_is_no_comment() -> None:
    text = FORGOTTEN_ZERO.replace("import torch", f'import torch\nTEXT = "{ALLOW}"')
    assert codes(text) == ["ZG101"]


def test_a_text_allows_what_a_comment_in_it_allows() -> None:
    text = f"a()\nloss.backward()  {ALLOW}\nb()\n"
    assert allows(text, found(2))
    assert allows(text, found(2, code="ZG999"))
    assert allows(text.replace("stale-gradient", "ZG101"), found(2, name="other"))
    assert not allows(text, found(1))
    assert not allows(text, found(3))
    assert not allows(text.replace("stale", "fresh"), found(2))


def found(line: int, code: str = "ZG101", name: str = "stale-gradient", last: int = 0) -> Finding:
    return Finding(code, name, "error", "", Site("train.py", line, end_line=last))


def test_a_finding_of_several_lines_is_allowed_from_any_of_them() -> None:
    text = f"a()\nb()  {ALLOW}\nc()\n"
    assert allows(text, found(1, last=2))
    assert allows(text, found(2, last=3))
    assert not allows(text, found(3, last=4))


@pytest.mark.parametrize(
    "text",
    [
        "loss.backward()\n",
        f"loss.backward(  {ALLOW}\n",
        f"x = 1 {ALLOW}\n\0",
        f"{'(' * 10_000}1{')' * 10_000}  {ALLOW}\n",
    ],
    ids=["no comment", "no Python", "a null byte", "too deep"],
)
def test_a_text_that_cannot_be_read_allows_nothing(text: str) -> None:
    assert not allows(text, found(1))


def test_a_comment_below_all_statements_speaks_for_no_line_but_its_own() -> None:
    text = f"loss.backward()\n{ALLOW}\n"
    assert not allows(text, found(1))
    assert allows(text, found(2))


def test_a_comment_alone_in_a_file_speaks_for_all_of_it() -> None:
    assert allows(f"\n\n{ALLOW}\n", found(1))
    assert allows(f'"""Trains."""\n{ALLOW}\n', found(9)) is False


def test_a_comment_behind_the_head_of_a_loop_speaks_for_the_head() -> None:
    text = f"for x in (\n    data\n):  {ALLOW}\n    loss.backward()\n"
    assert [allows(text, found(line)) for line in (1, 2, 3, 4)] == [True, True, True, False]


def test_a_comment_behind_the_head_of_a_match_speaks_for_the_head() -> None:
    text = f"match x:  {ALLOW}\n    case 1:\n        loss.backward()\n"
    assert [allows(text, found(line)) for line in (1, 2, 3)] == [True, False, False]


def test_a_comment_above_a_statement_speaks_for_all_of_the_largest_one_there() -> None:
    text = f"first()\n{ALLOW}\nfor x in data:\n    loss.backward()\nlast()\n"
    assert [allows(text, found(line)) for line in (1, 3, 4, 5)] == [False, True, True, False]


def test_a_comment_above_the_decorator_of_a_class_speaks_for_the_class() -> None:
    text = f"first()\n{ALLOW}\n@final\nclass A:\n    x = loss.backward()\nlast()\n"
    assert [allows(text, found(line)) for line in (1, 3, 5, 6)] == [False, True, True, False]


def test_two_comments_on_a_line_speak_each_for_itself() -> None:
    text = f"loss.backward()  # zerograd: allow[repeated-step] {ALLOW}\n"
    report = check("import torch\n" + text)
    assert [one.site.column for one in report.findings] == [18, 51]


def test_a_text_that_ends_in_a_string_has_no_comments() -> None:
    assert find_allows(f"'''  {ALLOW}\n", "train.py", ast.parse(""), ()) == []


def test_a_string_over_two_lines_holds_no_comment() -> None:
    text = f"x = 'a\\\n{ALLOW}'\n"
    assert find_allows(text, "train.py", ast.parse(text), ()) == []


def test_a_comment_inside_a_statement_speaks_for_the_one_below_it() -> None:
    text = f"f(\n    {ALLOW}\n    x)\nloss.backward()\n"
    assert [allows(text, found(line)) for line in (1, 3, 4)] == [False, False, True]


def test_a_comment_above_a_line_with_several_statements_speaks_for_the_largest() -> None:
    text = f"first()\n{ALLOW}\nfor x in data: a(); loss.backward(\n)\nlast()\n"
    assert [allows(text, found(line)) for line in (1, 3, 4, 5)] == [False, True, True, False]


def test_a_comment_below_the_first_statement_does_not_speak_for_the_file() -> None:
    text = f'"""Trains."""\nfirst()\n{ALLOW}\nlast()\n'
    assert [allows(text, found(line)) for line in (2, 4)] == [False, True]
    # A number is no docstring.
    assert not allows(f"1\n{ALLOW}\nlast()\n", found(1))


def test_a_comment_speaks_for_its_own_file_and_is_where_it_says() -> None:
    text = f"loss.backward()  {ALLOW}\n"
    (one,) = find_allows(text, "other.py", ast.parse(text), ["stale-gradient"])
    assert one.site == Site("other.py", 1, 18, 1, 18 + len(ALLOW))
    assert (one.name, one.known, one.used) == ("stale-gradient", True, False)
    assert not one.covers(found(1))
    (bare,) = find_allows("x  # zerograd: allow\n", "a.py", ast.parse("x"), [])
    assert (bare.name, bare.known) == ("", False)
