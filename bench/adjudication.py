"""Findings that a person has read, with a verdict for each.

A finding is recognised by its package, path, code and enclosing function, so a verdict stays valid
when lines move. Among several findings in one function, the nearest line decides.
"""

from __future__ import annotations

import ast
import functools
import json
import warnings
from collections import defaultdict
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from pathlib import Path


@dataclass(frozen=True, order=True)
class Place:
    """The part of a finding that does not change when lines move."""

    package: str
    path: str
    code: str
    function: str


@dataclass(frozen=True)
class Found:
    """A certain finding and its place."""

    place: Place
    line: int
    name: str
    message: str


@dataclass(frozen=True)
class Verdict:
    """Whether a finding is a real bug, and why, in one line."""

    place: Place
    line: int
    true: bool
    reason: str


@dataclass
class Judged:
    """The findings of one run, sorted by verdict."""

    true: list[tuple[Found, Verdict]] = field(default_factory=list)
    false: list[tuple[Found, Verdict]] = field(default_factory=list)
    unread: list[Found] = field(default_factory=list)
    gone: list[Verdict] = field(default_factory=list)
    """Verdicts on findings that the checker no longer reports: fixed false alarms or lost bugs."""


class VerdictError(Exception):
    """A row that is not a verdict."""


def read_verdicts(path: Path) -> list[Verdict]:
    """Read one JSON object per line. With a null verdict, nobody has read the finding."""
    verdicts = []
    for number, text in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
        if not text.strip():
            continue
        try:
            row = json.loads(text)
            place = Place(row["package"], row["path"], row["code"], row["function"])
            line, verdict, reason = row["line"], row["verdict"], row["reason"]
        except (ValueError, KeyError, TypeError) as error:
            raise VerdictError(f"{path}:{number}: not a verdict: {error!r}") from error
        if verdict not in (True, False, None) or (verdict is not None and not reason):
            raise VerdictError(f"{path}:{number}: a verdict is true or false, with a reason")
        if verdict is not None:
            verdicts.append(Verdict(place, line, verdict, reason))
    return verdicts


def draft(found: Iterable[Found]) -> str:
    """Rows to fill in, one for each finding."""
    rows = (
        {**asdict(one.place), "line": one.line, "verdict": None, "reason": "", "says": one.message}
        for one in found
    )
    return "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)


def judge(found: Iterable[Found], verdicts: Iterable[Verdict]) -> Judged:
    """Assign a verdict to each finding. One verdict never covers two findings."""
    judged = Judged()
    reported: dict[Place, list[Found]] = defaultdict(list)
    known: dict[Place, list[Verdict]] = defaultdict(list)
    for one in found:
        reported[one.place].append(one)
    for verdict in verdicts:
        known[verdict.place].append(verdict)
    for place in sorted(reported.keys() | known.keys()):
        pairs, unread, gone = _pair(reported[place], known[place])
        for one, verdict in pairs:
            (judged.true if verdict.true else judged.false).append((one, verdict))
        judged.unread += unread
        judged.gone += gone
    return judged


def _pair(
    found: Sequence[Found], verdicts: Sequence[Verdict]
) -> tuple[list[tuple[Found, Verdict]], list[Found], list[Verdict]]:
    """Pair the nearest lines first, until one side is used up."""
    pairs: list[tuple[Found, Verdict]] = []
    left, right = list(found), list(verdicts)
    while left and right:
        nearest = min(
            ((one, verdict) for one in left for verdict in right),
            key=lambda pair: abs(pair[0].line - pair[1].line),
        )
        pairs.append(nearest)
        left.remove(nearest[0])
        right.remove(nearest[1])
    return pairs, left, right


def function_at(path: Path, line: int, cell: int | None) -> str:
    """The dotted name of the function around a line; `cell 7` for a notebook."""
    if cell is not None:
        return f"cell {cell}"
    around = [span for span in _functions(path) if span[0] <= line <= span[1]]
    # Functions nest, so the one that starts last is the innermost.
    return max(around)[2] if around else "<module>"


@functools.lru_cache(maxsize=256)
def _functions(path: Path) -> tuple[tuple[int, int, str], ...]:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", SyntaxWarning)
            tree = ast.parse(path.read_bytes())
    except (SyntaxError, ValueError, RecursionError):
        return ()
    spans: list[tuple[int, int, str]] = []

    def visit(node: ast.AST, prefix: str) -> None:
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
                name = f"{prefix}{child.name}"
                if not isinstance(child, ast.ClassDef):
                    spans.append((child.lineno, child.end_lineno or child.lineno, name))
                visit(child, f"{name}.")
            else:
                visit(child, prefix)

    visit(tree, "")
    return tuple(spans)
