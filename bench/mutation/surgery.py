"""Text edits on statements: deleted, moved, doubled, replaced; every other byte stays.

What cannot be done without rewriting more than the statement is not done: None.
"""

from __future__ import annotations

import ast
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate


@dataclass(frozen=True)
class Edit:
    """The text between two offsets becomes another."""

    start: int
    end: int
    text: str


class Text:
    """A source, its tree, and where its nodes stand in it."""

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
        """Where a place of the tree (its columns count bytes) is in the text."""
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
        """The text after some edits that do not overlap."""
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
        """Whole lines where they are its own; `pass` where something has to stand there."""
        own_lines = self.begins_line(node) and self.ends_line(node)
        if own_lines and len(self.block_of[node]) > 1:
            assert node.end_lineno is not None
            return Edit(self._starts[node.lineno - 1], self._starts[node.end_lineno], "")
        return Edit(self.start(node), self.end(node), "pass")

    def replace(self, node: ast.stmt | ast.expr, text: str) -> Edit:
        return Edit(self.start(node), self.end(node), text)

    def before(self, node: ast.stmt, text: str) -> Edit:
        """A statement put before another one; `text` is indented as `taken` gives it."""
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
        """A statement's text with its own indentation taken away from all its lines."""
        indent = self.indent(node) if self.begins_line(node) else ""
        first, *rest = self.of(node).split(self.newline)
        return self.newline.join([first, *(line.removeprefix(indent) for line in rest)])

    def deeper(self, text: str) -> str:
        """A statement one level in."""
        return self._indented(text, "\t" if "\n\t" in self.text else "    ")

    def _indented(self, text: str, indent: str) -> str:
        lines = text.split(self.newline)
        return self.newline.join(indent + line if line.strip() else line for line in lines)


def blocks(node: ast.AST) -> list[list[ast.stmt]]:
    """The lists of statements that a node holds."""
    fields = (getattr(node, name, None) for name in ("body", "orelse", "finalbody"))
    return [field for field in fields if isinstance(field, list) and field]
