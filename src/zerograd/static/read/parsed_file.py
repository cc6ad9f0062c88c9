"""A file that is parsed again and again while somebody types: only what has changed is parsed and indexed.

The text is cut between statements of the top level. Pieces that are as they were keep their nodes, with other line
numbers if lines above have come or gone. A change that cannot be parsed by itself is parsed with the whole text.
"""

from __future__ import annotations

import ast
from typing import Any, NamedTuple

from zerograd.static.read import file_index
from zerograd.static.read.file_index import FileFacts, StatementFacts
from zerograd.static.read.source import OLD_ASYNC, Source, Unreadable, parse, parse_text

_DEFINITIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)


class _Piece(NamedTuple):
    """Some statements of the top level, and the lines up to the next ones."""

    text: str
    body: list[ast.stmt]
    part: StatementFacts
    places: list[dict[str, Any]]
    """The fields of all its nodes that have lines, once they were asked for."""

    @property
    def lines(self) -> int:
        return self.text.count("\n")


class ParsedFile:
    """The pieces of the text that was parsed last."""

    def __init__(self) -> None:
        self._pieces: list[_Piece] = []

    def read(self, source: Source) -> tuple[ast.Module, FileFacts]:
        """The tree of a source and its facts; `Unreadable` if it has none. Trees of earlier texts change."""
        # If something interrupts this, nothing is known.
        before, self._pieces = self._pieces, []
        pieces = _changed(before, source.text) if before else None
        if pieces is None:
            try:
                body = parse(source).body
            except Unreadable:
                # Most texts are broken while somebody types; the next one may be like the last that was not.
                self._pieces = before
                raise
            pieces = _cut(body, source.text, 1)
        if not OLD_ASYNC.search(source.text):
            self._pieces = pieces
        tree = ast.Module([node for piece in pieces for node in piece.body], [])
        return tree, file_index.joined(tree, [piece.part for piece in pieces])

    def tidy(self) -> None:
        """Prepare for lines that come or go, while no client waits."""
        for piece in self._pieces:
            if not piece.places:
                _find_places(piece)


def _changed(before: list[_Piece], text: str) -> list[_Piece] | None:
    """The pieces of a text that shares some with another one; None if it has to be parsed as a whole."""
    head, at = 0, 0
    while head < len(before) and text.startswith(before[head].text, at):
        at += len(before[head].text)
        head += 1
    # A statement may go on behind the end of a text, and in the line after a backslash.
    while head and (not before[head - 1].text.endswith("\n") or _goes_on(before[head - 1].text)):
        head -= 1
        at -= len(before[head].text)
    tail, end = len(before), len(text)
    while tail > head and text.endswith(before[tail - 1].text, at, end):
        tail -= 1
        end -= len(before[tail].text)
    fresh = text[at:end]
    if tail < len(before) and fresh and (not fresh.endswith("\n") or _goes_on(fresh)):
        return None
    try:
        # With as many empty lines before it, each node has its line.
        first = sum(piece.lines for piece in before[:head])
        body = parse_text("\n" * first + fresh).body
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None
    made = _cut(body, fresh, first + 1)
    if not made and fresh:
        if not head:
            return None
        # Only comments and empty lines: they belong to the statements above.
        last = before[head - 1]
        made, head = [last._replace(text=last.text + fresh)], head - 1
    by = sum(piece.lines for piece in made) - sum(piece.lines for piece in before[head:tail])
    if by:
        for piece in before[tail:]:
            _move(piece, by)
            for facts in piece.part.functions:
                vars(facts).pop("locals", None)  # they have lines
    return [*before[:head], *made, *before[tail:]]


def _goes_on(text: str) -> bool:
    return text.endswith("\\\n")


def _cut(body: list[ast.stmt], text: str, first: int) -> list[_Piece]:
    """The pieces of a text whose first line has this number: definitions, and what is between them."""
    groups: list[list[ast.stmt]] = []
    for node in body:
        apart = isinstance(node, _DEFINITIONS) or not groups
        if not apart:
            apart = isinstance(groups[-1][-1], _DEFINITIONS)
        if apart and (not groups or _start(node) > (groups[-1][-1].end_lineno or 0)):
            groups.append([node])
        else:
            groups[-1].append(node)
    lines = _lines(text)
    starts = [first, *(_start(group[0]) for group in groups[1:]), first + len(lines)]
    return [
        _Piece("".join(lines[begin - first : end - first]), group, file_index.part(group), [])
        for group, begin, end in zip(groups, starts, starts[1:], strict=False)
    ]


def _lines(text: str) -> list[str]:
    """The lines as `ast` counts them, with their ends."""
    lines = [f"{line}\n" for line in text.split("\n")]
    lines[-1] = lines[-1][:-1]
    return lines if lines[-1] else lines[:-1]


def _start(node: ast.stmt) -> int:
    decorators: list[ast.expr] = getattr(node, "decorator_list", [])
    return min([node.lineno, *(one.lineno for one in decorators)])


def _move(piece: _Piece, by: int) -> None:
    """Add to all line numbers of a piece."""
    for fields in piece.places or _find_places(piece):
        fields["lineno"] += by
        fields["end_lineno"] += by


def _find_places(piece: _Piece) -> list[dict[str, Any]]:
    """Remember the fields of all nodes that have line numbers."""
    todo: list[ast.AST] = list(piece.body)
    while todo:
        fields = vars(todo.pop())
        if "lineno" in fields:
            piece.places.append(fields)
        for value in fields.values():
            if value.__class__ is list:
                todo += [one for one in value if isinstance(one, ast.AST)]
            elif isinstance(value, ast.AST):
                todo.append(value)
    return piece.places
