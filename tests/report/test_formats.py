"""Renderers are pure: the same report gives the same text, whatever the report holds."""

from __future__ import annotations

import json
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from zerograd.core.events import Site
from zerograd.core.finding import Edit, Finding, Fix, Note, Problem, Report, Watched
from zerograd.report import concise, github, gitlab, junit, sarif, text
from zerograd.report import json as json_report

LINES = """\
import torch

for i, x in enumerate(loader):
    loss = model(x).mean()
    loss.backward()
    if (i + 1) % 4 == 0:
        optimizer.step()
""".split("\n")

FINDING = Finding(
    "ZG101",
    "stale-gradient",
    "error",
    "backward() adds to gradients that step() already used",
    Site("train.py", 5, 5, 5, 20),
    label="adds to .grad",
    notes=(Note(Site("train.py", 7, 9, 7, 25), "used here, in the previous iteration"),),
    when=("(i + 1) % 4 == 0",),
    help="call optimizer.zero_grad() after step()",
)


def report(*findings: Finding, problems: list[Problem] | None = None) -> Report:
    return Report(list(findings), problems or [], files=1, sources={"train.py": LINES})


def changed(**fields: object) -> Finding:
    from dataclasses import replace

    return replace(FINDING, **fields)  # type: ignore[arg-type]


def excerpt(finding: Finding, **sources: list[str]) -> list[str]:
    """The lines between the head of a finding and the summary."""
    report = Report([finding], files=1, sources={"train.py": LINES})
    report.sources.update(sources.items())
    return text.render(report).split("\n\n")[0].splitlines()[1:]


def test_the_text_is_the_one_of_the_style_guide() -> None:
    assert text.render(report(FINDING)) == (
        "train.py:5:5  ZG101 stale-gradient  backward() adds to gradients that step() already used\n"
        "    5 |     loss.backward()\n"
        "      |     ^^^^^^^^^^^^^^^ adds to .grad\n"
        "    6 |     if (i + 1) % 4 == 0:\n"
        "    7 |         optimizer.step()\n"
        "      |         ---------------- used here, in the previous iteration\n"
        "   when  (i + 1) % 4 == 0\n"
        "   help  call optimizer.zero_grad() after step()\n"
        "\n"
        "checked 1 file: 1 error\n"
    )


def test_a_note_above_comes_first_as_in_the_file() -> None:
    lines = excerpt(changed(notes=(Note(Site("train.py", 4, 5, 4, 9), "made here"),)))
    assert [line[:6] for line in lines[:4]] == ["    4 ", "      ", "    5 ", "      "]


def test_a_note_far_away_gets_its_own_excerpt() -> None:
    far = ["x"] * 100 + ["optimizer.step()"]
    finding = changed(
        site=Site("far.py", 3, 1, 3, 2), notes=(Note(Site("far.py", 101, 1, 101, 17), "used here"),)
    )
    lines = excerpt(finding, **{"far.py": far})
    assert lines[2].strip() == "..."
    assert lines[3] == "  101 | optimizer.step()"


def test_a_note_in_another_file_names_it() -> None:
    other = Note(Site("lib/steps.py", 2, 5, 2, 21), "used here")
    lines = excerpt(
        changed(notes=(other,)), **{"lib/steps.py": ["def go():", "    optimizer.step()"]}
    )
    assert lines[2:5] == [
        "   at    lib/steps.py:2:5",
        "    2 |     optimizer.step()",
        "      |     ---------------- used here",
    ]


def test_a_note_without_its_source_is_printed_all_the_same() -> None:
    lines = excerpt(changed(notes=(Note(Site("gone.py", 2, 5), "used here"),)))
    assert lines[2] == "   at    gone.py:2:5  used here"
    bare = text.render(Report([FINDING], files=1))
    assert "at    train.py:7:9  used here, in the previous iteration" in bare


def test_two_marks_on_one_line_are_below_each_other() -> None:
    note = Note(Site("train.py", 5, 5, 5, 9), "made here")
    lines = excerpt(changed(notes=(note,)))
    assert lines[1].endswith("^^^^^^^^^^^^^^^ adds to .grad")
    assert lines[2] == "      |     ---- made here"


