"""A loss that is computed and handed to nothing."""

from __future__ import annotations

import ast

from zerograd.static import names
from zerograd.static.facts import nodes, text_of


def idle_loss(loop: ast.For | ast.AsyncFor | ast.While) -> ast.AST | None:
    """A loss that a loop computes and then only logs: where it is assigned."""
    assigned: dict[str, ast.AST] = {}
    for node in nodes(loop):
        if isinstance(node, ast.Assign) and isinstance(node.value, (ast.Call, ast.BinOp)):
            for target in node.targets:
                if isinstance(target, ast.Name) and "loss" in target.id.lower():
                    assigned[target.id] = node
    if not assigned:
        return None
    parents = {child: node for node in nodes(loop) for child in ast.iter_child_nodes(node)}
    for node in nodes(loop):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load) and node.id in assigned:
            if not _only_logs(node, parents, assigned):
                return None
    return next(reversed(list(assigned.values())))


def _only_logs(
    node: ast.AST, parents: dict[ast.AST, ast.AST], assigned: dict[str, ast.AST]
) -> bool:
    child, parent = node, parents.get(node)
    while parent is not None:
        if isinstance(parent, ast.Attribute) and parent.attr == "backward":
            user = parents.get(parent)
            return not (isinstance(user, ast.Call) and user.func is parent)
        if isinstance(parent, ast.Attribute):
            return parent.attr in ("item", "data", "detach", "cpu", "mean", "sum")
        if isinstance(parent, ast.Call) and child is not parent.func:
            name = text_of(parent.func).rsplit(".", 1)[-1]
            return names.BENIGN.search(name) is not None or name in (
                "float",
                "isnan",
                "isfinite",
                "update",
            )
        if isinstance(parent, ast.FormattedValue):
            return True
        if isinstance(parent, ast.AugAssign):
            return True
        if isinstance(parent, ast.Assign):
            return all(isinstance(t, ast.Name) and t.id in assigned for t in parent.targets)
        if isinstance(parent, ast.stmt):
            return isinstance(parent, ast.Expr)
        child, parent = parent, parents.get(parent)
    return False
