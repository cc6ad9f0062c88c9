"""A loss that is computed and handed to nothing."""

from __future__ import annotations

import ast
import re

from zerograd.static.frameworks.torch import SCALER_NAME
from zerograd.static.read import vocabulary
from zerograd.static.read.file_index import nodes, text_of

_LOSS = re.compile(r"loss|cost|^err", re.IGNORECASE)
_RUNS_BACKWARD = re.compile(r"backward|train_|training|_step$|closure|fit|learn", re.IGNORECASE)
"""Unseen functions with such names may run the backward themselves."""
_COMPUTES = re.compile(r"(^|\.)(F|functional)\.\w+$|\.(mean|sum)$")


def idle_loss(around: ast.AST) -> ast.AST | None:
    """A loss that a loop or a function computes and then only logs: where it is computed."""
    assigned: dict[str, ast.AST] = {}
    bare: ast.AST | None = None
    for node in nodes(around):
        if isinstance(node, ast.Assign) and isinstance(node.value, (ast.Call, ast.BinOp)):
            for target in node.targets:
                if isinstance(target, ast.Name) and _LOSS.search(target.id):
                    assigned[target.id] = node
        elif isinstance(node, ast.Expr) and _is_computed(node.value):
            bare = bare or node
        if isinstance(node, ast.Call) and _may_run_backward(node):
            return None
    if bare is not None or not assigned:
        return bare
    parents = {child: node for node in nodes(around) for child in ast.iter_child_nodes(node)}
    used: set[str] = set()
    feeds: dict[str, set[str]] = {}
    for node in nodes(around):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load) and node.id in assigned:
            into = _handed_to(node, parents, assigned)
            if into is None:
                used.add(node.id)
            else:
                feeds.setdefault(node.id, set()).update(into)
    for _ in feeds:
        used |= {name for name, into in feeds.items() if into & used}
    idle = [node for name, node in assigned.items() if name not in used]
    return idle[-1] if idle else None


def _may_run_backward(node: ast.Call) -> bool:
    """Whether a call may do what seems to be forgotten: a training step, a schedule of a pipeline."""
    name = text_of(node.func).rsplit(".", 1)[-1]
    if name == "step":
        return bool(node.args or node.keywords) and not _is_scaler(node.func)
    if name in ("backward", "manual_backward") or vocabulary.BENIGN.search(name):
        return False  # what the first fill was seen
    return _RUNS_BACKWARD.search(name) is not None


def _is_scaler(func: ast.expr) -> bool:
    return isinstance(func, ast.Attribute) and SCALER_NAME.search(text_of(func.value)) is not None


def _is_computed(node: ast.expr) -> bool:
    """Whether a value that is not used is a mean, a sum, or what a function of torch.nn gives."""
    if isinstance(node, ast.BinOp):
        return _is_computed(node.left) or _is_computed(node.right)
    return isinstance(node, ast.Call) and _COMPUTES.search(text_of(node.func)) is not None


def _handed_to(
    node: ast.AST, parents: dict[ast.AST, ast.AST], assigned: dict[str, ast.AST]
) -> set[str] | None:
    """The losses that a loss becomes a part of; None if it is handed to more than a log."""
    child, parent = node, parents.get(node)
    while parent is not None:
        if isinstance(parent, ast.Attribute) and parent.attr == "backward":
            user = parents.get(parent)
            return None if isinstance(user, ast.Call) and user.func is parent else set()
        if isinstance(parent, ast.Attribute):
            logs = parent.attr in ("item", "data", "detach", "cpu", "mean", "sum")
            return set() if logs else None
        if isinstance(parent, ast.Call) and child is not parent.func:
            name = text_of(parent.func).rsplit(".", 1)[-1]
            logs = vocabulary.BENIGN.search(name) is not None or name in (
                "float",
                "isnan",
                "isfinite",
                "update",
            )
            return set() if logs else None
        if isinstance(parent, (ast.FormattedValue, ast.AugAssign)):
            return set()
        if isinstance(parent, ast.Assign):
            targets = {t.id if isinstance(t, ast.Name) else "" for t in parent.targets}
            return targets if targets <= assigned.keys() else None
        if isinstance(parent, ast.stmt):
            return set() if isinstance(parent, ast.Expr) else None
        child, parent = parent, parents.get(parent)
    return None
