"""The functions of a file by their lines: what a baseline and a diff compare instead of line numbers."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from zerograd.core.events import Site
from zerograd.core.finding import SourceKey, source_key
from zerograd.core.suppressions import first_line
from zerograd.static.check_file import lines_of
from zerograd.static.read.load import read
from zerograd.static.read.source import Unreadable, parse_text

Lines = Sequence[str]


class Function(NamedTuple):
    """A function with its text; without a name, the code outside of all functions."""

    name: str
    text: str


class _Span(NamedTuple):
    name: str
    first: int
    last: int


def enclosing(lines: Lines, line: int) -> Function:
    """The innermost function around a line."""
    spans = list(_spans(lines))
    around = [one for one in spans if one.first <= line <= one.last]
    return (
        _function(max(around, key=lambda one: one.first), lines) if around else _top(spans, lines)
    )


def functions(lines: Lines) -> frozenset[Function]:
    """Every function of a file, and the code outside of them."""
    spans = list(_spans(lines))
    return frozenset((*(_function(one, lines) for one in spans), _top(spans, lines)))


def _function(span: _Span, lines: Lines) -> Function:
    return Function(span.name, "\n".join(lines[span.first - 1 : span.last]))


def _top(spans: list[_Span], lines: Lines) -> Function:
    inside = {number for one in spans for number in range(one.first, one.last + 1)}
    outside = (text for number, text in enumerate(lines, 1) if number not in inside)
    # Blank lines do not count: a new function brings some.
    return Function("", "\n".join(text for text in outside if text.strip()))


def _spans(lines: Lines) -> Iterator[_Span]:
    try:
        tree = parse_text("\n".join(lines))
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return  # a cell with magics, or an old version that is broken
    todo: list[tuple[ast.AST, str]] = [(tree, "")]
    while todo:
        node, name = todo.pop()
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            name = f"{name}.{node.name}" if name else node.name
            if not isinstance(node, ast.ClassDef):
                yield _Span(name, first_line(node), node.end_lineno or node.lineno)
        todo += [(child, name) for child in ast.iter_child_nodes(node)]


class Files:
    """The lines of the files that findings point into, each read once."""

    def __init__(self) -> None:
        self._lines: dict[SourceKey, Lines] = {}
        self._read: set[str] = set()

    def give(self, path: str, lines: dict[SourceKey, list[str]]) -> None:
        """The lines of a file that is not read from disk."""
        self._read.add(path)
        self._lines.update(lines)

    def lines(self, site: Site) -> Lines:
        """The lines of the file, or of the cell, that a site is in."""
        if site.path not in self._read:
            try:
                self.give(site.path, lines_of(read(site.path)))
            except Unreadable:
                self._read.add(site.path)
        return self._lines.get(source_key(site), ())
