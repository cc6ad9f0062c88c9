"""`zerograd explain`: the page of a rule, with the real finding in its bad example."""

from __future__ import annotations

from pathlib import Path

import pytest

from support.command import write, zerograd
from zerograd.cli.main import main
from zerograd.core.rule import Rule
from zerograd.learn.rule_pages import explained, prelude
from zerograd.rules.catalogue import PAGES, RULES

SEEN_IN_SOURCE = [rule for rule in RULES if rule.only != "runtime"]
ONLY_IN_RUNS = [rule for rule in RULES if rule.only == "runtime"]


def page(rule: Rule, capsys: pytest.CaptureFixture[str]) -> str:
    assert main(["explain", rule.code]) == 0
    captured = capsys.readouterr()
    assert captured.err == ""
    return captured.out


@pytest.mark.parametrize("rule", SEEN_IN_SOURCE, ids=lambda rule: rule.code)
def test_the_finding_is_the_one_that_check_prints(
    rule: Rule, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = page(rule, capsys)
    parts = explained(next(one for one in PAGES if one.code == rule.code))
    write(tmp_path, {"train.py": prelude(parts.bad) + parts.bad})
    assert main(["check", "--no-cache", "--select", rule.code, str(tmp_path)]) == 1
    said = capsys.readouterr().out.splitlines()
    place, *rest = said[0].split("  ")
    line = int(place.split(":")[-2]) - prelude(parts.bad).count("\n")
    column = place.split(":")[-1]
    assert f"train.py:{line}:{column}  {'  '.join(rest)}" in out
    marked = [line.partition("|")[2] for line in said[1:] if line.startswith("      |")]
    assert marked
    assert [line for line in marked if line not in out] == []
    helps = [line.partition("  [*]")[0] for line in said if line.startswith("   help")]
    assert [line for line in helps if line not in out] == []


@pytest.mark.parametrize("rule", SEEN_IN_SOURCE, ids=lambda rule: rule.code)
def test_bad_comes_before_good_and_both_are_whole(
    rule: Rule, capsys: pytest.CaptureFixture[str]
) -> None:
    out = page(rule, capsys)
    assert out.startswith(f"{rule.code} {rule.name} ({rule.level})\n\n{rule.summary[:40]}")
    parts = explained(next(one for one in PAGES if one.code == rule.code))
    bad, good = out.index("┌─ bad ─"), out.index("┌─ good ─")
    assert bad < good
    for code, box in ((parts.bad, out[bad:good]), (parts.good, out[good:])):
        assert [line for line in code.splitlines() if f"│ {line}" not in box] == []
    assert f"# zerograd: allow[{rule.name}]" in out


@pytest.mark.parametrize("rule", ONLY_IN_RUNS, ids=lambda rule: rule.code)
def test_what_only_a_run_shows_is_run_where_that_can_be(
    rule: Rule, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("torch")
    out = page(rule, capsys)
    shown = "$ zerograd run train.py\ntrain.py:" in out and f"  {rule.code} {rule.name}  " in out
    assert shown or "not shown here" in out


def test_orphans_are_shown_by_a_run(capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("torch")
    out = page(next(rule for rule in RULES if rule.code == "ZG108"), capsys)
    assert "$ zerograd run train.py\ntrain.py:" in out


def test_a_run_that_cannot_be_is_said_to_be_missing(tmp_path: Path) -> None:
    module = tmp_path / "shadow" / "torch" / "__init__.py"
    write(tmp_path, {"shadow/torch/__init__.py": "raise ImportError('no torch')\n"})
    done = zerograd("explain", "ZG108", cwd=tmp_path, PYTHONPATH=str(module.parents[1]))
    assert (done.returncode, done.stderr) == (0, "")
    assert "it needs a run with torch" in done.stdout


def test_a_rule_without_examples_is_all_text(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["explain", "ZG001"]) == 0
    out = capsys.readouterr().out
    assert out.startswith("ZG001 unused-allow (advice)\n\nAn allow comment allows nothing.\n")
    assert "bad" not in out.split()


def test_colours_are_for_terminals(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["explain", "ZG101"]) == 0
    assert "\x1b" not in capsys.readouterr().out
    assert main(["explain", "ZG101", "--color", "always"]) == 0
    assert "\x1b[1mZG101 stale-gradient (error)\x1b[0m" in capsys.readouterr().out
