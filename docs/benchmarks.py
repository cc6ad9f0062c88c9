"""Writes docs/benchmarks.md from bench/results/*.json alone.

python docs/benchmarks.py           write the page
python docs/benchmarks.py --check   change nothing; exit with 1 if the page differs
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from typing import Any

import pages
from pages import ROOT

RESULTS = ROOT / "bench" / "results"
PAGE = ROOT / "docs" / "benchmarks.md"

INTRODUCTION = """\
# Benchmarks

Every number on this page is read from `bench/results/`, which `make bench` and `make bench-full` write. Ratios come
from one interleaved run, and a control is beside them: the same thing measured twice. Its distance from 1 is the
error of that machine.
"""


def render(results: list[dict[str, Any]]) -> str:
    """The page."""
    return "\n".join([INTRODUCTION, *(line for one in results for line in _section(one))])


def _section(result: dict[str, Any]) -> Iterator[str]:
    given = result["setting"]
    torch = f", torch {given['torch']}" if given["torch"] else ""
    yield f"## {result['title']}"
    yield ""
    yield result["method"]
    yield ""
    yield (
        f"Measured at commit `{given['commit']}` with Python {given['python']}{torch}, on "
        f"{given['cores']} cores of {given['cpu']}{_load(given)}."
    )
    yield ""
    for note in result.get("notes", ()):
        yield f"- {note}"
    yield from ("",) if result.get("notes") else ()
    yield from _tables(result["rows"]) if result.get("tables") else _list(result["rows"])


def _load(given: dict[str, Any]) -> str:
    """The other work of the machine at the end of the measurement, where it was recorded."""
    return f" with a load of {given['load']}" if "load" in given else ""


def _list(rows: list[dict[str, Any]]) -> Iterator[str]:
    yield "| | value | spread | goal |"
    yield "|---|---|---|---|"
    for row in rows:
        cells = (row["name"].replace("|", "\\|"), value(row), _spread(row), _goal(row))
        yield f"| {' | '.join(cells)} |"
    yield ""


def _tables(rows: list[dict[str, Any]]) -> Iterator[str]:
    """A table for each group of lines that have a column in common; a name is `line: column`."""
    lines: dict[str, dict[str, str]] = {}
    for row in rows:
        line, _, column = row["name"].rpartition(": ")
        spread = f" ({_spread(row)})" if _spread(row) else ""
        lines.setdefault(line, {})[column] = value(row) + spread
    while lines:
        shown = next(iter(lines.values())).keys()
        group = {line: cells for line, cells in lines.items() if shown & cells.keys()}
        columns = list(dict.fromkeys(name for cells in group.values() for name in cells))
        yield f"| | {' | '.join(columns)} |"
        yield "|---|" + "---|" * len(columns)
        for line, cells in group.items():
            yield f"| {line} | {' | '.join(cells.get(name, '') for name in columns)} |"
            del lines[line]
        yield ""


def value(row: dict[str, Any]) -> str:
    """A measured value, as it is printed."""
    if "of" in row:
        share = f" ({row['value'] / row['of']:.0%})" if row["of"] else ""
        return f"{row['value']:,.0f} of {row['of']:,.0f}{share}"
    return f"{number(row['value'])} {row.get('unit', '')}".rstrip()


def number(amount: float) -> str:
    """Three significant digits; whole numbers in full."""
    if amount == round(amount) and abs(amount) < 1e12:
        return f"{amount:,.0f}"
    return f"{amount:.1e}" if abs(amount) < 1e-4 else f"{amount:,.3g}"


def _spread(row: dict[str, Any]) -> str:
    if "low" not in row or "high" not in row:
        return ""
    return f"{number(row['low'])} – {number(row['high'])}"


def _goal(row: dict[str, Any]) -> str:
    if "goal" not in row:
        return ""
    sign, met = ("≥", row["value"] >= row["goal"]) if "of" in row else ("≤", row["value"] <= row["goal"])  # fmt: skip
    return f"{sign} {number(row['goal'])}: {'met' if met else 'missed'}"


def page() -> str:
    """The page of all results."""
    found = [
        json.loads(path.read_text(encoding="utf-8")) for path in sorted(RESULTS.glob("*.json"))
    ]
    return render(found)


if __name__ == "__main__":
    sys.exit(pages.main(__doc__, PAGE, page))
