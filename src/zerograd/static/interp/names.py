"""What a name holds: in the frames, in its module, in the modules that it is imported from."""

from __future__ import annotations

import ast
import builtins

from zerograd.static.interp.environment import Environment
from zerograd.static.interp.evaluator import Evaluator
from zerograd.static.read import vocabulary
from zerograd.static.read.keys import local
from zerograd.static.read.module import Module
from zerograd.static.read.project import Project
from zerograd.static.read.syntax_tree import text_of
from zerograd.static.read.values import (
    Fn,
    Frame,
    Klass,
    KnownDict,
    Lit,
    Many,
    Origin,
    Params,
    Thing,
    Value,
    called,
    join,
)

BUILTINS = frozenset(dir(builtins))
"""What is there without an import."""
_FARTHEST = 4
"""Imports that are followed from one module to the next."""


class Names:
    """Looks names up."""

    def __init__(self, project: Project, env: Environment, evaluator: Evaluator) -> None:
        self.project = project
        self.env = env
        self.evaluator = evaluator
        self.evaluating: set[tuple[str, str]] = set()

    def name(self, node: ast.Name) -> Value:
        """What a name holds where the interpreter is."""
        held = self.env.held(node.id)
        return held if held is not None else self.of_module(self.env.frame.module, node.id)

    def of_module(self, module: Module, name: str, depth: int = 0) -> Value:
        """What a name means in a module."""
        top = self.env.top
        if module is top.module and name in top.env:
            return top.env[name]
        if name in module.functions:
            return Fn(module.functions[name], module, name)
        if name in module.classes:
            return Klass(module.classes[name], module, name)
        if name in module.imports:
            return self.imported(module, module.imports[name], depth)
        if name in module.globals:
            return self.variable_of(module, name)
        starred = self._starred(module, name, depth)
        if starred is not None:
            return starred
        if name in BUILTINS:
            return Origin(name)
        return Origin(vocabulary.USUAL[name]) if name in vocabulary.USUAL else Thing(local(name))

    def is_misspelt(self, node: ast.expr) -> bool:
        """Whether what is stepped is a name that has no value anywhere."""
        return isinstance(node, ast.Name) and self.env.frame.module.is_misspelt(node.id)

    def imported(self, module: Module, dotted: str, depth: int = 0) -> Value:
        """What an import gives."""
        found = self.project.resolve(module, dotted) if depth < _FARTHEST else None
        if found is None:
            return Origin(dotted.lstrip("."))
        inner, rest = found
        if not rest:
            return Origin(path=inner.path)
        head, _, tail = rest.partition(".")
        known = head in inner.functions or head in inner.classes or head in inner.imports
        if not tail and (known or head in inner.globals):
            return self.of_module(inner, head, depth + 1)
        starred = None if tail else self._starred(inner, head, depth + 1)
        return Origin(dotted.lstrip(".")) if starred is None else starred

    def _starred(self, module: Module, name: str, depth: int) -> Value | None:
        """The function or class of this name that `from module import *` brings."""
        for star in module.stars if depth < _FARTHEST else ():
            found = self.project.resolve(module, star)
            if found is not None and not found[1]:
                inner = found[0]
                if name in inner.functions or name in inner.classes:
                    return self.of_module(inner, name, depth + 1)
        return None

    def class_of(self, module: Module, node: ast.expr, *, anyway: bool = False) -> Klass | None:
        """The class of the project that an annotation names, or that an expression makes an object of.

        `anyway` reads its file even if nothing in it touches gradients.
        """
        if isinstance(node, ast.Call):
            node = node.func
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            name = node.value
        elif isinstance(node, (ast.Name, ast.Attribute)):
            name = text_of(node)
        else:
            return None
        first, _, rest = name.partition(".")
        if not (first in module.classes or first in module.imports):
            return None
        if anyway and first in module.imports:
            self._open(module, module.imports[first])
        value = self.of_module(module, first)
        for attr in rest.split(".") if rest else ():
            if not isinstance(value, Origin):
                return None
            value = self.attribute(value, attr)
        return value if isinstance(value, Klass) else None

    def _open(self, module: Module, dotted: str, depth: int = 0) -> None:
        """Reads the file of a class, and the files that only import it from there."""
        self.project.open(module, dotted)
        found = self.project.resolve(module, dotted)
        if found is None or depth >= _FARTHEST:
            return
        inner, name = found
        if name in inner.imports:
            self._open(inner, inner.imports[name], depth + 1)
        elif name and name not in inner.classes:
            for star in inner.stars:
                self._open(inner, star, depth + 1)

    def open(self, module: Module, name: str) -> bool:
        """Reads the file of an imported name, even if nothing in it touches gradients; False if that is not possible."""
        self._open(module, module.imports[name])
        found = self._home(module, name)
        return found is not None and bool(found.tree.body)

    def open_stars(self, module: Module) -> None:
        """Reads the files that a module imports everything from, even if nothing in them touches gradients."""
        for star in module.stars:
            self.project.open(module, star)

    def is_closed(self, module: Module, name: str) -> bool:
        """Whether an imported name is from a file of the project that was not read."""
        found = self._home(module, name)
        return found is not None and not found.tree.body

    def _home(self, module: Module, name: str) -> Module | None:
        """The file of the project that an imported name is defined in."""
        for _ in range(_FARTHEST):
            found = self.project.resolve(module, module.imports[name])
            if found is None or found[1] not in found[0].imports:
                return found[0] if found is not None else None
            module, name = found
        return None

    def variable_of(self, module: Module, name: str) -> Value:
        """What a variable of a module holds, as seen from a function."""
        mark = (module.path, name)
        if mark in self.evaluating:
            return Thing(local(name))
        self.evaluating.add(mark)
        frame = Frame(module)
        try:
            values = [self.evaluator.peek_in(frame, node) for node in module.globals[name][-3:]]
        finally:
            self.evaluating.discard(mark)
        value = join(values)
        if isinstance(value, (Thing, Many, KnownDict, Params, Klass, Fn, Origin)):
            return called(value, local(name))
        if isinstance(value, Lit) and len(values) == 1:
            return value
        return Thing(local(name))

    def attribute(self, origin: Origin, attr: str) -> Value:
        """A name inside a module: of the project, of its packages, or of something outside."""
        if origin.path is None:
            return Origin(f"{origin.name}.{attr}")
        inner = self.project.load(origin.path)
        if inner is None:
            return Origin(attr)
        known = (inner.functions, inner.classes, inner.imports, inner.globals)
        if not any(attr in names_of for names_of in known):
            found = self.project.resolve(inner, f".{attr}")
            if found is not None and not found[1]:
                return Origin(path=found[0].path)
        return self.of_module(inner, attr, 1)
