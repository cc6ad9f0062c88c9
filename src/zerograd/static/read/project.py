"""The project's own modules: where on disk an imported name is defined.

Files are read and parsed at most once per process, and never executed or imported.
"""

from __future__ import annotations

import ast
import contextlib
import os
import time
from dataclasses import replace

from zerograd.static.read.budget import BYTES, Budget
from zerograd.static.read.load import from_bytes, read_bytes
from zerograd.static.read.module import Module, index
from zerograd.static.read.prefilter import speaks
from zerograd.static.read.source import Source, Unreadable, parse

LARGEST_IMPORT = 600_000
"""Bytes of an imported module that are still worth following."""

SMALL = 20_000
MOST_RECENT = 1_000_000
"""Characters of modules that are kept parsed; their trees take a hundred times as much."""
MOST_IMPORTS = 40
"""Other modules that are followed for one file."""


class Project:
    """Finds modules for imports; remembers what was read."""

    def __init__(self) -> None:
        self.budget = Budget()
        self.modules: dict[str, Module | None] = {}
        self.roots: dict[str, list[str]] = {}
        self.read: set[str] = set()
        self.spoken = 0
        self.resolved: dict[tuple[str, str], tuple[Module, str] | None] = {}

    def add(self, source: Source) -> Module:
        """The module that is checked; `Unreadable` if it does not parse."""
        path = os.path.abspath(source.path)
        # What it reaches is found out anew: from elsewhere it was looked for less deeply.
        module = replace(_indexed(path, source), path=source.path, reached={})
        self.modules[path] = module
        return module

    def load(self, path: str) -> Module | None:
        """The module in this file; None if it cannot be used."""
        path = os.path.abspath(path)
        if path not in self.modules and self.spoken >= MOST_IMPORTS:
            return None
        self.read.add(path)
        if path not in self.modules:
            self.modules[path] = None
            with contextlib.suppress(OSError, Unreadable, RecursionError, MemoryError):
                status = os.stat(path)
                if status.st_size <= LARGEST_IMPORT:
                    stamp = (path, status.st_mtime_ns, status.st_size)
                    module = self.modules[path] = _imported(path, stamp)
                    if module.tree.body:
                        self.spoken += 1
                        self.budget.file -= status.st_size // BYTES
        return self.modules[path]

    def resolve(self, module: Module, dotted: str) -> tuple[Module, str] | None:
        """Where a dotted name lives: the project's module and the rest of the name."""
        key = (module.path, dotted)
        if key not in self.resolved:
            self.resolved[key] = self._resolve(module, dotted)
        return self.resolved[key]

    def _resolve(self, module: Module, dotted: str) -> tuple[Module, str] | None:
        if dotted.startswith("."):
            level = len(dotted) - len(dotted.lstrip("."))
            base = os.path.dirname(os.path.abspath(module.path))
            for _ in range(level - 1):
                base = os.path.dirname(base)
            return self._below(base, dotted.lstrip(".").split("."), 0)
        parts = dotted.split(".")
        if parts[0] in _OUTSIDE:
            return None
        for root in self._search_path(module.path):
            names = _listing(root)
            if parts[0] in names or f"{parts[0]}.py" in names:
                found = self._below(root, parts, 1)
                if found is not None:
                    return found
        return None

    def _below(self, base: str, parts: list[str], least: int) -> tuple[Module, str] | None:
        """The longest part of a dotted name that is a file below a folder."""
        parts = [part for part in parts if part]
        for taken in range(len(parts), least - 1, -1):
            stem = os.path.join(base, *parts[:taken])
            candidates = [os.path.join(stem, "__init__.py")]
            if taken:
                candidates.insert(0, stem + ".py")
            for path in candidates:
                if self._exists(path):
                    module = self.load(path)
                    return (module, ".".join(parts[taken:])) if module else None
        return None

    def _exists(self, path: str) -> bool:
        folder, name = os.path.split(path)
        return name in _listing(folder)

    def _search_path(self, path: str) -> list[str]:
        """The file's own directory, then upwards to the project's root, with `src/` beside."""
        here = os.path.dirname(os.path.abspath(path))
        if here not in self.roots:
            roots = []
            folder = here
            for _ in range(8):
                roots.append(folder)
                names = _listing(folder)
                if "src" in names and os.path.isdir(os.path.join(folder, "src")):
                    roots.append(os.path.join(folder, "src"))
                if not names.isdisjoint(_ROOT_MARKS):
                    break
                parent = os.path.dirname(folder)
                if parent == folder:
                    break
                folder = parent
            self.roots[here] = roots
        return self.roots[here]


_ROOT_MARKS = (".git", "pyproject.toml", "setup.py", "setup.cfg")
_OUTSIDE = frozenset(
    {"torch", "numpy", "os", "sys", "math", "time", "random", "json", "argparse", "logging", "typing",
     "collections", "functools", "itertools", "tqdm", "torchvision", "torchaudio", "transformers",
     "accelerate", "lightning", "pytorch_lightning", "datasets", "wandb", "sklearn", "scipy", "pandas",
     "matplotlib", "PIL", "cv2", "einops", "timm", "deepspeed", "apex", "copy", "pathlib", "re"}
)  # fmt: skip
"""Packages that are never part of the project that is read; saves looking for them on disk."""


def _listing(folder: str) -> frozenset[str]:
    """What a folder holds; files of one project ask for the same few folders."""
    now = time.monotonic()
    since, changed, names = _LISTINGS.get(folder, (-FRESH, None, frozenset()))
    if now - since >= FRESH:
        try:
            last = os.stat(folder).st_mtime_ns
            if last != changed:
                changed, names = last, frozenset(os.listdir(folder))
        except OSError:
            changed, names = None, frozenset()
        _LISTINGS[folder] = (now, changed, names)
    return names


_LISTINGS: dict[str, tuple[float, int | None, frozenset[str]]] = {}
FRESH = 2.0
"""Seconds for which a folder is taken to hold what it held."""


def _imported(path: str, stamp: tuple[str, int, int]) -> Module:
    """The module in a file; an empty one where nothing in it touches gradients."""
    if stamp not in _SILENT:
        data = read_bytes(path)
        small_package = path.endswith("__init__.py") and len(data) < SMALL
        if small_package or speaks(data):
            return _indexed(path, from_bytes(data, path))
        _SILENT.add(stamp)
    return Module(path, ast.Module([], []))


_SILENT: set[tuple[str, int, int]] = set()
"""Files, as they were then, in which nothing touches gradients: most of what is imported."""


def _indexed(path: str, source: Source) -> Module:
    """The module in a source, parsed once for all files of a project that import it."""
    stamp = (path, source.text)
    module = _RECENT.pop(stamp, None)
    if module is None:
        module = index(path, parse(source))
        held = sum(len(text) for _, text in (stamp, *_RECENT))
        while _RECENT and held > MOST_RECENT:
            oldest = next(iter(_RECENT))
            held -= len(oldest[1])
            del _RECENT[oldest]
    _RECENT[stamp] = module
    return module


_RECENT: dict[tuple[str, str], Module] = {}
"""Modules that were read lately, the latest last."""
