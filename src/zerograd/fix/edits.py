"""Inserts, moves, deletes and wraps whole statements, as edits of the text.

No code is printed from the tree: comments and layout outside the edits stay byte for byte. An edit
that is impossible this way raises `Refused` with the reason. Lines and columns count from 1.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from zerograd.core.events import Site
from zerograd.core.finding import Edit
from zerograd.core.suppressions import first_line

Function = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda, ast.ClassDef)
_REST = re.compile(r"\s*;?\s*(#.*)?$")
"""What may follow a statement that ends its line."""
_BLOCKS = ("body", "orelse", "finalbody")
_INDENT = "    "


class Refused(Exception):
    """An edit is impossible without changing more than it should; the message says why."""


class Span(NamedTuple):
    """A part of the text; the end is exclusive."""

    line: int
    column: int
    end_line: int
    end_column: int


class EditableCode:
    """The text of a module and its tree: where statements are, and the edits that change them."""

    def __init__(self, text: str, tree: ast.Module, path: str) -> None:
        self.lines = text.split("\n")
        self.tree = tree
        self._path = path
        self._ascii = text.isascii()
        self._parents: dict[ast.AST, ast.AST] = {}
        self._blocks: dict[ast.stmt, list[ast.stmt]] = {}
        todo: list[ast.AST] = [tree]
        while todo:
            node = todo.pop()
            for name in node._fields:
                value = getattr(node, name, None)
                if isinstance(value, list):
                    inside = [one for one in value if isinstance(one, ast.AST)]
                    if name in _BLOCKS:
                        self._blocks.update(dict.fromkeys(value, value))
                elif isinstance(value, ast.AST):
                    inside = [value]
                else:
                    continue
                self._parents.update(dict.fromkeys(inside, node))
                todo += inside

    # Positions

    def span(self, node: ast.AST) -> Span:
        """The span of a node, decorators included."""
        line, end_line = node.lineno, node.end_lineno  # type: ignore[attr-defined]
        first = first_line(node) if isinstance(node, ast.stmt) else line
        column = len(self._indent(first)) if first != line else self._column(node, "col_offset")
        return Span(first, column + 1, end_line, self._column(node, "end_col_offset", "end_") + 1)

    def _column(self, node: ast.AST, name: str, which: str = "") -> int:
        offset: int = getattr(node, name)
        if self._ascii:
            return offset
        line = self.lines[getattr(node, f"{which}lineno") - 1]
        return len(line.encode("utf-8", "surrogatepass")[:offset].decode("utf-8", "ignore"))

    def text(self, node: ast.expr) -> str:
        """The source of an expression on one line; `Refused` if it has several."""
        span = self.span(node)
        if span.line != span.end_line:
            raise Refused("an expression runs over several lines")
        return self.lines[span.line - 1][span.column - 1 : span.end_column - 1]

    def statement(self, site: Site) -> ast.stmt:
        """The innermost statement that a place belongs to."""
        if site.path != self._path:
            raise Refused(f"a line of the finding is in {site.path}")
        best: ast.stmt | None = None
        for node in self._blocks:
            span = self.span(node)
            if (span.line, span.column) <= (site.line, site.column) < span[2:]:
                if best is None or self.span(best)[:2] <= span[:2]:
                    best = node
        if best is None:
            raise Refused("no statement of this file is at this place")
        return best

    def node(self, site: Site) -> ast.AST:
        """The node at exactly this place."""
        wanted = (site.line, site.column, site.end_line, site.end_column)
        for node in ast.walk(self.statement(site)):
            if hasattr(node, "end_lineno") and self.span(node) == wanted:
                if not isinstance(node, ast.Expr):
                    return node
        raise Refused("no expression of this file is at this place")

    def ancestors(self, node: ast.AST) -> Iterator[ast.AST]:
        """The nodes around a node, the innermost first."""
        while node in self._parents:
            node = self._parents[node]
            yield node

    def function(self, node: ast.AST) -> ast.AST:
        """The function, class or module whose body a node belongs to."""
        return next((a for a in self.ancestors(node) if isinstance(a, Function)), self.tree)

    def block(self, statement: ast.stmt) -> list[ast.stmt]:
        """The block that contains a statement."""
        return self._blocks[statement]

    def index(self, statement: ast.stmt) -> int:
        """The index of a statement in its block."""
        return self.block(statement).index(statement)

    def holder(self, statement: ast.stmt) -> ast.AST:
        """The node that a statement's block belongs to: a loop, an `if`, a function, the module."""
        return self._parents[statement]

    def within(self, node: ast.AST, block: list[ast.stmt]) -> ast.stmt | None:
        """The statement of a block that is or contains a node."""
        for one in (node, *self.ancestors(node)):
            if isinstance(one, ast.stmt) and self._blocks.get(one) is block:
                return one
        return None

    def statement_of(self, node: ast.AST) -> ast.stmt:
        """The innermost statement that is or contains a node."""
        for one in (node, *self.ancestors(node)):
            if isinstance(one, ast.stmt):
                return one
        raise Refused("it is not part of a statement")

    def meet(self, *statements: ast.stmt) -> list[ast.stmt]:
        """The innermost block that contains all these statements."""
        for node in (statements[0], *self.ancestors(statements[0])):
            block = self._blocks.get(node) if isinstance(node, ast.stmt) else None
            if block and all(self.within(other, block) is not None for other in statements):
                return block
        raise Refused("the statements have no block in common")

    # Lines

    def _indent(self, line: int) -> str:
        text = self.lines[line - 1]
        return text[: len(text) - len(text.lstrip())]

    def starts_line(self, statement: ast.stmt) -> bool:
        """Whether a statement is the first on its line, and no backslash joins it to the line above."""
        span = self.span(statement)
        before = self.lines[span.line - 1][: span.column - 1]
        joined = span.line > 1 and self.lines[span.line - 2].endswith("\\")
        return not before.strip() and not joined

    def ends_line(self, statement: ast.stmt) -> bool:
        """Whether nothing but a comment follows a statement on its line."""
        span = self.span(statement)
        return _REST.match(self.lines[span.end_line - 1][span.end_column - 1 :]) is not None

    def _comments_above(self, line: int) -> int:
        """The first of the comment lines right above a line, or the line itself."""
        indent = self._indent(line)
        while line > 1:
            above = self.lines[line - 2]
            if not above.startswith(f"{indent}#"):
                break
            line -= 1
        return line

    def _owned_above(self, unit: Sequence[ast.stmt], topic: re.Pattern[str] | None) -> int:
        """The first line of a unit, including the comments that are about it alone."""
        first, last = self._first_and_last(unit)
        top = self._comments_above(first)
        if top == first:
            return first
        after = self.lines[last].strip() if last < len(self.lines) else ""
        alone = not after or after.startswith("#")
        said = "\n".join(self.lines[top - 1 : first - 1])
        return top if alone or (topic is not None and topic.search(said)) else first

    def level(self, statement: ast.stmt) -> str:
        """One level of indentation, as the code around a statement uses it."""
        own = self._indent(self.span(statement).line)
        for above in self.ancestors(statement):
            if isinstance(above, ast.stmt) and self.starts_line(above):
                outer = self._indent(self.span(above).line)
                if own.startswith(outer) and own != outer:
                    return own[len(outer) :]
        for node, block in self._blocks.items():
            holder = self._parents[node]
            if isinstance(holder, ast.stmt) and node is block[0] and self.starts_line(node):
                inner, outer = self._indent(node.lineno), self._indent(holder.lineno)
                if inner.startswith(outer) and inner != outer:
                    return inner[len(outer) :]
        return _INDENT

    # Edits

    def edit(self, span: Span, text: str) -> Edit:
        """Replace a part of the text."""
        return Edit(self._path, *span, text)

    def insert_before(self, statement: ast.stmt, *lines: str) -> Edit:
        """Insert lines above a statement and its comments; on its line if it shares the line."""
        span = self.span(statement)
        if not self.starts_line(statement):
            return self.edit(Span(*span[:2], *span[:2]), f"{_one(lines)}; ")
        indent = self._indent(span.line)
        at = self._comments_above(span.line)
        text = "".join(f"{indent}{line}".rstrip() + "\n" for line in lines)
        return self.edit(Span(at, 1, at, 1), text)

    def insert_after(self, statement: ast.stmt, *lines: str) -> Edit:
        """Insert lines below a statement; on its line if it shares the line."""
        span = self.span(statement)
        if not self._has_own_lines([statement]):
            return self.edit(Span(*span[2:], *span[2:]), f"; {_one(lines)}")
        at = span.end_line
        column = len(self.lines[at - 1]) + 1
        indent = self._indent(span.line)
        text = "".join("\n" + f"{indent}{line}".rstrip() for line in lines)
        return self.edit(Span(at, column, at, column), text)

    def _has_own_lines(self, unit: Sequence[ast.stmt]) -> bool:
        """Whether nothing but comments shares the lines of some statements."""
        return self.starts_line(unit[0]) and self.ends_line(unit[-1])

    def _first_and_last(self, unit: Sequence[ast.stmt]) -> tuple[int, int]:
        """The first and the last line of some statements."""
        return self.span(unit[0]).line, self.span(unit[-1]).end_line

    def delete(self, unit: Sequence[ast.stmt], topic: re.Pattern[str] | None = None) -> Edit:
        """Delete consecutive statements of a block."""
        block = self.block(unit[0])
        if len(unit) == len(block):
            raise Refused("the block would be empty")
        start, end = self.span(unit[0]), self.span(unit[-1])
        if self._has_own_lines(unit):
            return self.edit(Span(self._owned_above(unit, topic), 1, end.end_line + 1, 1), "")
        number = block.index(unit[-1]) + 1
        if number < len(block) and self.span(block[number]).line == end.end_line:
            following = self.span(block[number])
            return self.edit(Span(*start[:2], *following[:2]), "")
        before = self.span(block[block.index(unit[0]) - 1])
        return self.edit(Span(*before[2:], *end[2:]), "")

    def erase(self, statement: ast.stmt) -> Edit:
        """Delete a statement, and keep its comment."""
        span = self.span(statement)
        rest = _REST.match(self.lines[span.end_line - 1], span.end_column - 1)
        if not self.starts_line(statement) or rest is None:
            return self.delete([statement])
        if len(self.block(statement)) == 1:
            raise Refused("the block would be empty")
        if rest[1]:
            return self.edit(Span(*span[:2], span.end_line, rest.start(1) + 1), "")
        return self.edit(Span(span.line, 1, span.end_line + 1, 1), "")

    def taken(
        self, unit: Sequence[ast.stmt], topic: re.Pattern[str] | None = None, more: str = ""
    ) -> list[str]:
        """The lines of some statements without their indentation, each after the prefix `more`."""
        if not self._has_own_lines(unit):
            span = self.span(unit[0])
            block = len(unit) > 1 or isinstance(unit[0], (ast.If, ast.For, ast.With))
            if block or span.line != span.end_line:
                raise Refused("a statement shares its line with others")
            return [more + self.lines[span.line - 1][span.column - 1 : span.end_column - 1]]
        first, last = self._first_and_last(unit)
        indent = self._indent(first)
        fixed = set(self._inside_strings(unit))
        found = []
        for number in range(self._owned_above(unit, topic), last + 1):
            line = self.lines[number - 1]
            if number in fixed:
                raise Refused("a string runs over several lines")
            own = line.removeprefix(indent) if line.startswith(indent) else line.lstrip()
            found.append(more + own if own else "")
        return found

    def _inside_strings(self, unit: Sequence[ast.stmt]) -> Iterator[int]:
        for one in unit:
            for node in ast.walk(one):
                if isinstance(node, (ast.Constant, ast.JoinedStr)):
                    yield from range(node.lineno + 1, (node.end_lineno or 0) + 1)

    def wrap(self, unit: Sequence[ast.stmt], test: str) -> Edit:
        """Wrap statements in an `if`."""
        if not self._has_own_lines(unit):
            raise Refused("a statement shares its line with others")
        first, last = self._first_and_last(unit)
        indent = self._indent(first)
        lines = self.taken(unit, None, self.level(unit[0]))[first - self._owned_above(unit, None) :]
        text = "\n".join(f"{indent}{line}" if line else "" for line in [f"if {test}:", *lines])
        return self.edit(Span(first, 1, last, len(self.lines[last - 1]) + 1), text)

    def unwrap(self, statement: ast.If) -> Edit:
        """Replace an `if` by its statements."""
        first, last = self.span(statement).line, self.span(statement).end_line
        header = self.lines[first - 1 : self.span(statement.body[0]).line - 1]
        own = self.starts_line(statement) and self.starts_line(statement.body[0])
        if not own or not self.ends_line(statement) or statement.orelse:
            raise Refused("a statement shares its line with others")
        if any("#" in line for line in header):
            raise Refused("a comment belongs to the test")
        indent = self._indent(first)
        lines = [f"{indent}{line}".rstrip() for line in self.taken(statement.body)]
        return self.edit(Span(first, 1, last, len(self.lines[last - 1]) + 1), "\n".join(lines))


def _one(lines: Sequence[str]) -> str:
    """The only line, if there is one; `Refused` for more, which need lines of their own."""
    if len(lines) != 1 or lines[0].endswith(":") or "#" in lines[0]:
        raise Refused("the new code needs a line of its own")
    return lines[0]
