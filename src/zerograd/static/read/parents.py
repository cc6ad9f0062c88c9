"""The nodes of a file by name, and what each of them is in."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from zerograd.static.read.syntax_tree import FUNCTIONS, children


class Parents:
    """Made by one walk through a tree, from the outside to the inside."""

    def __init__(self, tree: ast.Module) -> None:
        self.tree = tree
        self.above: dict[ast.AST, ast.AST] = {}
        """By node: the node that it is in."""
        self.names: dict[str, list[ast.Name]] = {}
        self.attributes: dict[str, list[ast.Attribute]] = {}
        self.parameters: dict[str, list[ast.arg]] = {}
        self.calls: list[ast.Call] = []
        todo: list[ast.AST] = [tree]
        for node in todo:  # it grows meanwhile
            if type(node) is ast.Name:
                self.names.setdefault(node.id, []).append(node)
                continue  # nothing is in it
            inside = children(node)
            self.above.update(dict.fromkeys(inside, node))
            todo += inside
            if type(node) is ast.Attribute:
                self.attributes.setdefault(node.attr, []).append(node)
            elif type(node) is ast.Call:
                self.calls.append(node)
            elif type(node) is ast.arg:
                self.parameters.setdefault(node.arg, []).append(node)

    def around(self, node: ast.AST) -> Iterator[ast.AST]:
        """What a node is in, from the inside to the outside."""
        above = self.above.get(node)
        while above is not None:
            yield above
            above = self.above.get(above)

    def function(self, node: ast.AST) -> ast.AST:
        """The function that a node is in, or the file."""
        return next((one for one in self.around(node) if isinstance(one, FUNCTIONS)), self.tree)

    def klass(self, node: ast.AST) -> ast.ClassDef | None:
        """The class that a node is in."""
        return next((one for one in self.around(node) if isinstance(one, ast.ClassDef)), None)
