"""Optimizers that a class makes and nobody uses: they are stored, and never cleared, stepped or handed on."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import lru_cache

from zerograd.static.frameworks.table import Role
from zerograd.static.frameworks.torch import SCHEDULER
from zerograd.static.read import vocabulary
from zerograd.static.read.file_index import nodes, text_of
from zerograd.static.read.module import Module
from zerograd.static.read.values import Klass

_READS = frozenset({"state_dict", "load_state_dict", "param_groups"})


def unused_optimizers(klass: Klass) -> Iterator[tuple[str, ast.Call]]:
    """The attributes that hold such optimizers, each with the call that makes it."""
    for attr, given in klass.module.attributes_of(klass.node).items():
        made = [value for _, value, _ in given if isinstance(value, ast.Call)]
        # Only a private attribute is safe from other files.
        if attr.startswith("_") and made and all(map(_makes_optimizer, made)):
            if not _is_used(klass.module, attr):
                yield attr, made[0]


def _makes_optimizer(call: ast.Call) -> bool:
    func = call.func
    if isinstance(func, ast.Call) and text_of(func.func) == "getattr" and func.args:
        return text_of(func.args[0]).endswith("optim")
    return vocabulary.role_of_call(text_of(func)) is Role.OPTIMIZER


@lru_cache(maxsize=16)  # asked for each method of a class; each keeps a tree alive
def _is_used(module: Module, attr: str) -> bool:
    """Whether a file does more with an attribute than to store it, look at it or hand it to a scheduler."""
    harmless: set[int] = set()
    for node in nodes(module.tree):
        if isinstance(node, ast.Attribute) and node.attr in _READS:
            harmless.add(id(node.value))
        elif isinstance(node, ast.Call) and SCHEDULER.search(text_of(node.func)):
            harmless.update(id(argument) for argument in node.args)
    return any(
        isinstance(node, ast.Attribute)
        and node.attr == attr
        and isinstance(node.ctx, ast.Load)
        and id(node) not in harmless
        for node in nodes(module.tree)
    ) or any(
        isinstance(node, ast.Constant) and node.value == attr for node in ast.walk(module.tree)
    )
