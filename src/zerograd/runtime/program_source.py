"""The source of the running program: the syntax around a call, where the file still has that call."""

from __future__ import annotations

import ast
import gc
import linecache
import sys
import threading
from collections.abc import Iterator
from typing import ClassVar, NamedTuple

from zerograd.core.events import Site
from zerograd.core.interruptions import Tolerating
from zerograd.runtime.call_sites import OURS, is_installed

MOST_FILES = 64
_PARSING = threading.RLock()
"""Reentrant, because garbage may be collected just before the owner parses."""


class _File(NamedTuple):
    """The text of a file, its syntax, and what was asked about it."""

    text: str
    tree: ast.Module | None
    paths: dict[Site, list[ast.AST] | None]


class ProgramSource:
    """The files of the program. Each text is parsed once, however many watches there are."""

    _files: ClassVar[dict[str, _File]] = {}

    def around(self, file: str, site: Site) -> list[ast.AST] | None:
        """The nodes from the module to a call; None if the file cannot be read or has another text."""
        known = self._file(file)
        if known.tree is None:
            return None
        if site not in known.paths:
            path: list[ast.AST] = [known.tree]
            while inner := next(
                (n for n in ast.iter_child_nodes(path[-1]) if _spans(n, site)), None
            ):
                path.append(inner)
            known.paths[site] = None if len(path) == 1 or not _is_of(path, site) else path
        return known.paths[site]

    def _file(self, file: str) -> _File:
        text = "".join(linecache.getlines(file))
        known = self._files.get(file)
        if known is None or known.text != text:
            if len(self._files) >= MOST_FILES:
                self._files.clear()
            known = self._files[file] = _File(text, _parsed(text), {})
        return known


def program_files() -> Iterator[str]:
    """The files of the program: of its modules, without those of libraries, and the cells of a notebook."""
    modules = [getattr(module, "__file__", None) for module in list(sys.modules.values())]
    for file in {*modules, *linecache.cache}:
        if isinstance(file, str) and not is_installed(file) and not file.startswith(OURS):
            yield file


def _parsed(text: str) -> ast.Module | None:
    """The syntax tree of a text; None if it does not parse.

    Two texts that are parsed at once may end in a SystemError: CPython counts depth for both together. So
    threads wait for each other, and no garbage is collected: an optimizer that is freed asks for its name,
    which parses.
    """
    tree = None
    with _PARSING, Tolerating(SyntaxError, ValueError, RecursionError, SystemError):
        collects = gc.isenabled()
        gc.disable()
        try:
            tree = ast.parse(text)
        finally:
            if collects:
                gc.enable()
    return tree


def _spans(node: ast.AST, site: Site) -> bool:
    """Whether a call is inside of a node."""
    if not isinstance(node, (ast.stmt, ast.expr, ast.ExceptHandler)):
        return any(_spans(one, site) for one in ast.iter_child_nodes(node))
    begin, end = (node.lineno, node.col_offset), (node.end_lineno or 0, node.end_col_offset or 0)
    if not site.end_column:  # before Python 3.11 only the line is known
        return isinstance(node, (ast.stmt, ast.ExceptHandler)) and begin[0] <= site.line <= end[0]
    return begin <= (site.line, site.column - 1) < end


def _is_of(path: list[ast.AST], site: Site) -> bool:
    """Whether the file has just this call there: a program may have been made from another text."""
    if not site.end_column:
        return True
    span = (site.line, site.column - 1, site.end_line, site.end_column - 1)
    return any(
        (one.lineno, one.col_offset, one.end_lineno, one.end_col_offset) == span
        for one in path
        if isinstance(one, (ast.stmt, ast.expr))
    )