@pytest.mark.parametrize(
    ("line", "column", "end", "marks"),
    [
        ("\t\tloss.backward()", 3, 18, " " * 8 + "^" * 15),
        ("'größe'; loss.backward()", 10, 25, " " * 9 + "^" * 15),
        ("'損失'; loss.backward()", 7, 22, " " * 8 + "^" * 15),
    ],
)
def test_marks_are_under_the_call(line: str, column: int, end: int, marks: str) -> None:
    finding = changed(site=Site("a.py", 1, column, 1, end), notes=(), label="")
    lines = excerpt(finding, **{"a.py": [line]})
    assert lines[1] == f"      | {marks}"


def test_a_call_over_several_lines_is_marked_on_the_first() -> None:
    finding = changed(site=Site("a.py", 1, 1, 3, 2), notes=())
    lines = excerpt(finding, **{"a.py": ["loss.backward(  ", "    retain_graph=True", ")"]})
    assert lines[1] == "      | ^^^^^^^^^^^^^^ adds to .grad"


def test_a_line_without_end_is_cut_around_the_call() -> None:
    long = "x = 1; " * 1000 + "loss.backward()" + "; y = 2" * 1000
    finding = changed(site=Site("a.py", 1, 7001, 1, 7016), notes=())
    lines = excerpt(finding, **{"a.py": [long]})
    assert max(map(len, lines)) < 200
    at = lines[1].index("^")
    assert lines[0][at : at + 15] == "loss.backward()"


def test_nothing_in_a_file_can_reach_the_terminal() -> None:
    evil = "loss.backward()  # \x1b[2J\x07\x9b1m\u202e"
    finding = changed(site=Site("a\x1b[2J.py", 1, 1, 1, 16), notes=(), message="m\x1b[2J")
    printed = text.render(Report([finding], files=1, sources={"a\x1b[2J.py": [evil]}))
    assert not re.search("[\x00-\x09\x0b-\x1f\x7f-\x9f\u202e]", printed)
    assert not re.search("[\x00-\x09\x0b-\x1f]", concise.render(Report([finding], files=1)))


def test_a_possible_finding_is_marked_so() -> None:
    assert "ZG101 stale-gradient (possible)  " in text.render(report(changed(certain=False)))


def test_what_was_seen_at_run_time_is_printed() -> None:
    for ranks, printed in (((3,), "rank 3"), (range(8), "ranks 0–7"), ((0, 2, 3), "ranks 0, 2–3")):
        rendered = text.render(report(changed(seen=312, ranks=tuple(ranks))))
        assert f"   seen  312 times, on {printed}\n" in rendered
    assert "   seen  once\n" in text.render(report(changed(seen=1)))


@pytest.mark.parametrize(
    ("safe", "printed"),
    [(True, "[*] fixable with --fix"), (False, "[*] fixable with --unsafe-fixes")],
)
def test_a_fix_is_announced(safe: bool, printed: str) -> None:
    assert printed in text.render(report(changed(fix=Fix("add", safe, ()))))


def test_the_summary_counts_what_there_is() -> None:
    advice = changed(level="advice")
    problems = [Problem("b.py", "does not parse", 3)]
    printed = text.render(report(FINDING, FINDING, advice, problems=problems))
    assert printed.endswith(
        "b.py:3  problem  does not parse\n\nchecked 1 file: 2 errors, 1 advice, 1 problem\n"
    )
    assert text.render(Report(files=0)) == "nothing to report\n"
    assert text.render(Report(files=2)) == "checked 2 files: nothing to report\n"


def test_concise_is_one_line_each() -> None:
    printed = concise.render(report(FINDING, problems=[Problem("b.py", "is broken")]))
    assert printed == (
        "train.py:5:5: ZG101 stale-gradient "
        "backward() adds to gradients that step() already used\n"
        "b.py: is broken\n"
    )
    cell = changed(site=Site("a.ipynb", 2, 1, cell=3))
    assert concise.render(Report([cell])).startswith("a.ipynb:cell 3:2:1: ")


