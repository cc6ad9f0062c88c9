"""The bytes of a file, and the same file with edits applied.

Only the edited text changes: encoding, byte order mark, line ends and, in a notebook, every byte
outside the sources of the edited cells stay as they were.
"""

from __future__ import annotations

import codecs
import json
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property

from zerograd.core.finding import Edit
from zerograd.fix.edits import EditableCode
from zerograd.static.read.load import declared, decode, from_bytes
from zerograd.static.read.source import Source, parse

_LINE = re.compile(r"[^\r\n]*(?:\r\n|\r|\n|$)")
_SPACE = re.compile(r"[ \t\r\n]*")


class Overlap(Exception):
    """Two edits change the same text."""


@dataclass(frozen=True)
class Document:
    """The bytes of one file and the source they hold."""

    path: str
    data: bytes

    @cached_property
    def source(self) -> Source:
        """The source, or `Unreadable`."""
        return from_bytes(self.data, self.path)

    @cached_property
    def code(self) -> EditableCode:
        """The text and its tree, or `Unreadable`."""
        return EditableCode(self.source.text, parse(self.source), self.path)

    @property
    def text(self) -> str:
        """The decoded text with its original line ends."""
        return decode(self.data, self.path, cookie=not self._notebook)

    @property
    def _notebook(self) -> bool:
        return self.path.endswith(".ipynb")

    def edited(self, edits: Iterable[Edit]) -> Document:
        """The document with all the edits applied at once."""
        text = self.text
        if self._notebook:
            for number in {edit.cell for edit in edits}:
                here = [edit for edit in edits if edit.cell == number]
                text = _edit_cell(text, number or 0, here)
        else:
            text = edit_text(text, list(edits))
        mark, encoding = b"", "utf-8"
        if self.data.startswith(codecs.BOM_UTF8):
            mark = codecs.BOM_UTF8
        elif not self._notebook:
            encoding = declared(self.data) or encoding
        return Document(self.path, mark + text.encode(encoding))


def edit_text(text: str, edits: Sequence[Edit]) -> str:
    """A text with edits applied; new lines get the line ends of the text."""
    lines = [line for line in _LINE.findall(text) if line]
    starts = [0]
    for line in lines:
        starts.append(starts[-1] + len(line))
    ends = re.search(r"\r\n|\r|\n", text)
    newline = ends[0] if ends else "\n"

    def offset(line: int, column: int) -> int:
        return starts[line - 1] + column - 1 if line <= len(lines) else len(text)

    spans = sorted(
        (offset(e.line, e.column), offset(e.end_line, e.end_column), number, e.text)
        for number, e in enumerate(edits)
    )
    parts = []
    at = 0
    for start, end, _, new in spans:
        if start < at:
            raise Overlap("the edits overlap")
        parts += [text[at:start], new.replace("\n", newline)]
        at = end
    return "".join([*parts, text[at:]])


def _edit_cell(text: str, number: int, edits: Sequence[Edit]) -> str:
    """A notebook's JSON with the source of one cell edited, and nothing else touched."""
    start, end = _source_of(text, number)
    value, _ = json.JSONDecoder().raw_decode(text, start)
    before = value if isinstance(value, str) else "".join(value)
    after = edit_text(before, edits)
    whole = isinstance(value, str)
    literal = _literal(after, text) if whole else _list(text, start, value, after)
    return text[:start] + literal + text[end:]


def _literal(value: str, like: str) -> str:
    """A string as JSON, with escaped characters if the file escapes them."""
    escapes = like.isascii() and re.search(r"\\u[0-9a-f]{4}", like) is not None
    return json.dumps(value, ensure_ascii=escapes)


def _list(text: str, start: int, old: list[str], after: str) -> str:
    """The lines of a cell as a JSON list; lines that did not change keep their bytes."""
    spans = list(_items(text, start))
    new = [line for line in re.findall(r"[^\n]*(?:\n|$)", after) if line]
    same = 0
    while same < min(len(old), len(new)) and old[same] == new[same]:
        same += 1
    rest = 0
    while rest < min(len(old), len(new)) - same and old[-1 - rest] == new[-1 - rest]:
        rest += 1
    literals = [text[a:b] for a, b in spans[:same]]
    literals += [_literal(line, text) for line in new[same : len(new) - rest]]
    literals += [text[a:b] for a, b in spans[len(spans) - rest :]]
    opening = text[start : spans[0][0]]
    between = text[spans[0][1] : spans[1][0]] if len(spans) > 1 else f",{opening[1:]}"
    closing = text[spans[-1][1] : _skip(text, start)]
    return opening + between.join(literals) + closing


def _source_of(text: str, number: int) -> tuple[int, int]:
    """The span of a cell's source in a notebook's JSON."""
    top = _members(text, _space(text, 0))
    if "cells" in top:
        cells = list(_items(text, top["cells"][0]))
    else:
        sheets = _items(text, top["worksheets"][0])
        cells = [cell for a, _ in sheets for cell in _items(text, _members(text, a)["cells"][0])]
    members = _members(text, cells[number - 1][0])
    return members["source"] if "source" in members else members["input"]


def _members(text: str, start: int) -> dict[str, tuple[int, int]]:
    """The spans of the values of a JSON object, by key."""
    found = {}
    at = _space(text, start + 1)
    while text[at] != "}":
        key, at = json.JSONDecoder().raw_decode(text, at)
        at = _space(text, _space(text, at) + 1)
        end = _skip(text, at)
        found[key] = (at, end)
        at = _space(text, end)
        at = _space(text, at + 1) if text[at] == "," else at
    return found


def _items(text: str, start: int) -> Iterable[tuple[int, int]]:
    """The spans of the items of a JSON array."""
    at = _space(text, start + 1)
    while text[at] != "]":
        end = _skip(text, at)
        yield at, end
        at = _space(text, end)
        at = _space(text, at + 1) if text[at] == "," else at


def _skip(text: str, start: int) -> int:
    end: int = json.JSONDecoder().raw_decode(text, start)[1]
    return end


def _space(text: str, at: int) -> int:
    match = _SPACE.match(text, at)
    assert match is not None
    return match.end()
