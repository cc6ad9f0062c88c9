"""Where other files of the project make objects of a class, and what they hand them.

`Agent(critic, policy)`, in a file that this one does not import, shows the class of `self.critic` in the methods of
the agent, if the argument has no annotation.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import NamedTuple

from zerograd.static.interp.names import Names
from zerograd.static.read import callers
from zerograd.static.read.module import Module
from zerograd.static.read.syntax_tree import (
    Function,
    called_name,
    calls_in,
    nodes,
    parameter_names,
    spans,
)
from zerograd.static.read.values import Klass

MOST_FILES = 4
"""Files that are read for the objects of one class."""

TRAINING = frozenset(
    {"reinforce", "learn", "optimize", "optimize_parameters", "train_step", "training_step", "train_batch",
     "train_on_batch", "train_model", "update_parameters", "update_params", "update_weights"}
)  # fmt: skip
"""Methods with these names run a backward, a step, or both."""


class Given(NamedTuple):
    """What a new object is handed, or the call that makes it."""

    module: Module
    function: Function | None
    """The innermost function around; None at the top level."""
    value: ast.expr
    line: int


class ConstructionSites:
    """Finds what the constructor of a class is handed in other files."""

    def __init__(self, names: Names, known: dict[ast.ClassDef, list[Given]]) -> None:
        self.names = names
        self._sites = known

    def given(self, klass: Klass, method: Function, argument: str) -> list[Given]:
        """What other files hand a constructor as one of its arguments."""
        formal = parameter_names(method)[1:]
        found = []
        for site in self._sites_of(klass):
            value = _argument(site.value, argument, formal.index(argument))
            if value is not None:
                found.append(site._replace(value=value))
        return found

    def classes(self, given: list[Given]) -> list[Klass]:
        """The classes of the project whose objects these values are seen to be, each once."""
        made = (
            self.names.class_of(one.module, value, anyway=True)
            for one in given
            for value in _values(one)
        )
        return list({one.node: one for one in made if one is not None}.values())

    def _sites_of(self, klass: Klass) -> list[Given]:
        """The calls of a class in other files of the project."""
        known = self._sites.get(klass.node)
        if known is None:
            known = self._sites[klass.node] = list(self._found(klass))
        return known

    def _found(self, klass: Klass) -> Iterator[Given]:
        name = klass.node.name
        self.names.project.read.update(callers.searched(klass.module.path))
        for path in callers.files_that_call(klass.module.path, name)[:MOST_FILES]:
            module = self.names.project.opened(path)
            if module is None:
                continue
            for call in calls_in(module.tree):
                if isinstance(call.func, (ast.Name, ast.Attribute)) and called_name(call) == name:
                    made = self.names.class_of(module, call.func, anyway=True)
                    if made is not None and made.node is klass.node:
                        yield Given(module, _function_around(module, call), call, call.lineno)


def _argument(call: ast.expr, name: str, index: int) -> ast.expr | None:
    """What a call hands over as a parameter of this name and index."""
    assert isinstance(call, ast.Call)
    for keyword in call.keywords:
        if keyword.arg == name:
            return keyword.value
    given = call.args[: index + 1]
    if len(given) <= index or any(isinstance(one, ast.Starred) for one in given):
        return None
    return given[index]


def _function_around(module: Module, call: ast.Call) -> Function | None:
    """The innermost function around a call."""
    around = [
        node
        for node in nodes(module.tree)
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)) and spans(node, call.lineno)
    ]
    return max(around, key=lambda node: node.lineno, default=None)


def _values(given: Given) -> list[ast.expr]:
    """What is handed over; of a variable, the last object that it got before."""
    if not isinstance(given.value, ast.Name):
        return [given.value]
    facts = given.module.facts[given.function or given.module.tree]
    known = facts.locals.get(given.value.id, ())
    before = [value for _, line, _, value in known if line < given.line]
    return [value for value in before if not isinstance(value, ast.Constant)][-1:]
