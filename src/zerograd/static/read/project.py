"""The project's own modules: what each defines, and where on disk an imported name lives.

Files are read and parsed at most once per process, and never executed or imported.
"""

from __future__ import annotations

import ast
import contextlib
import os
import time
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from functools import cached_property, lru_cache
from typing import TYPE_CHECKING, TypeGuard

from zerograd.static.read import file_index
from zerograd.static.read.budget import BYTES, Work
from zerograd.static.read.file_index import Facts, Function
from zerograd.static.read.load import from_bytes, read_bytes
from zerograd.static.read.prefilter import speaks
from zerograd.static.read.source import Source, Unreadable, parse
from zerograd.static.read.vocabulary import RIVALS

if TYPE_CHECKING:
    from zerograd.static.interp.environment import Frame
    from zerograd.static.read.values import Fn, Klass

LARGEST_IMPORT = 600_000
"""Bytes of an imported module that are still worth following."""

SMALL = 20_000
MOST_RECENT = 1_000_000
"""Characters of modules that are kept parsed; their trees take a hundred times as much."""
MOST_IMPORTS = 40
"""Other modules that are followed for one file."""


AttributeTable = dict[str, list[tuple[Function | None, ast.expr, int | None]]]
"""By attribute: the assigning method (None: the class body), the value, the index in a tuple."""


@dataclass(eq=False)
class Module:
    """One parsed file and its index."""

    path: str
    tree: ast.Module
    imports: dict[str, str] = field(default_factory=dict)
    functions: dict[str, Function] = field(default_factory=dict)
    classes: dict[str, ast.ClassDef] = field(default_factory=dict)
    globals: dict[str, list[ast.expr]] = field(default_factory=dict)
    methods: dict[str, frozenset[str]] = field(default_factory=dict)
    """What is called on each receiver, by the receiver's text."""
    reached: dict[tuple[ast.AST, str], bool] = field(default_factory=dict)
    stars: list[str] = field(default_factory=list)
    facts: dict[ast.AST, Facts] = field(default_factory=dict)
    top: Facts = field(default_factory=Facts)
    """What the top level does itself."""
    asked: list[ast.AST] = field(default_factory=list)
    attributes: dict[ast.ClassDef, AttributeTable] = field(default_factory=dict)
    by_name: dict[str, list[tuple[ast.ClassDef, Function]]] = field(default_factory=dict)
    own: dict[ast.ClassDef, dict[str, Function]] = field(default_factory=dict)

    @cached_property
    def tested(self) -> set[str]:
        """Names and attributes that a test, a count or a divisor may depend on."""
        return file_index.tested(self.asked, self.facts)

    def methods_named(self, name: str) -> list[tuple[ast.ClassDef, Function]]:
        """The methods of this name in all classes of the module."""
        if not self.by_name:
            for klass in self.classes.values():
                for node in klass.body:
                    if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
                        self.by_name.setdefault(node.name, []).append((klass, node))
        return self.by_name.get(name, [])

    def methods_of(self, klass: ast.ClassDef) -> dict[str, Function]:
        """The methods that a class defines itself, the first of each name."""
        if klass not in self.own:
            defined = (
                n for n in klass.body if isinstance(n, (ast.FunctionDef, ast.AsyncFunctionDef))
            )
            self.own[klass] = {node.name: node for node in reversed(list(defined))}
        return self.own[klass]

    def attributes_of(self, klass: ast.ClassDef) -> AttributeTable:
        """What a class and its methods assign to each attribute."""
        if klass not in self.attributes:
            self.attributes[klass] = _attribute_table(klass, self.facts)
        return self.attributes[klass]

    @property
    def packages(self) -> set[str]:
        """The top-level packages that the file imports from."""
        return {name.split(".")[0] for name in self.imports.values()}

    @property
    def imports_torch(self) -> bool:
        """Whether the file says that it is about torch."""
        return "torch" in self.packages

    @property
    def speaks_torch(self) -> bool:
        """False where the file imports a rival of torch and not torch."""
        return self.imports_torch or not self.packages & RIVALS