def test_json_is_exactly_the_contract() -> None:
    edit = Edit("train.py", 5, 1, 5, 1, "    optimizer.zero_grad()\n")
    finding = changed(fix=Fix("add", True, (edit,)), seen=3, ranks=(0,))
    printed = json.loads(
        json_report.render(report(finding, problems=[Problem("b.py", "broken", 3)]))
    )
    assert printed == {
        "version": 1,
        "findings": [
            {
                "code": "ZG101",
                "name": "stale-gradient",
                "level": "error",
                "certain": True,
                "message": "backward() adds to gradients that step() already used",
                "path": "train.py",
                "line": 5,
                "column": 5,
                "end_line": 5,
                "end_column": 20,
                "cell": None,
                "help": "call optimizer.zero_grad() after step()",
                "optimizer": None,
                "url": None,
                "when": ["(i + 1) % 4 == 0"],
                "seen": 3,
                "rank": 0,
                "ranks": [0],
                "notes": [
                    {
                        "path": "train.py",
                        "line": 7,
                        "message": "used here, in the previous iteration",
                    }
                ],
                "fix": {
                    "safe": True,
                    "edits": [
                        {
                            "path": "train.py",
                            "cell": None,
                            "line": 5,
                            "column": 1,
                            "end_line": 5,
                            "end_column": 1,
                            "text": "    optimizer.zero_grad()\n",
                        }
                    ],
                },
            }
        ],
        "errors": [{"path": "b.py", "line": 3, "message": "broken"}],
        "skipped": [],
        "files": 1,
        "optimizers": [],
        "known": 0,
        "unchanged": 0,
    }


def test_github_commands_carry_place_and_title() -> None:
    printed = github.render(report(FINDING, changed(level="advice")))
    first, second = printed.splitlines()
    assert first.startswith(
        "::error file=train.py,line=5,col=5,endLine=5,endColumn=20,title=ZG101 stale-gradient::"
    )
    assert second.startswith("::warning ")


def test_github_values_are_escaped() -> None:
    finding = changed(site=Site("a,b:c%.py", 1, 1), message="one\ntwo 100%\r::set-output")
    problem = Problem("x,y.py", "broken\nhere")
    lines = github.render(report(finding, problems=[problem])).splitlines()
    assert lines[0].startswith("::error file=a%2Cb%3Ac%25.py,line=1,col=1,title=")
    assert "::one%0Atwo 100%25%0D::set-output" in lines[0]
    assert lines[1] == "::error file=x%2Cy.py,title=zerograd::x,y.py broken%0Ahere"
    assert len(lines) == 2


def test_a_line_of_a_cell_is_no_line_of_the_file_for_github() -> None:
    line = github.render(Report([changed(site=Site("a.ipynb", 4, 1, cell=2))]))
    assert line.startswith("::error file=a.ipynb,title=ZG101 stale-gradient::cell 2, line 4: ")


def test_gitlab_gets_its_code_quality_report() -> None:
    problems = [Problem("b.py", "broken", 3)]
    first, second = json.loads(gitlab.render(report(FINDING, problems=problems)))
    assert set(first) == {"description", "check_name", "fingerprint", "severity", "location"}
    assert first["check_name"] == "ZG101 stale-gradient"
    assert first["severity"] == "major"
    assert first["location"] == {"path": "train.py", "lines": {"begin": 5}}
    assert second["location"] == {"path": "b.py", "lines": {"begin": 3}}


def fingerprints(*findings: Finding, lines: list[str]) -> list[str]:
    printed = gitlab.render(Report(list(findings), files=1, sources={"train.py": lines}))
    return [issue["fingerprint"] for issue in json.loads(printed)]


def test_a_fingerprint_survives_lines_that_come_and_go_elsewhere() -> None:
    before = fingerprints(FINDING, lines=LINES)
    moved = changed(site=Site("train.py", 6, 5, 6, 20))
    assert fingerprints(moved, lines=["# new", *LINES]) == before


