"""The project's own modules: where on disk an imported name is defined.

Files are read and parsed at most once per process, and never executed or imported.
"""

from __future__ import annotations

import ast
import contextlib
import os
from functools import cached_property

from zerograd.core.records import dataclass, field, replace
from zerograd.static.read.budget import BYTES, Budget
from zerograd.static.read.load import from_bytes, read_bytes
from zerograd.static.read.locate import OUTSIDE, locate
from zerograd.static.read.module import Module, index
from zerograd.static.read.outline import Outlines, outlined
from zerograd.static.read.parsed_file import ParsedFile
from zerograd.static.read.prefilter import speaks
from zerograd.static.read.recent import EACH, Recent
from zerograd.static.read.source import Source, Unreadable, parse
from zerograd.static.read.syntax_tree import first_name

LARGEST_IMPORT = 600_000
"""Bytes of an imported module that are still worth following."""

SMALL = 20_000
MOST_RECENT = 3_000_000
"""Characters of modules that are kept parsed. With a third of it, a project whose files import one large package
takes 40 % more processor time, because the package is parsed three times, and 43 MB less memory (117 against 160).
"""
MOST_SILENT = 20_000
"""How many files without gradients are remembered."""
MOST_IMPORTS = 40
"""Other modules that are followed for one file."""


@dataclass(eq=False)
class Project:
    """Finds modules for imports; remembers what was read."""

    budget: Budget = field(default_factory=Budget)
    modules: dict[str, Module | None] = field(default_factory=dict)
    read: set[str] = field(default_factory=set)
    """The paths of the files and folders that were looked at."""
    spoken: int = 0
    """How many modules were followed."""
    resolved: dict[tuple[str, str], tuple[Module, str] | None] = field(default_factory=dict)
    _checked: tuple[str, str] = ("", "")
    """The path and the text of the module that is checked."""
    leading: frozenset[bytes] | None = None
    """The names of functions that lead to a step, after the first request."""

    def add(self, source: Source, parsed: ParsedFile | None = None) -> Module:
        """The module that is checked; `Unreadable` if it does not parse. `parsed` has its earlier texts."""
        path = os.path.abspath(source.path)
        module = replace(_indexed(path, source, parsed), path=source.path)
        self.modules[path] = module
        self._checked = (source.path, source.text)
        return module

    @property
    def is_full(self) -> bool:
        """Whether no more modules are followed."""
        return self.spoken >= MOST_IMPORTS

    def load(self, path: str) -> Module | None:
        """The module in this file; None if it cannot be used."""
        path = os.path.abspath(path)
        if path not in self.modules and self.is_full:
            return None
        self.read.add(path)
        if path not in self.modules:
            self.modules[path] = None
            with contextlib.suppress(OSError, Unreadable, RecursionError, MemoryError):
                status = os.stat(path)
                if status.st_size <= LARGEST_IMPORT:
                    stamp = (path, status.st_mtime_ns, status.st_size)
                    module = self.modules[path] = self._imported(path, stamp)
                    if module.tree.body:
                        self.spoken += 1
                        self.budget.file -= status.st_size // BYTES
        return self.modules[path]

    def resolve(self, module: Module, dotted: str) -> tuple[Module, str] | None:
        """Where a dotted name lives: the project's module and the rest of the name."""
        if first_name(dotted) in OUTSIDE:
            return None
        key = (module.path, dotted)
        if key not in self.resolved:
            path, rest = locate(module.path, dotted) or (None, "")
            inner = self.load(path) if path is not None else None
            self.resolved[key] = (inner, rest) if inner is not None else None
        return self.resolved[key]

    def open(self, module: Module, dotted: str) -> bool:
        """Reads the module that a dotted name lives in, though nothing in it may touch gradients.

        False if it is not of the project, or cannot be read.
        """
        found = self.resolve(module, dotted)
        opened = self.opened(found[0].path) if found is not None else None
        if found is not None and opened is not None and opened is not found[0]:
            self.resolved = {
                key: (opened, one[1]) if one is not None and one[0] is found[0] else one
                for key, one in self.resolved.items()
            }
        return opened is not None and bool(opened.tree.body)

    def opened(self, path: str) -> Module | None:
        """The module in this file, though nothing in it may touch gradients; None if it cannot be used."""
        path = os.path.abspath(path)
        module = self.load(path)
        if module is not None and not module.tree.body and not self.is_full:
            with contextlib.suppress(OSError, Unreadable, RecursionError, MemoryError):
                module = self.modules[path] = _indexed(path, from_bytes(read_bytes(path), path))
                self.spoken += 1
                self.budget.file -= os.path.getsize(path) // BYTES
        return module

    def _imported(self, path: str, stamp: tuple[str, int, int]) -> Module:
        """The module in a file; an empty one if nothing in the file touches gradients or leads to a step."""
        if not _SILENT.get(stamp):
            data = read_bytes(path)
            small_package = path.endswith("__init__.py") and len(data) < SMALL
            if small_package or speaks(data):
                return _indexed(path, from_bytes(data, path))
            _SILENT.put(stamp, True)
        if self._outlines.is_led(path, self.leading_names()):
            return _indexed(path, from_bytes(read_bytes(path), path))
        return Module(path, ast.Module([], []))

    @cached_property
    def _outlines(self) -> Outlines:
        return Outlines()

    def leading_names(self) -> frozenset[bytes]:
        """The names of functions that lead to a step, in the checked file and those that it imports."""
        if self.leading is None:
            path, text = self._checked
            outline = outlined(text.encode("utf-8", "replace"), path)
            self.leading = self._outlines.all_leading(outline)
        return self.leading


_SILENT: Recent[tuple[str, int, int], bool] = Recent(MOST_SILENT)
"""Files, as they were then, in which nothing touches gradients: most of what is imported."""


def _indexed(path: str, source: Source, parsed: ParsedFile | None = None) -> Module:
    """The module in a source, parsed once for all files of a project that import it."""
    stamp = (path, source.text)
    module = _RECENT.get(stamp)
    if module is None:
        if parsed is not None:
            # The trees of its earlier texts are going to change.
            forget_modules(path)
            module = index(path, *parsed.read(source))
        else:
            module = index(path, parse(source))
        _RECENT.put(stamp, module, len(source.text) + EACH)
    return module


_RECENT: Recent[tuple[str, str], Module] = Recent(MOST_RECENT)
"""Modules that were read lately."""


def forget_modules(path: str | None = None) -> None:
    """Forget the modules that were read lately, or only the earlier texts of one.

    A check that did not come to its end may have left one half indexed.
    """
    _RECENT.drop(lambda key: path in (None, key[0]))
