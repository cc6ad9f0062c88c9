"""Buckets, bars, curves and tables as text that fits the width of the terminal.

`paint(style, text)` adds colour or returns the text unchanged. Widths are computed before painting.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from zerograd.learn.content import Bars, Buckets, Curves, Moment, Table, number
from zerograd.report.excerpt import Paint

_EIGHTHS = " ▁▂▃▄▅▆▇█"
_SIGNS = "●○×+"
_LIQUIDS = {"spent": "dim", "stale": "mark"}
"""The colours of states, as on the pages: grey, red; all others are blue."""
_STYLES = ("note", "mark", "label", "advice")
TALL = 4
"""Rows of a bucket."""
HIGH = 10
"""Rows of a plot."""


def buckets(part: Buckets, width: int, paint: Paint) -> Iterator[str]:
    """Buckets side by side. The height of the filling shows the gradient."""
    most = part.brim or max(abs(m.gradient or 0.0) for m in part.moments) or 1.0
    wide = max(9, *(len(m.call) + 2 for m in part.moments))
    in_row = max(1, width // wide)
    for start in range(0, len(part.moments), in_row):
        if start:
            yield ""
        yield from _row_of_buckets(part.moments[start : start + in_row], most, wide, paint)


def _row_of_buckets(
    moments: Sequence[Moment], most: float, wide: int, paint: Paint
) -> Iterator[str]:
    yield _centred([(m.call, "label") for m in moments], wide, paint)
    for row in range(TALL, 0, -1):
        line = ""
        for moment in moments:
            fill = _EIGHTHS[_level(abs(moment.gradient or 0.0) / most * TALL - (row - 1))] * 5
            pad = wide - 7
            liquid = paint(_LIQUIDS.get(moment.state, "note"), fill)
            line += " " * (pad // 2) + "│" + liquid + "│" + " " * (pad - pad // 2)
        yield line.rstrip()
    yield _centred([("└─────┘", "bold") for _ in moments], wide, paint)
    held = ["None" if m.gradient is None else number(m.gradient) for m in moments]
    yield _centred([(one, "bold") for one in held], wide, paint)
    yield _centred([(m.state, "dim") for m in moments], wide, paint)
    yield _centred([(f"weight {number(m.weight)}", "dim") for m in moments], wide, paint)


def _level(height: float) -> int:
    """How many eighths of one row are filled."""
    return min(8, max(0, round(height * 8)))


def _centred(cells: Sequence[tuple[str, str]], wide: int, paint: Paint) -> str:
    line = ""
    for text, style in cells:
        pad = max(0, wide - len(text))
        line += " " * (pad // 2) + paint(style, text) + " " * (pad - pad // 2)
    return line.rstrip()


def bars(part: Bars, width: int, paint: Paint) -> Iterator[str]:
    """One bar in each row."""
    if part.title:
        yield paint("bold", part.title)
    label = max(len(what) for what, _, _ in part.rows)
    text = max(len(shown) for _, _, shown in part.rows)
    longest = max(8, width - label - text - 4)
    most = max(amount for _, amount, _ in part.rows) or 1.0
    for what, amount, shown in part.rows:
        eighths = round(amount / most * longest * 8)
        bar = "█" * (eighths // 8) + " ▏▎▍▌▋▊▉"[eighths % 8].strip()
        yield f"{what:<{label}}  {paint('note', bar or '▏')} {shown}"


def curves(part: Curves, width: int, paint: Paint) -> Iterator[str]:
    """A plot with a logarithmic axis, and a legend."""
    if part.title:
        yield paint("bold", part.title)
    logs = [math.log10(value) for _, line in part.lines for value in line if 0 < value < math.inf]
    low, high = min(logs), max(logs)
    span = (high - low) or 1.0
    columns = min(width - 12, max(len(line) for _, line in part.lines))
    grid = [[" "] * columns for _ in range(HIGH)]
    for index, (_, line) in enumerate(part.lines):
        for column in range(columns):
            value = line[column * (len(line) - 1) // max(1, columns - 1)]
            if 0 < value < math.inf:
                row = round((math.log10(value) - low) / span * (HIGH - 1))
                sign = _SIGNS[index % len(_SIGNS)]
                grid[HIGH - 1 - row][column] = paint(_STYLES[index % len(_STYLES)], sign)
    for row, cells in enumerate(grid):
        axis = number(10 ** (high - span * row / (HIGH - 1))) if row in (0, HIGH - 1) else ""
        yield f"{axis:>9} │{''.join(cells)}".rstrip()
    steps = str(max(len(line) for _, line in part.lines))
    yield " " * 10 + "└" + "─" * columns
    yield " " * 11 + "1" + steps.rjust(columns - 1)
    for index, (name, line) in enumerate(part.lines):
        sign = paint(_STYLES[index % len(_STYLES)], _SIGNS[index % len(_SIGNS)])
        yield f"{'':10} {sign} {name}: ends at {number(line[-1])}"


def table(part: Table, width: int, paint: Paint) -> Iterator[str]:
    """Columns as wide as their widest cell. Numbers are aligned to the right."""
    rows = (part.head, *part.rows)
    right = [any(_is_number(row[column]) for row in part.rows) for column in range(len(part.head))]
    wide = [max(len(row[column]) for row in rows) for column in range(len(part.head))]
    for index, row in enumerate(rows):
        cells = [
            f"{cell:{'>' if right[column] and column else '<'}{wide[column]}}"
            for column, cell in enumerate(row)
        ]
        line = "  ".join(cells).rstrip()
        yield paint("bold", line) if index == 0 else line
        if index == 0:
            yield paint("dim", "─" * min(width, sum(wide) + 2 * (len(wide) - 1)))


def _is_number(cell: str) -> bool:
    return cell[:1].isdigit() or cell[:2].lstrip("-")[:1].isdigit()
