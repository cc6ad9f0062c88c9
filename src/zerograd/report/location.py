"""Writes places, and makes text from unknown files safe to show.

Shown text never moves the cursor: control characters are replaced by visible signs.
"""

from __future__ import annotations

from zerograd.core.events import Site
from zerograd.core.finding import Problem

_VISIBLE = {number: chr(0x2400 + number) for number in range(0x20)}
_VISIBLE |= dict.fromkeys((0x7F, *range(0x80, 0xA0)), "\N{REPLACEMENT CHARACTER}")
# Characters that change the direction of text could disguise a line.
_VISIBLE |= dict.fromkeys(
    (*range(0x202A, 0x202F), *range(0x2066, 0x206A)), "\N{REPLACEMENT CHARACTER}"
)


def visible(text: str) -> str:
    """The text with every control character made visible."""
    return text if text.isprintable() else text.translate(_VISIBLE)


def where(site: Site) -> str:
    """`train.py:14:9`, or `train.ipynb:cell 3:14:9`."""
    cell = "" if site.cell is None else f"cell {site.cell}:"
    return f"{visible(site.path)}:{cell}{site.line}:{site.column}"


def where_problem(problem: Problem) -> str:
    """`train.py:14`, or the path alone."""
    path = visible(problem.path)
    return path if problem.line is None else f"{path}:{problem.line}"
