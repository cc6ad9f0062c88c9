"""The lines of source around a finding, with a mark under each call that belongs to it.

Marks are exactly under their call, also after tabs and wide characters.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import groupby
from typing import NamedTuple

from zerograd.core.events import Site
from zerograd.core.finding import SourceKey, source_key
from zerograd.report.location import visible, where

GUTTER = 5
NEAR = 3
"""Marked lines closer than this are shown with the lines between them."""
WIDEST = 160
BEFORE = 60
TAB = "    "

Paint = Callable[[str, str], str]


class Annotation(NamedTuple):
    """A call to underline, the character to use, and a label."""

    site: Site
    sign: str
    message: str


def excerpt(
    marks: Sequence[Annotation], sources: Mapping[SourceKey, Sequence[str]], paint: Paint
) -> Iterator[str]:
    """The marked lines, file by file, beginning with the file of the first mark."""
    files = list(dict.fromkeys(source_key(mark.site) for mark in marks))
    for file in files:
        here = sorted(
            (one for one in marks if source_key(one.site) == file), key=lambda m: m.site.line
        )
        lines = sources.get(file)
        if file != files[0] or not lines:
            for mark in here if not lines else here[:1]:
                if mark.site is not marks[0].site:
                    said = f"  {mark.message}" if not lines else ""
                    yield f"   at    {where(mark.site)}{said}"
        if lines:
            yield from _block(here, lines, paint)


def _block(marks: Sequence[Annotation], lines: Sequence[str], paint: Paint) -> Iterator[str]:
    previous = 0
    for line, group in groupby(marks, key=lambda mark: mark.site.line):
        if not 1 <= line <= len(lines):
            continue
        if previous and line - previous <= NEAR:
            for number in range(previous + 1, line):
                yield _row(str(number), _fit(lines[number - 1], 0)[0], paint)
        elif previous:
            yield " " * (GUTTER - 2) + paint("dim", "...")
        previous = line
        raw = lines[line - 1]
        marked = list(group)
        text, cut = _fit(raw, marked[0].site.column - 1)
        yield _row(str(line), text, paint)
        for mark in marked:
            yield _row("", _underline(mark, raw, cut, paint), paint)


def _row(number: str, text: str, paint: Paint) -> str:
    return f"{paint('dim', f'{number:>{GUTTER}} |')} {text}".rstrip()


def _shown(text: str) -> str:
    return visible(text.replace("\t", TAB))


def _width(text: str) -> int:
    shown = _shown(text)
    if shown.isascii():
        return len(shown)
    return sum(
        0 if unicodedata.combining(char) else 1 + (unicodedata.east_asian_width(char) in "WF")
        for char in shown
    )


def _fit(line: str, column: int) -> tuple[str, int]:
    """The part of a line that fits around a column, and how many characters precede it."""
    cut = max(0, column - BEFORE) if len(line) > WIDEST else 0
    text = _shown(line[cut : cut + WIDEST])
    return ("…" if cut else "") + text + ("…" if len(line) > cut + WIDEST else ""), cut


def _underline(mark: Annotation, line: str, cut: int, paint: Paint) -> str:
    site = mark.site
    start = max(cut, min(site.column - 1, len(line)))
    end = site.end_column - 1 if site.end_line in (0, site.line) else len(line.rstrip())
    end = min(max(end, start + 1), cut + WIDEST)
    space = " " * (_width(line[cut:start]) + bool(cut))
    signs = mark.sign * max(1, _width(line[start:end]))
    style = "mark" if mark.sign == "^" else "note"
    return space + paint(style, f"{signs} {visible(mark.message)}".rstrip())
