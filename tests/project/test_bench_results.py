"""What the pages say is what the data say: labels and findings are facts, pages are made from them alone."""

from __future__ import annotations

import contextlib
import importlib.util
import io
import json
import re
import subprocess
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

import detection
import grammar
import outcome
import prove
import tools
import zerograd
from support import tiers
from support.paths import ROOT
from zerograd.rules.catalogue import BY_CODE

BENCH = ROOT / "bench"


def script(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, ROOT / "docs" / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(ROOT / "docs")
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
        assert row["fix"] in ("safe", "unsafe", None, "")
        assert row.get("upstream") is None or re.fullmatch(
            r"none found|(issue|pull request) #\d+.*", row["upstream"]
        )
        assert row.get("proven") is None or row["verdict"] == "true"


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


@pytest.mark.parametrize("family", grammar.FAMILIES, ids=lambda family: family.name)
def test_torch_runs_a_broken_twin_unless_its_family_says_otherwise(family: grammar.Family) -> None:
    for one in grammar.programs("another seed of the tests", family, 6):
        with contextlib.redirect_stdout(io.StringIO()):
            exec(one.right, {})
            with pytest.raises(RuntimeError) if family.refused else contextlib.nullcontext():
                exec(one.wrong, {})


@tiers.long
def test_a_watch_names_the_drawn_bugs_that_a_run_shows() -> None:
    programs = detection.drawn("a seed of the tests", 2)
    (run,) = (tool for tool in tools.TOOLS if tool.name == "zerograd run")
    scores = detection.ask(run, programs).scores
    # A run sees the sum of the losses, not that a division was meant.
    assert {name for name, one in scores.items() if not one.named} == {"window not divided"}
    assert not any(one.alarms for one in scores.values())


def test_the_same_seed_draws_the_same_loops_and_another_seed_others() -> None:
    family = grammar.FAMILIES[0]
    first = list(grammar.programs("one", family, 5))
    assert list(grammar.programs("one", family, 5)) == first
    assert list(grammar.programs("two", family, 5)) != first


def test_a_value_is_shown_with_its_unit_its_spread_and_its_goal(tmp_path: Path) -> None:
    rows = [
        outcome.Row("found", 7, of=8, goal=7.6),
        outcome.Row("time", 1.2345, "×", 1.1, 1.3, goal=2),
    ]
    path = tmp_path / "one.json"
    outcome.write(path, title="A title", method="A method.", rows=rows)
    page = script("benchmarks").render([json.loads(path.read_text(encoding="utf-8"))])
    assert "| found | 7 of 8 (88%) |  | ≥ 7.6: missed |" in page
    assert "| time | 1.23 × | 1.1 – 1.3 | ≤ 2: met |" in page


BARE = """
def train(loader, model, optimizer):
    for i, batch in enumerate(loader):
        loss = model(batch)
        loss.backward()
        optimizer.step()
"""
CLIPPED = """
def train(loader, model, optimizer, scaler, args):
    for i, batch in enumerate(loader):
        scaler.scale(model(batch)).backward()
        if args.log:
            print(i)
        if (i + 1) % args.window == 0:
            {}torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            scaler.step(optimizer)
            scaler.update()
            optimizer.zero_grad()
"""


def test_a_loop_that_is_cut_out_and_executed_proves_the_bug() -> None:
    repaired = BARE.replace("loss =", "optimizer.zero_grad()\n        loss =")
    said = prove.prove(BARE, repaired, 5, "ZG101")
    assert said is not None
    assert said.startswith("step 2 uses a gradient of norm")
    unscaled = CLIPPED.format("scaler.unscale_(optimizer)\n            ")
    assert prove.prove(CLIPPED.format(""), unscaled, 7, "ZG201") is not None


def test_a_repair_that_changes_nothing_proves_nothing() -> None:
    assert prove.prove(BARE, BARE, 5, "ZG101") is None
    assert prove.prove(BARE, None, 5, "ZG101") is None
    right = BARE.replace("loss =", "optimizer.zero_grad()\n        loss =")
    assert prove.prove(right, right, 5, "ZG101") is None


def test_a_loop_with_two_optimizers_is_not_cut_out() -> None:
    two = BARE.replace("optimizer.step()", "optimizer.step()\n        other_optimizer.step()")
    with pytest.raises(prove.NotCutOut):
        prove.CutOut(two, 5)


def test_tables_have_a_line_for_each_tool_and_each_family(tmp_path: Path) -> None:
    rows = [
        outcome.Row("one: found", 7, of=8),
        outcome.Row("one: overhead", 1.5, "×", 1.4, 1.6),
        outcome.Row("two: found", 0, of=8),
        outcome.Row("family (ZG101): one", 3, of=4),
    ]
    path = tmp_path / "one.json"
    notes = ["three: not run: it is not there."]
    outcome.write(path, title="A title", method="A method.", rows=rows, tables=True, notes=notes)
    page = script("benchmarks").render([json.loads(path.read_text(encoding="utf-8"))])
    assert "| | found | overhead |" in page
    assert "| one | 7 of 8 (88%) | 1.5 × (1.4 – 1.6) |" in page
    assert "| two | 0 of 8 (0%) |  |" in page
    assert "| family (ZG101) | 3 of 4 (75%) |" in page
    assert "- three: not run: it is not there." in page


def test_a_result_is_of_its_commit_until_the_code_changes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def git(*words: str) -> None:
        names = ("-c", "user.name=x", "-c", "user.email=x@x")
        subprocess.run(["git", *names, *words], cwd=tmp_path, check=True, capture_output=True)

    for name in ("src/code.py", "bench/results/one.json", "docs/benchmarks.md"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("before")
    git("init")
    git("add", ".")
    git("commit", "-m", "first")
    monkeypatch.setattr(outcome, "ROOT", tmp_path)
    commit = outcome.setting()["commit"]
    (tmp_path / "bench/results/one.json").write_text("measured")
    (tmp_path / "docs/benchmarks.md").write_text("a page")
    assert outcome.setting()["commit"] == commit
    git("commit", "-a", "-m", "results")
    assert outcome.setting()["commit"] != commit
    assert outcome.is_current(commit)
    (tmp_path / "src/code.py").write_text("after")
    assert outcome.setting()["commit"].endswith("-dirty")
    assert not outcome.is_current(commit)
    assert not outcome.is_current("0123456789ab")


BY_HAND = {
    ("docs/howto/editors.md", "50 ms"),  # the debounce, a constant
    ("docs/report.md", "64 MB"),  # the longest recording, a constant
    ("docs/report.md", "256 MB"),  # the largest copy of gradients, a constant
    ("docs/ranks.md", "256 MB"),
    ("docs/claims.md", "0.0 MB"),  # printed by a lesson, and tested with it
    ("docs/claims.md", "4 times"),
    ("docs/howto/amp.md", "65536 times"),  # the first scale of a scaler, a constant
}
UNIT = "%|×|x|µs|ms|s|min|KB|MB|GB|seconds?|minutes?|times|percent|bugs|programs|repositories|files|tests"
MEASURED = re.compile(rf"\d[\d.,]* ?(?:{UNIT})(?!\w)|\d[\d,]* of (?:the |those )?\d[\d,]*")


def test_a_measured_number_is_recognised() -> None:
    said = (
        "It finds 12 of the 15, takes 3.4 ms (1.5 × ruff), 2 GB and 8 %, in 1,200 files, 3 times."
    )
    assert MEASURED.findall(said) == ["12 of the 15,", "3.4 ms", "1.5 ×", "2 GB", "8 %", "1,200 files", "3 times"]  # fmt: skip
    assert not MEASURED.findall("Python 3.10 has ZG101, and 3 of them are 2 lines long.")


def test_no_page_has_a_measured_number_that_is_not_read_from_a_result() -> None:
    pages = [ROOT / "README.md", ROOT / "CONTRIBUTING.md"]
    pages += [
        page for name in ("docs", "editors", "examples") for page in (ROOT / name).rglob("*.md")
    ]
    generated = re.compile(r"<!-- (\w+):begin -->.*?<!-- \1:end -->", re.DOTALL)
    found = set()
    for page in pages:
        if page.name in ("wild.md", "benchmarks.md"):
            continue  # made from data as a whole
        text = generated.sub("", page.read_text(encoding="utf-8"))
        text = re.sub(r"```.*?```", "", text, flags=re.DOTALL)
        found |= {(page.relative_to(ROOT).as_posix(), number) for number in MEASURED.findall(text)}
    assert found <= BY_HAND


def test_the_readme_gives_the_numbers_of_the_results(tmp_path: Path) -> None:
    readme = script("readme")
    said = readme.numbers()
    found = [row for row in lines("found.jsonl") if row["verdict"] == "true"]
    assert f"{len(found)} are bugs" in " ".join(said.split())
    for result in (BENCH / "results").glob("mutants.json"):
        rows = json.loads(result.read_text(encoding="utf-8"))["rows"]
        assert f"finds {rows[0]['value']}" in " ".join(said.split())


def test_the_readme_says_what_watching_and_a_check_cost_where_that_was_measured(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    readme = script("readme")
    results: dict[str, dict[str, dict[str, float]]] = {
        "watch_overhead": {
            "MLP, zero_grad: share of a step": {"value": 2.5, "goal": 3.0},
            "MLP, in place: share of a step": {"value": 9.0},
            "MLP, zero_grad: zerograd, to bare": {"value": 1.02},
        },
        "check_speed": {
            "zerograd check of one file": {"value": 123.4},
            "files": {"value": 9_000},
            "cold, to ruff": {"value": 4.5},
        },
    }
    monkeypatch.setattr(readme, "_rows", lambda name: results.get(name, {}))
    assert list(readme._cheap()) == [
        "- **Cost of watching.** On one thread zerograd takes 2.5 % of a step (MLP, zero_grad)."
    ]
    (said,) = readme._fast()
    assert "takes 123 ms for a file. For 9,000 installed files, few of which train" in said
    assert "it takes 4.50 times as long as `ruff check`. Code that trains" in said
    results["check_speed"]["warm, to ripgrep"] = {"value": 1.25}
    (said,) = readme._fast()
    assert "1.25 times as long as ripgrep if nothing has changed" in said
    results.clear()
    assert not [*readme._cheap(), *readme._fast()]


def test_every_tool_of_the_comparison_is_pinned_and_says_its_set_up() -> None:
    assert len({tool.home for tool in tools.TOOLS}) == len(tools.TOOLS)
    for tool in tools.TOOLS:
        assert all("==" in package for package in tool.packages)
        assert tool.reads in ("source", "runs")
        assert bool(tool.set_up) != bool(tool.absent)


def test_a_tool_that_cannot_be_had_says_why() -> None:
    (absent,) = [tool for tool in tools.TOOLS if tool.absent]
    with pytest.raises(tools.Unavailable, match="harness"):
        absent.install()
    nowhere = tools.Tool("x", "source", tools.by_line, ("run",), ("x==1",), interpreter="python0.9")
    with pytest.raises(tools.Unavailable, match=r"needs python0\.9"):
        nowhere.install()


def test_a_drawn_bug_is_found_and_named_by_zerograd_and_not_by_a_linter() -> None:
    programs = detection.drawn("a seed of the tests", 1)
    check, ruff = (tool for tool in tools.TOOLS if tool.name.startswith(("zerograd check", "ruff")))
    ours, theirs = detection.ask(check, programs), detection.ask(ruff, programs)
    assert sum(one.named for one in ours.scores.values()) == len(programs)
    assert not any(one.alarms for one in ours.scores.values())
    assert not any(one.named for one in theirs.scores.values())
