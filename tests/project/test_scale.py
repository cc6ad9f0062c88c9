"""The benchmark of scale on a thousandth of its sizes: memory and time stay in proportion."""

from __future__ import annotations

import pytest

import scale
from support import tiers


@tiers.long
@pytest.mark.parametrize("name", scale.PARTS)
def test_four_times_as_much_needs_hardly_more_memory_and_no_more_time_for_each(name: str) -> None:
    _, measure, size = scale.PARTS[name]
    less, full = measure(size // 4000), measure(size // 1000)
    found = scale.rows(name, less, full)
    goals = [row for row in found if row.goal is not None]
    assert len(goals) == (3 if name == "page" else 2)
    assert [row.name for row in goals if row.goal is not None and row.value > row.goal] == []


def test_what_grows_with_its_size_misses_the_goals() -> None:
    less, full = scale.Use(1000, 1.0, 50.0), scale.Use(4000, 8.0, 120.0, 9.0)
    missed = {
        row.value for row in scale.rows("page", less, full) if row.goal and row.value > row.goal
    }
    assert missed == {70.0, 2.0, 9.0}
