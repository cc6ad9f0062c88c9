"""Ranks that are watched: what is said of them, and that it is right (scenarios: support/watched_ranks.py)."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from support import ranks, tiers
from support.ranks import Results, of
from zerograd.runtime.ranks import replicas

SCRIPT = Path(ranks.__file__).with_name("watched_ranks.py")
WORLD = 2
FAST = (
    "ddp",
    "ddp window",
    "fsdp",
    "ddp last apart",
    "ddp always",
    "ddp module",
    "fsdp never",
    "ddp forgets",
    "ddp perturbed",
    "ddp skips",
    "ddp perturbed, off",
    "strangers",
    "lost",
)
"""The scenarios of the fast tier."""
SECONDS = 400
"""After so long a rank is taken to hang: there are many scenarios, and a machine may be busy."""


def names(table: str) -> list[str]:
    """The scenarios of a table, read and not imported: the script belongs to a rank."""
    tree = ast.parse(SCRIPT.read_text(encoding="utf-8"))
    for node in tree.body:
        if isinstance(node, ast.AnnAssign) and ast.unparse(node.target) == table:
            assert isinstance(node.value, ast.Dict)
            return [ast.literal_eval(key) for key in node.value.keys if key is not None]
    raise AssertionError(f"there is no {table}")


def sample(scenarios: Iterable[str]) -> list[Any]:
    every = list(scenarios)
    return tiers.sample(every, [one for one in every if one in FAST])


WHICH = {"fast": ("only", *FAST), "long": ("but", *FAST), "all": ()}
"""What the ranks of each tier run."""


@pytest.fixture(scope="module")
def results(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Results:
    which = WHICH[tiers.chosen]
    return ranks.results(request.config, tmp_path_factory, SCRIPT, WORLD, SECONDS, which)


@pytest.mark.parametrize("scenario", sample(names("RIGHT")))
def test_what_is_right_is_silent(results: Results, scenario: str) -> None:
    assert of(results, scenario) == [[]] * WORLD


ON_ALL = {
    "ddp last apart": ("ZG401", "no_sync()", 1),
    "ddp never": ("ZG401", "no_sync()", 1),
    "flat never cleared": ("ZG101", "in this rank's shard", 2),
    "flat parts never cleared": ("ZG101", "in this rank's shard", 2),
    "flat clipped scaled": ("ZG201", "still scaled", 1),
    "flat not always scaled": ("ZG208", "", 2),
    "flat parts not always scaled": ("ZG208", "", 2),
    "ddp module": ("ZG401", ".module", 1),
    "ddp retained": ("ZG401", "a second backward() through one forward", 1),
    "ddp always": ("ZG403", "4 times for one step(), but once is enough: 696 bytes", 1),
    "fsdp never": ("ZG401", "set_requires_gradient_sync(False)", 1),
    "fsdp last apart": ("ZG401", "set_requires_gradient_sync(False)", 1),
    "fsdp always": ("ZG403", "4 times for one step(), but once is enough: 696 bytes", 1),
}
"""58 numbers of 4 bytes, shared three times more than needed, are 696 bytes."""
ON_ONE = {
    "ddp forgets": (1, "ZG101", "adds to gradients that step() already used", 4),
    "ddp forgets, bucket views": (0, "ZG101", "adds to gradients that step() already used", 4),
    "fsdp forgets": (1, "ZG101", "adds to gradients that step() already used", 4),
    "ddp perturbed": (
        1,
        "ZG402",
        "rank 1 has different parameters than rank 0: module.2.weight",
        3,
    ),
    "ddp perturbed first": (1, "ZG402", "has different parameters than rank 0: module.2.weight", 3),
    "ddp skips": (1, "ZG402", "rank 1 had synchronised 6 times when it took step 5", 5),
    "ddp other rate": (1, "ZG402", "a different learning rate than rank 0 (0.1, not 0.05)", 1),
    "ddp own gradients": (1, "ZG402", "rank 1 uses different gradients than rank 0", 1),
    "page bad": (1, "ZG402", "rank 1 has different parameters than rank 0", 1),
    "fsdp other rate": (1, "ZG402", "a different learning rate than rank 0 (0.1, not 0.05)", 1),
    "fsdp hybrid perturbed": (1, "ZG402", "has different parameters than rank 0: 2.weight", 3),
}


def test_everything_wrong_has_its_claim() -> None:
    assert {*ON_ALL, *ON_ONE} == set(names("WRONG"))


@pytest.mark.parametrize("scenario", sample(ON_ALL))
def test_what_all_ranks_do_wrong_all_find(results: Results, scenario: str) -> None:
    code, words, step = ON_ALL[scenario]
    for found in of(results, scenario):
        ((known, message, at),) = found
        assert (known, at) == (code, step)
        assert words in message


@pytest.mark.parametrize("scenario", sample(ON_ONE))
def test_what_one_rank_does_differently_is_found_on_it_at_that_step(
    results: Results, scenario: str
) -> None:
    who, code, words, step = ON_ONE[scenario]
    found = of(results, scenario)
    ((known, message, at),) = found[who]
    assert (known, at) == (code, step)
    assert words in message
    assert not any(one for rank, one in enumerate(found) if rank != who)


@tiers.long
def test_sharded_gradients_are_measured_as_far_as_a_rank_holds_them(results: Results) -> None:
    for messages, came, got in of(results, "fsdp norms"):
        (message,) = messages
        words = r"expected \|grad\| (\S+), got (\S+) in this rank's shard \(0.weight, 0.bias, "
        numbers = re.search(words, message)
        assert numbers, message
        assert [float(one) for one in numbers.groups()] == pytest.approx([came, got], rel=1e-4)


@tiers.long
def test_sharded_gradients_that_are_never_cleared_are_found_in_every_step(results: Results) -> None:
    assert of(results, "fsdp never cleared") == [[11]] * WORLD


@tiers.long
def test_by_default_a_difference_is_found_within_a_hundred_steps(results: Results) -> None:
    first, second = of(results, "ddp perturbed, default")
    assert all(messages == [] for _, messages, _ in first)
    names = ("module.0.weight", "module.0.bias", "module.2.weight", "module.2.bias")
    for name, (changed, messages, at) in zip(names, second, strict=True):
        assert messages == [f"rank 1 has different parameters than rank 0: {name}"]
        assert changed < at <= changed + 100


def test_whatever_part_is_changed_whenever_it_is_read_within_a_hundred_steps() -> None:
    steps = range(1, 1200)
    taken = [step for step in steps if replicas.taken_after(step - 1) == step]
    written = [step for step in steps if replicas.is_written(step)]
    for changed in range(1, 900):
        for part in range(replicas.PARTS):
            of_it = (step for step in taken if step >= changed and replicas.part_of(step) == part)
            seen = next(of_it)
            published = next(step for step in written if step >= seen)
            assert seen in [step for step in taken if step <= published][-replicas.RING :]
            assert published + 1 <= changed + 100


@tiers.long
def test_wrappers_that_were_there_before_the_watch_are_known(results: Results) -> None:
    first, second = of(results, "made before")
    assert first == [[], []]
    assert [[code for code, *_ in found] for found in second] == [["ZG402"], ["ZG402"]]


@tiers.long
def test_the_comparison_goes_on_when_another_wrapper_comes(results: Results) -> None:
    assert of(results, "another later") == ["", ""]


def test_ranks_that_are_not_to_be_compared_are_not(results: Results) -> None:
    assert of(results, "ddp perturbed, off") == [[], []]


def test_ranks_that_are_not_alike_say_so(results: Results) -> None:
    first, second = of(results, "strangers")
    assert first == []
    torch, program = second
    assert torch.startswith("rank 1 runs torch 2.99.0, rank 0 torch ")
    assert program.startswith("rank 1 runs ranks.py (")
    assert "rank 0 watched_ranks.py (" in program


def test_a_store_that_goes_away_is_said_and_the_training_goes_on(results: Results) -> None:
    first, second = of(results, "lost")
    assert first == ""
    assert second.startswith("the process group's store is gone since step ")
