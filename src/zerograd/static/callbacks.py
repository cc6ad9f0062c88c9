"""Callbacks: the code names only the method that it calls, so which function runs cannot be seen.

`for callback in self.callbacks: callback.after_step(self)` clears if the project has an `after_step` that does.
`callback(self)` clears if the project hands on a function that does. `self.before_batch()`, where the class
itself does nothing in that method, clears if a subclass clears in it. If something goes wrong in each iteration
of a loop, what is called outside the loop does not matter.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator

from zerograd.core.events import Site
from zerograd.core.late_pattern import pattern
from zerograd.static.frameworks.table import CALLED
from zerograd.static.read.module import Module
from zerograd.static.read.syntax_tree import LOOPS, called_name, calls_in, nodes, text_of
from zerograd.static.read.values import Thing
from zerograd.static.roots import Root

FARTHEST = 3
"""Calls that are followed by name to the call of a callback."""


def hook_names(root: Root, loop: ast.AST | None = None) -> set[str]:
    """The methods of its own object that a root calls, anywhere or in a loop, and that only subclasses define."""
    fn = root.fn
    if fn is None or fn.klass is None or not isinstance(fn.owner, Thing):
        return set()
    if fn.owner.klass is not None and fn.owner.klass.node is not fn.klass.node:
        return set()  # the method is read for a subclass
    methods: dict[str, ast.AST] = {}
    for base in reversed(root.interpreter.classes.lineage(fn.klass)):
        methods |= base.module.methods_of(base.node)
    called = {
        name
        for function in _read(root, loop or fn.node)
        for call in calls_in(function)
        for owner, _, name in [text_of(call.func).rpartition(".")]
        if owner == "self"
    }
    return {name for name in called & methods.keys() if _is_left_open(methods[name])}


def _is_left_open(method: ast.AST) -> bool:
    """Whether a method does nothing, or raises: it is there for subclasses."""
    return all(
        isinstance(line, (ast.Pass, ast.Raise))
        or (isinstance(line, ast.Expr) and isinstance(line.value, ast.Constant))
        or (isinstance(line, ast.Return) and line.value is None)
        for line in getattr(method, "body", ())
    )


def loop_at(site: Site, module: Module) -> ast.AST | None:
    """The loop that is written at a place in a file."""
    if site.path != module.path or site.cell is not None:
        return None
    loops = (node for node in nodes(module.tree) if isinstance(node, LOOPS))
    return next((node for node in loops if node.lineno == site.line), None)


def _read(root: Root, node: ast.AST) -> set[ast.AST]:
    """A root or a loop of it, and the functions that are followed from there."""
    inlined = root.interpreter.nesting.inlined
    if not isinstance(node, LOOPS):
        return inlined | {node}
    # Operators call methods without their names.
    read = {one for one in inlined if getattr(one, "name", "__").startswith("__")}
    todo: set[ast.AST] = {node} | read
    while todo:
        read |= todo
        named = set().union(*map(_mentioned, todo))
        todo = {one for one in inlined - read if getattr(one, "name", "") in named}
    return read


def _mentioned(node: ast.AST) -> set[str]:
    """The names of variables and attributes in some code."""
    found = set()
    for part in nodes(node):
        if isinstance(part, ast.Name):
            found.add(part.id)
        elif isinstance(part, ast.Attribute):
            found.add(part.attr)
    return found


def callback_names(root: Root, module: Module, loop: ast.AST | None = None) -> set[str]:
    """The names by which a root, or a loop of it, and what it calls in its file, may call callbacks."""
    read = _read(root, loop or (root.fn.node if root.fn is not None else module.tree))
    found: set[str] = set()
    seen: set[ast.AST] = set()
    for _ in range(FARTHEST):
        seen |= read
        found |= set().union(*map(_called_back, read))
        called = set().union(*map(_called, read))
        read = set(_functions(called, module)) - seen
    return found


_CALLBACK = pattern(
    r"^(?!register)((on|before|after|pre|post)(_|[A-Z])"
    r"|\w*(begin|start|end|hook|callback|step|batch|iter|iteration|epoch)s?$)"
)
"""The names that methods of callbacks usually have."""


def _called_back(function: ast.AST) -> set[str]:
    """Methods that a function calls in a loop over objects, and names that it hands to its own object.

    `__call__` means objects that are called themselves, for what they do: a layer is called for its result.
    """
    parts = list(nodes(function))
    each = {
        name.id
        for part in parts
        if isinstance(part, (ast.For, ast.AsyncFor, ast.comprehension))
        for name in ast.walk(part.target)
        if isinstance(name, ast.Name) and isinstance(name.ctx, ast.Store)
    }
    alone = {id(part.value) for part in parts if isinstance(part, ast.Expr)}
    found = set()
    for call in parts:
        if isinstance(call, ast.Call):
            owner, _, name = text_of(call.func).rpartition(".")
            if not owner and name in each:
                if id(call) in alone:
                    found.add(CALLED)
            elif owner in each:
                found.add(name)
            elif (owner or name).split(".")[0] == "self":
                texts = (one.value for one in call.args if isinstance(one, ast.Constant))
                found.update(text for text in texts if isinstance(text, str))
    return {name for name in found if name == CALLED or _CALLBACK.search(name)}


def _called(function: ast.AST) -> set[str]:
    return {CALLED, *map(called_name, calls_in(function))}


def _functions(names: Iterable[str], module: Module) -> Iterator[ast.AST]:
    """The functions and methods of a file that have one of these names."""
    for name in names:
        if name in module.functions:
            yield module.functions[name]
        for klass in module.classes.values():
            method = module.methods_of(klass).get(name)
            if method is not None:
                yield method
