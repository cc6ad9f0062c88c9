"""Findings and reports: what they are made of, what identifies them, and how they show themselves."""

from __future__ import annotations

import webbrowser
from pathlib import Path

import pytest

from support.event_sequences import at
from zerograd.core.events import Measured, Site
from zerograd.core.finding import (
    CellKey,
    Finding,
    Note,
    Problem,
    Report,
    source_key,
)
from zerograd.core.rule import Violation, finding_of
from zerograd.rules import stale_gradient

FINDING = Finding("ZG101", "stale-gradient", "error", "backward() adds", at(3), label="adds")
ADVICE = Finding("ZG301", "unscaled-window", "advice", "added, not averaged", at(4))


def test_a_finding_says_what_its_violation_says() -> None:
    measured = Measured(5.0, 8.0)
    violation = Violation(
        at(3), "message", "label", (Note(at(5), "used here"),), "help", measured=measured
    )
    assert finding_of(stale_gradient.RULE, violation) == Finding(
        "ZG101",
        "stale-gradient",
        "error",
        "message",
        at(3),
        "label",
        (Note(at(5), "used here"),),
        help="help",
        measured=measured,
    )


def test_the_place_is_the_rule_the_file_the_line_and_the_cell() -> None:
    assert FINDING.place == ("ZG101", "train.py", 3, None)
    in_cell = Finding("ZG101", "stale-gradient", "error", "", Site("a.ipynb", 3, cell=2))
    assert in_cell.place == ("ZG101", "a.ipynb", 3, 2)


@pytest.mark.parametrize(("ranks", "rank"), [((), None), ((3,), 3), ((0, 3), None)])
def test_a_finding_of_one_rank_names_that_rank(ranks: tuple[int, ...], rank: int | None) -> None:
    assert Finding("ZG101", "", "error", "", at(3), ranks=ranks).rank == rank


def test_lines_of_source_are_known_by_the_file_or_by_the_cell() -> None:
    assert source_key(at(3)) == "train.py"
    assert source_key(Site("a.ipynb", 3, cell=2)) == CellKey("a.ipynb", 2)


@pytest.mark.parametrize(
    ("findings", "errors", "code"),
    [
        ([], [], 0),
        ([ADVICE], [], 0),
        ([ADVICE, FINDING], [], 1),
        ([], [Problem("train.py", "not read")], 2),
        ([FINDING], [Problem("train.py", "not read")], 2),
    ],
)
def test_the_exit_code_says_the_worst(
    findings: list[Finding], errors: list[Problem], code: int
) -> None:
    assert Report(findings, errors).exit_code == code


class Printer:
    """As much of IPython's printer as findings and reports use."""

    shown = ""

    def text(self, text: str) -> None:
        self.shown += text


def test_a_finding_shows_itself_as_the_command_prints_it() -> None:
    assert str(FINDING).startswith("train.py:3:1  ZG101 stale-gradient  backward() adds")
    assert "backward() adds" in FINDING._repr_html_()
    assert "<" in FINDING._repr_html_()
    printer = Printer()
    FINDING._repr_pretty_(printer, False)
    assert printer.shown == str(FINDING)


def test_a_report_shows_itself_as_the_command_prints_it() -> None:
    report = Report([FINDING], files=1)
    assert str(FINDING) in str(report)
    assert "stale-gradient" in report._repr_html_()
    assert "<" in report._repr_html_()
    printer = Printer()
    report._repr_pretty_(printer, False)
    assert printer.shown == str(report)


def test_a_report_is_written_as_a_page_and_shown_in_a_browser(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    page = tmp_path / "report.html"
    assert Report([FINDING], files=1).html(page) == str(page)
    assert "backward() adds" in page.read_text(encoding="utf-8")
    opened: list[str] = []

    def opens(address: str) -> bool:
        opened.append(address)
        return True

    monkeypatch.setattr(webbrowser, "open", opens)
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    Report([FINDING], files=1).show()
    (address,) = opened
    shown = Path(address.removeprefix("file://"))
    assert "backward() adds" in shown.read_text(encoding="utf-8")
    shown.unlink()


def test_a_problem_is_of_no_rank_unless_it_says_so() -> None:
    assert not Problem("train.py", "breaks").names_rank
