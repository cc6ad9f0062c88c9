"""Text edits that delete, move, duplicate or replace a statement and keep every other byte.

An edit that would have to rewrite more than the statement is None.
"""

from __future__ import annotations

import ast
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate


@dataclass(frozen=True)
class Edit:
    """Replaces the text between two offsets."""

    start: int
    end: int
    text: str


class Text:
    """A source, its syntax tree, and the offsets of its nodes."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.tree = ast.parse(text)
        self.lines = text.splitlines(keepends=True)
        self.newline = "\r\n" if "\r\n" in text else "\n"
        self._starts = [0, *accumulate(map(len, self.lines))]
        self.block_of: dict[ast.stmt, list[ast.stmt]] = {}
        self.parent_of: dict[ast.AST, ast.AST] = {}
        for node in ast.walk(self.tree):
            for child in ast.iter_child_nodes(node):
                self.parent_of[child] = node
            for block in blocks(node):
                self.block_of.update(dict.fromkeys(block, block))

    def offset(self, line: int, column: int) -> int:
        """The offset of a position in the tree, whose columns count bytes."""
        before = self.lines[line - 1].encode()[:column].decode()
        return self._starts[line - 1] + len(before)

    def start(self, node: ast.stmt | ast.expr) -> int:
        return self.offset(node.lineno, node.col_offset)

    def end(self, node: ast.stmt | ast.expr) -> int:
        assert node.end_lineno is not None
        assert node.end_col_offset is not None
        return self.offset(node.end_lineno, node.end_col_offset)

    def of(self, node: ast.stmt | ast.expr) -> str:
        return self.text[self.start(node) : self.end(node)]

    def indent(self, node: ast.stmt) -> str:
        """The white space before a statement that begins its line."""
        return self.text[self._starts[node.lineno - 1] : self.start(node)]

    def begins_line(self, node: ast.stmt) -> bool:
        return not self.indent(node).strip()

    def ends_line(self, node: ast.stmt) -> bool:
        rest = self.text[self.end(node) : self._starts[node.end_lineno or node.lineno]]
        return not rest.strip() or rest.lstrip().startswith("#")

    def with_edits(self, edits: Sequence[Edit]) -> str | None:
        """The text after these edits, which must not overlap."""
        text = self.text
        for edit in sorted(edits, key=lambda edit: (edit.start, edit.end), reverse=True):
            text = text[: edit.start] + edit.text + text[edit.end :]
        try:
            ast.parse(text)
        except SyntaxError:
            return None
        return text

    # The edits

    def delete(self, node: ast.stmt) -> Edit:
        """Delete a statement: whole lines if possible, and `pass` if the block becomes empty."""
        own_lines = self.begins_line(node) and self.ends_line(node)
        if own_lines and len(self.block_of[node]) > 1:
            assert node.end_lineno is not None
            return Edit(self._starts[node.lineno - 1], self._starts[node.end_lineno], "")
        return Edit(self.start(node), self.end(node), "pass")

    def replace(self, node: ast.stmt | ast.expr, text: str) -> Edit:
        return Edit(self.start(node), self.end(node), text)

    def before(self, node: ast.stmt, text: str) -> Edit:
        """Put a statement before another one; `text` has no indentation, as `taken` returns it."""
        if self.begins_line(node):
            indent = self.indent(node)
            line = self._starts[node.lineno - 1]
            return Edit(line, line, self._indented(text, indent) + self.newline)
        return Edit(self.start(node), self.start(node), f"{text}; ")

    def after(self, node: ast.stmt, text: str) -> Edit:
        if self.begins_line(node) and self.ends_line(node):
            assert node.end_lineno is not None
            line = self._starts[node.end_lineno]
            new = self._indented(text, self.indent(node))
            if not self.text[:line].endswith("\n"):
                return Edit(line, line, self.newline + new)
            return Edit(line, line, new + self.newline)
        return Edit(self.end(node), self.end(node), f"; {text}")

    def taken(self, node: ast.stmt) -> str:
        """The text of a statement without its indentation."""
        indent = self.indent(node) if self.begins_line(node) else ""
        first, *rest = self.of(node).split(self.newline)
        return self.newline.join([first, *(line.removeprefix(indent) for line in rest)])

    def deeper(self, text: str) -> str:
        """A statement indented by one more level."""
        return self._indented(text, "\t" if "\n\t" in self.text else "    ")

    def _indented(self, text: str, indent: str) -> str:
        lines = text.split(self.newline)
        return self.newline.join(indent + line if line.strip() else line for line in lines)


def blocks(node: ast.AST) -> list[list[ast.stmt]]:
    """The lists of statements in a node."""
    fields = (getattr(node, name, None) for name in ("body", "orelse", "finalbody"))
    return [field for field in fields if isinstance(field, list) and field]
