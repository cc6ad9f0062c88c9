"""The two tiers together are all tests, and each test with random inputs is in both."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from support import tiers
from support.paths import ROOT


def item(*marks: str) -> pytest.Item:
    """A test with these marks."""
    return cast("pytest.Item", SimpleNamespace(get_closest_marker=dict.fromkeys(marks, 1).get))


@pytest.mark.parametrize(
    ("marks", "where"),
    [([], ["fast"]), (["long"], ["long"]), (["sampled"], ["fast", "long"])],
)
def test_a_test_is_in_the_tiers_of_its_mark(
    marks: list[str], where: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    found = []
    for tier in tiers.TIERS:
        monkeypatch.setattr(tiers, "chosen", tier)
        if tiers.belongs(item(*marks)):
            found.append(tier)
    assert found == [*where, "all"]


@pytest.mark.parametrize("fast", [2, ["a", "b"]], ids=["how many", "which"])
def test_what_is_not_in_the_sample_is_in_the_long_tier(fast: Any) -> None:
    a, b, c = tiers.sample("abc", fast)
    assert (a, b, c.values) == ("a", "b", ("c",))
    assert [mark.name for mark in c.marks] == ["long"]


def test_a_sample_of_what_is_not_there_is_an_error() -> None:
    with pytest.raises(AssertionError, match="d"):
        tiers.sample("abc", ["d"])


@pytest.mark.parametrize(("tier", "inputs"), [("fast", 30), ("long", 300), ("all", 300)])
def test_the_fast_tier_has_a_tenth_of_the_random_inputs(
    tier: str, inputs: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tiers, "chosen", tier)
    assert tiers.size(300).max_examples == inputs


def test_every_run_names_its_tier() -> None:
    lines = (ROOT / "Makefile").read_text(encoding="utf-8").splitlines()
    runs = {
        lines[at - 1].partition(":")[0]: line.partition("worksteal")[2].strip()
        for at, line in enumerate(lines)
        if "pytest -q -n $(WORKERS) --dist" in line
    }
    assert runs == {"test": "--tier fast", "test-all": "", "test-long": "--tier long"}
    continuous = (ROOT / ".ci" / "run").read_text(encoding="utf-8").splitlines()
    assert [line for line in continuous if line.startswith(("make", "twice test"))] == [
        "twice test fast",
        "make test-coverage",
        "twice test-long long",
        "make docs",
        "make test-libraries",
    ]
