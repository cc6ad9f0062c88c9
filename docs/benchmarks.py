"""Writes docs/benchmarks.md from bench/results/*.json alone.

python docs/benchmarks.py           write the page
python docs/benchmarks.py --check   change nothing; exit with 1 if the page differs
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "bench" / "results"
PAGE = ROOT / "docs" / "benchmarks.md"

INTRODUCTION = """\
# Benchmarks

Every number on this page is read from `bench/results/`, which `make bench` and `make bench-full` write. Ratios come
from one interleaved run, and a control stands beside them: the same thing measured twice. Its distance from 1 is the
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
        f"{given['cores']} cores of {given['cpu']}."
    )
    yield ""
    yield "| | value | spread | goal |"
    yield "|---|---|---|---|"
    for row in result["rows"]:
        cells = (row["name"].replace("|", "\\|"), value(row), _spread(row), _goal(row))
        yield f"| {' | '.join(cells)} |"
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


def main() -> int:
    """Write the page, or compare it."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--check", action="store_true", help="only compare")
    options = parser.parse_args()
    results = [
        json.loads(path.read_text(encoding="utf-8")) for path in sorted(RESULTS.glob("*.json"))
    ]
    page = render(results)
    if options.check:
        same = PAGE.read_text(encoding="utf-8") == page
        print("docs/benchmarks.md is up to date" if same else "docs/benchmarks.md differs")
        return int(not same)
    PAGE.write_text(page, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