def test_each_finding_has_a_fingerprint_of_its_own() -> None:
    other = changed(code="ZG102")
    found = fingerprints(FINDING, FINDING, other, lines=LINES)
    assert len(set(found)) == 3


def test_equal_optimizers_are_counted() -> None:
    watched = Watched(("Adam, 4 parameters", "SGD, 1 parameter", "Adam, 4 parameters"))
    closing = text.closing(Report(watched=watched), "train.py").splitlines()
    assert [line.split(maxsplit=1)[1] for line in closing if "optimizer" in line] == [
        "2 × Adam, 4 parameters each",
        "SGD, 1 parameter",
    ]


def test_what_did_not_apply_is_one_line() -> None:
    could_not = {
        "ZG201": "no scaler",
        "ZG205": "no scaler",
        "ZG401": "one process",
        "ZG402": "one process",
    }
    closing = text.closing(Report(watched=Watched(could_not=could_not)), "train.py")
    (line,) = (one for one in closing.splitlines() if "skipped" in one)
    assert (
        line.split("skipped")[1].strip() == "AMP rules (no scaler), distributed rules (one process)"
    )


def test_the_summary_has_errors_first_and_repeats_no_message() -> None:
    advice = changed(code="ZG303", level="advice", seen=3)
    closing = text.closing(Report([advice, changed(seen=2)], watched=Watched()), "train.py")
    assert closing.index("ZG101") < closing.index("ZG303")
    assert FINDING.message not in closing
    assert "seen 2 times" in closing


anything = st.text(max_size=20)
places = st.builds(
    Site,
    st.sampled_from(["train.py", "other.py"]) | anything,
    st.integers(1, 9),
    st.integers(1, 30),
    st.integers(0, 12),
    st.integers(1, 40),
    st.none() | st.integers(1, 3),
)
anything_found = st.builds(
    Finding,
    anything,
    anything,
    st.sampled_from(["error", "advice"]),
    anything,
    places,
    anything,
    st.lists(st.builds(Note, places, anything), max_size=3).map(tuple),
    st.booleans(),
    st.lists(anything, max_size=2).map(tuple),
    st.none() | st.integers(0),
    st.lists(st.integers(0, 9), max_size=3).map(tuple),
    anything,
)


@given(
    st.lists(anything_found, max_size=3),
    st.lists(st.builds(Problem, anything, anything, st.none() | st.integers(1)), max_size=2),
    st.lists(st.text(max_size=30), max_size=12),
)
def test_every_report_can_be_rendered(
    findings: list[Finding], problems: list[Problem], lines: list[str]
) -> None:
    printed = Report(findings, problems, 1, {"train.py": lines, "other.py#1": lines})
    for render in (text.render, concise.render, github.render, text.statistics):
        assert render(printed) == render(printed)
    for render in (json_report.render, gitlab.render, sarif.render):
        json.loads(render(printed))


def test_junit_fails_for_errors_only() -> None:
    from xml.etree import ElementTree as ET

    advice = changed(level="advice", message="a < b & \x00 \x1b")
    read = ET.fromstring(
        junit.render(report(FINDING, advice, problems=[Problem("x.py", "broken")]))
    )
    (suite,) = read
    assert suite.attrib == {"name": "zerograd", "tests": "3", "failures": "1", "errors": "1"}
    failed, passed, error = suite
    assert [one.tag for one in (failed[0], passed[0], error[0])] == [
        "failure",
        "system-out",
        "error",
    ]
    assert failed.attrib["name"] == "ZG101 stale-gradient (train.py:5:5)"
    assert (failed.attrib["file"], failed.attrib["line"]) == ("train.py", "5")
    assert "call optimizer.zero_grad() after step()" in (failed[0].text or "")
    assert "a < b & \N{REPLACEMENT CHARACTER}" in (passed[0].text or "")
    ((clean,),) = ET.fromstring(junit.render(Report(files=1)))
    assert len(clean) == 0
