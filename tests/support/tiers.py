"""Two tiers of tests. The fast one has every behaviour once; the long one has what the fast one only samples.

`make test` runs the fast tier, `make test-all` both. A test is in the fast tier unless it is marked `long`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Literal, TypeVar

import pytest

Test = TypeVar("Test", bound=Callable[..., Any])
TIERS = ("fast", "long", "all")

chosen: Literal["fast", "long", "all"] = "all"
"""What this run of pytest was asked for (conftest.py sets it before any test is read)."""

long = pytest.mark.long
"""For a test that is in the long tier only."""


def sample(values: Iterable[Any], fast: int | Iterable[Any] = 1) -> list[Any]:
    """All values as parameters of a test: the first `fast` of them, or those named, are in the fast tier."""
    all_of_them = list(values)
    kept = all_of_them[:fast] if isinstance(fast, int) else list(fast)
    assert all(one in all_of_them for one in kept), kept
    return [one if one in kept else pytest.param(*_fields(one), marks=long) for one in all_of_them]


def _fields(value: Any) -> tuple[Any, ...]:
    return value if isinstance(value, tuple) else (value,)


def size(examples: int, **more: Any) -> Any:
    """So many random inputs in the long tier, and a tenth of them in the fast one."""
    from hypothesis import settings  # the libraries' environment has no hypothesis

    number = max(examples // 10, 5) if chosen == "fast" else examples
    return settings(max_examples=number, derandomize=True, deadline=None, **more)


def random(examples: int, **more: Any) -> Callable[[Test], Test]:
    """For a test with random inputs, which is in both tiers: `size` says how many inputs it gets."""
    return lambda test: pytest.mark.sampled(size(examples, **more)(test))


def belongs(item: pytest.Item) -> bool:
    """Whether a test is in the tier that was asked for."""
    if chosen == "all":
        return True
    if chosen == "fast":
        return item.get_closest_marker("long") is None
    return any(item.get_closest_marker(name) is not None for name in ("long", "sampled"))
