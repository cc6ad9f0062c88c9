"""What the pages say is what the data say: labels and findings are facts, pages are made from them alone."""

from __future__ import annotations

import importlib.util
import json
import re
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

import grammar
import zerograd
from support.paths import ROOT
from zerograd.rules.catalogue import BY_CODE

BENCH = ROOT / "bench"


def script(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, ROOT / "docs" / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def lines(name: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (BENCH / name).read_text(encoding="utf-8").splitlines()]


def test_the_page_of_findings_is_made_from_the_data_alone() -> None:
    wild = script("wild_page")
    page = (ROOT / "docs" / "wild.md").read_text(encoding="utf-8")
    assert wild.render(wild.read()) == page


def test_the_page_of_benchmarks_is_made_from_the_results_alone() -> None:
    benchmarks = script("benchmarks")
    results = sorted((BENCH / "results").glob("*.json"))
    assert results
    found = [json.loads(path.read_text(encoding="utf-8")) for path in results]
    page = (ROOT / "docs" / "benchmarks.md").read_text(encoding="utf-8")
    assert benchmarks.render(found) == page


def test_every_result_says_how_and_where_it_was_measured() -> None:
    for path in (BENCH / "results").glob("*.json"):
        found = json.loads(path.read_text(encoding="utf-8"))
        assert found["method"]
        assert found["rows"]
        assert {"commit", "python", "torch", "cpu", "cores"} <= set(found["setting"])
        assert all(isinstance(row["value"], int | float) for row in found["rows"])


def test_a_finding_that_was_read_has_its_place_its_verdict_and_its_reason() -> None:
    rows = lines("found.jsonl")
    assert len({(r["repo"], r["path"], r["cell"], r["line"], r["code"]) for r in rows}) == len(rows)
    for row in rows:
        assert re.fullmatch(r"[\w.-]+/[\w.-]+", row["repo"])
        assert re.fullmatch(r"[0-9a-f]{40}", row["commit"])
        assert row["code"] in BY_CODE
        assert row["verdict"] in ("true", "harmless", "intended", "false")
        assert row["reason"]
        assert row["now"] in ("error", "advice", "possible", "nothing")
        assert row["fix"] in ("safe", "unsafe", None)


def test_labels_are_facts_without_code() -> None:
    rows = lines("labels.jsonl")
    assert len({row["id"] for row in rows}) == len(rows)
    allowed = {"id", "repo", "commit", "path", "line", "end_line", "at", "label", "kind", "codes", "static_visibility"}  # fmt: skip
    for row in rows:
        assert set(row) <= allowed
        assert row["label"] in ("bug", "ok")
        assert re.fullmatch(r"[0-9a-f]{40}", row["commit"])


@pytest.mark.parametrize("family", grammar.FAMILIES, ids=lambda family: family.name)
def test_a_drawn_loop_is_right_and_its_broken_twin_is_found(family: grammar.Family) -> None:
    for one in grammar.programs("a seed of the tests", family, 8):
        right = zerograd.check_source(one.right, "train.py").findings
        assert not right, one.right
        wrong = zerograd.check_source(one.wrong, "train.py").findings
        assert {finding.code for finding in wrong} & set(one.codes), one.wrong


def test_the_same_seed_draws_the_same_loops_and_another_seed_others() -> None:
    family = grammar.FAMILIES[0]
    first = list(grammar.programs("one", family, 5))
    assert list(grammar.programs("one", family, 5)) == first
    assert list(grammar.programs("two", family, 5)) != first


def test_a_value_is_shown_with_its_unit_its_spread_and_its_goal(tmp_path: Path) -> None:
    import outcome

    rows = [
        outcome.Row("found", 7, of=8, goal=7.6),
        outcome.Row("time", 1.2345, "×", 1.1, 1.3, goal=2),
    ]
    path = tmp_path / "one.json"
    outcome.write(path, title="A title", method="A method.", rows=rows)
    page = script("benchmarks").render([json.loads(path.read_text(encoding="utf-8"))])
    assert "| found | 7 of 8 (88%) |  | ≥ 7.6: missed |" in page
    assert "| time | 1.23 × | 1.1 – 1.3 | ≤ 2: met |" in page
