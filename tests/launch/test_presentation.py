"""What reports and findings show of themselves, in Python."""

from __future__ import annotations

import webbrowser
from pathlib import Path

import pytest

import zerograd
from zerograd.core.finding import Report

WRONG = """\
import torch

def train(model, optimizer, loader):
    for x, y in loader:
        loss = (model(x) - y).square().mean()
        loss.backward()
        optimizer.step()
"""


@pytest.fixture
def report() -> Report:
    return zerograd.check_source(WRONG, "train.py")


def test_a_report_reads_like_the_output_of_the_command(report: Report) -> None:
    shown = str(report)
    assert shown.startswith("train.py:6:9  ZG101 stale-gradient")
    assert "    6 |         loss.backward()" in shown
    assert shown.endswith("1 error")


def test_a_finding_reads_like_the_output_of_the_command(tmp_path: Path) -> None:
    path = tmp_path / "train.py"
    path.write_text(WRONG)
    (finding,) = zerograd.check_source(WRONG, str(path)).findings
    shown = str(finding)
    assert "ZG101 stale-gradient" in shown
    assert "    6 |         loss.backward()" in shown, "its file can be read"
    assert "help" in shown


def test_a_finding_whose_source_is_gone_is_shown_without_it(report: Report) -> None:
    shown = str(report.findings[0])
    assert shown.startswith("train.py:6:9  ZG101 stale-gradient")
    assert "loss.backward()" not in shown


def test_html_for_notebooks_escapes_what_is_in_the_source() -> None:
    wrong = WRONG.replace("loss.backward()", "loss.backward()  # <script>alert(1)</script>")
    report = zerograd.check_source(wrong, "<b>train</b>.py")
    shown = report._repr_html_()
    assert "<script>" not in shown
    assert "<b>train" not in shown
    assert "ZG101" in shown
    assert "<mark class=here>loss.backward()</mark>" in shown
    assert "ZG101" in report.findings[0]._repr_html_()


def test_a_clean_report_says_so() -> None:
    report = zerograd.check_source("x = 1\n", "x.py")
    assert str(report) == "checked 1 file: nothing to report"
    assert "nothing to report" in report._repr_html_()


def test_the_page_of_a_check_has_the_findings_and_no_run(report: Report, tmp_path: Path) -> None:
    path = report.html(tmp_path / "page.html")
    page = Path(path).read_text(encoding="utf-8")
    assert page.startswith("<!doctype html>")
    assert "ZG101" in page
    assert "1 file checked" in page
    assert "optimizer step" not in page


def test_the_page_of_a_clean_check_says_that_nothing_is_wrong(tmp_path: Path) -> None:
    path = zerograd.check_source("x = 1\n", "x.py").html(tmp_path / "page.html")
    assert "Nothing wrong" in Path(path).read_text(encoding="utf-8")


def test_the_page_of_a_watch_says_what_was_watched(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    model = torch.nn.Linear(1, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with zerograd.watch(on="collect") as report:
        for _ in range(3):
            model(torch.ones(1)).backward()
            optimizer.step()
    page = Path(report.html(tmp_path / "page.html")).read_text(encoding="utf-8")
    assert "ZG101" in page
    assert "3 steps watched" in page


def test_a_page_cannot_be_written_to_a_directory(report: Report, tmp_path: Path) -> None:
    with pytest.raises(IsADirectoryError, match="name a file for the page"):
        report.html(tmp_path)


def test_a_page_that_cannot_be_written_says_why(report: Report, tmp_path: Path) -> None:
    with pytest.raises(OSError, match="cannot be written"):
        report.html(tmp_path / "no" / "page.html")


def test_outside_of_a_notebook_the_page_opens_in_a_browser(
    report: Report, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened: list[str] = []
    monkeypatch.setattr(webbrowser, "open", lambda url: not opened.append(url))  # type: ignore[func-returns-value]
    report.show()
    (url,) = opened
    path = Path(url.removeprefix("file://"))
    assert "ZG101" in path.read_text(encoding="utf-8")
    path.unlink()


def test_without_a_browser_the_path_of_the_page_is_said(
    report: Report, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(webbrowser, "open", lambda _: False)
    with pytest.raises(RuntimeError, match=r"no browser was found; the page is (\S+\.html)") as e:
        report.show()
    Path(str(e.value).split()[-1]).unlink()
