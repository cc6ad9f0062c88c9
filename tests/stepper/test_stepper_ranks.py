"""`Stepper` under DDP and FSDP2, in two and three processes (scenarios: support/stepper_ranks.py)."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from support import ranks, tiers
from support.ranks import Results, of

SCRIPT = Path(ranks.__file__).with_name("stepper_ranks.py")


def scenarios() -> list[str]:
    """The names of the scenarios, read from the source, because only a rank can import the script."""
    tree = ast.parse(SCRIPT.read_text(encoding="utf-8"))
    named = {
        target.id: node.value
        for node in tree.body
        if isinstance(node, ast.Assign)
        for target in node.targets
        if isinstance(target, ast.Name)
    }
    both = named["BOTH"]
    assert isinstance(both, ast.Tuple)
    found = [f"{wrap} {ast.unparse(one)}" for wrap in ("ddp", "fsdp") for one in both.elts]
    (more,) = (node.value for node in tree.body if isinstance(node, ast.AugAssign))
    assert isinstance(more, ast.Dict)
    return found + [ast.literal_eval(key) for key in more.keys if key is not None]


@pytest.fixture(scope="module", params=tiers.sample([2, 3]), ids=["2 ranks", "3 ranks"])
def results(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Results:
    return ranks.results(request.config, tmp_path_factory, SCRIPT, request.param)


@pytest.mark.parametrize("scenario", scenarios())
def test_the_gradient_is_that_of_the_one_big_batch_over_all_ranks(
    results: Results, scenario: str
) -> None:
    of(results, scenario)


@pytest.mark.parametrize("wrap", ["ddp", "fsdp"])
def test_every_rank_reports_the_same(results: Results, wrap: str) -> None:
    weights = of(results, f"{wrap} uneven")
    assert all(one == weights[0] for one in weights)
    skips = of(results, f"{wrap} nonfinite")
    assert all(one == skips[0] for one in skips)
    plain, scaled = skips[0]
    assert [reason for reason, _ in plain] == ["nonfinite", "", ""]
    assert scaled == [("nonfinite", 8.0), ("", 4.0), ("", 4.0)]


def test_ddp_synchronises_once_in_a_window(results: Results) -> None:
    for sent in of(results, "ddp synced_once"):
        assert sent == [1, 1, 1]


@pytest.mark.parametrize("wrap", ["ddp", "fsdp"])
def test_a_watched_run_has_no_finding(results: Results, wrap: str) -> None:
    for codes in of(results, f"{wrap} watched"):
        assert codes == []


@pytest.mark.parametrize("wrap", ["ddp", "fsdp"])
def test_bad_use_is_refused_on_every_rank(results: Results, wrap: str) -> None:
    name = {"ddp": "DDP", "fsdp": "FSDP2"}[wrap]
    for freeing, dtype, outside, skipped, empty, unknown in of(results, f"{wrap} refused"):
        assert f"free_gradients cannot be combined with {name}" in freeing
        assert ("MixedPrecisionPolicy" in dtype) == (wrap == "fsdp")
        assert f"4 of the optimizer's 8 parameters are not under {name}" in outside
        assert "call backward(loss, weight=0)" in skipped
        assert "rank 0 has no batch at all" in empty
        assert "rank 0 has no batch at all" in unknown


def test_fsdp_refuses_to_save_an_open_window(results: Results) -> None:
    for said in of(results, "fsdp saved"):
        assert "call stepper.flush() first" in said


def test_bf16_is_added_up_better_in_fp32(results: Results) -> None:
    for plain, added in of(results, "ddp bf16"):
        assert added < plain / 2


def test_fsdp_refuses_windows_that_it_cannot_keep_apart(
    results: Results,
) -> None:
    for said in of(results, "fsdp interleaved"):
        assert 'make that stepper with sync="every"' in said