class Project:
    """Finds modules for imports; remembers what was read."""

    def __init__(self) -> None:
        self.work = Work()
        self.modules: dict[str, Module | None] = {}
        self.roots: dict[str, list[str]] = {}
        self.read: set[str] = set()
        self.spoken = 0
        self.resolved: dict[tuple[str, str], tuple[Module, str] | None] = {}
        self.frames: list[Frame] = []
        self.bases: dict[tuple[ast.ClassDef, int], list[Klass]] = {}
        self.methods: dict[ast.ClassDef, list[Fn]] = {}
        self.near: dict[Facts, list[Fn]] = {}

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
                        self.work.left -= status.st_size // BYTES
        return self.modules[path]

    def forget(self) -> None:
        """Let go of what frames and their functions hold of each other: nobody looks for cycles."""
        for frame in self.frames:
            frame.env.clear()

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


def index(path: str, tree: ast.Module) -> Module:
    """Reads what a module imports, defines and calls."""
    file = file_index.read(tree)
    methods = {name: frozenset(attrs) for name, attrs in file.methods.items()}
    module = Module(path, tree, file.imports, methods=methods, stars=file.stars)
    module.facts, module.top, module.asked = file.functions, file.top, file.asked
    for node in tree.body:
        _top_level(module, node)
    return module


def _top_level(module: Module, node: ast.stmt) -> None:
    if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
        module.functions[node.name] = node
    elif isinstance(node, ast.ClassDef):
        module.classes[node.name] = node
    elif isinstance(node, ast.Assign):
        for target in node.targets:
            if isinstance(target, ast.Name):
                module.globals.setdefault(target.id, []).append(node.value)
    elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name) and node.value:
        module.globals.setdefault(node.target.id, []).append(node.value)
    elif isinstance(node, (ast.If, ast.Try, ast.With)):
        for inner in ast.iter_child_nodes(node):
            if isinstance(inner, ast.stmt):
                _top_level(module, inner)
            elif isinstance(inner, ast.ExceptHandler):
                for statement in inner.body:
                    _top_level(module, statement)


@lru_cache(maxsize=64)  # each keeps a tree alive
def assigned_names(loop: ast.AST) -> frozenset[str]:
    """Names that a loop assigns; those of its inner functions do no harm."""
    return frozenset(
        node.id
        for node in file_index.nodes(loop)
        if isinstance(node, ast.Name) and not isinstance(node.ctx, ast.Load)
    )


def _attribute_table(klass: ast.ClassDef, known: dict[ast.AST, Facts]) -> AttributeTable:
    table: AttributeTable = {}
    for member in klass.body:
        if isinstance(member, ast.Assign):
            for target in member.targets:
                if isinstance(target, ast.Name):
                    table.setdefault(target.id, []).append((None, member.value, None))
        if isinstance(member, (ast.FunctionDef, ast.AsyncFunctionDef)) and member.args.args:
            me = member.args.args[0].arg
            for node in known[member].assigns:
                for attr, value, index in _stored(node, me):
                    table.setdefault(attr, []).append((member, value, index))
    return table


def _stored(node: ast.AST, me: str) -> Iterator[tuple[str, ast.expr, int | None]]:
    """The attributes of an object that a statement assigns."""
    if isinstance(node, ast.AnnAssign) and node.value is not None:
        pairs: list[tuple[ast.expr, ast.expr]] = [(node.target, node.value)]
    elif isinstance(node, ast.Assign):
        pairs = [(target, node.value) for target in node.targets]
    else:
        return
    for target, value in pairs:
        if not isinstance(target, ast.Tuple):
            if _is_attribute_of(target, me):
                yield target.attr, value, None
            continue
        for index, item in enumerate(target.elts):
            if _is_attribute_of(item, me):
                if isinstance(value, ast.Tuple) and index < len(value.elts):
                    yield item.attr, value.elts[index], None
                else:
                    yield item.attr, value, index


def _is_attribute_of(node: ast.expr, me: str) -> TypeGuard[ast.Attribute]:
    return (
        isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == me
    )
