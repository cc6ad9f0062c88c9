"""Numbers and lists of names as parts of sentences."""

from __future__ import annotations

from collections.abc import Sequence


def counted(number: int, noun: str) -> str:
    """`1 step`, `2 steps`."""
    return f"{number} {noun}{'' if number == 1 else 's'}"


def listed(names: Sequence[str], count: int) -> str:
    """The first of so many names: `weight, bias and 4 more`."""
    more = count - len(names)
    return f"{', '.join(names)}{f' and {more} more' if more > 0 else ''}"
