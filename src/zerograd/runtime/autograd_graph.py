"""Walks the graph of a loss: to the leaves that a backward would reach, and to what a scaler multiplied."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

MARK = "zerograd.scaled"
MOST_NODES = 100_000
"""A larger graph is not walked to its end."""


def scaled_by_a_scaler(output: Any) -> bool | None:
    """Whether a scaler has multiplied what a tensor was computed from; None if it cannot be seen."""
    root = getattr(output, "grad_fn", None)
    if root is None:
        return None
    if is_marked(output):
        return True
    seen, todo = {root}, [root]
    while todo:
        if len(seen) > MOST_NODES:
            return None
        for node, _ in todo.pop().next_functions:
            if node is not None and node not in seen:
                if MARK in node.metadata:
                    return True
                seen.add(node)
                todo.append(node)
    return False


def is_marked(output: Any) -> bool:
    """Whether a tensor is the result of a scaler."""
    node = getattr(output, "grad_fn", None)
    return node is not None and MARK in node.metadata


def mark_scaled(output: Any) -> None:
    """Mark in the graph that a scaler has multiplied a tensor."""
    node = getattr(output, "grad_fn", None)
    if node is not None:
        node.metadata[MARK] = True


def leaves(outputs: Iterable[Any]) -> list[Any]:
    """The leaf tensors that a backward of the outputs would reach."""
    todo = [node for node in (getattr(output, "grad_fn", None) for output in outputs) if node]
    seen = set(todo)
    found = []
    while todo and len(seen) <= MOST_NODES:
        node = todo.pop()
        variable = getattr(node, "variable", None)
        if variable is not None:
            found.append(variable)
        for below, _ in node.next_functions:
            if below is not None and below not in seen:
                seen.add(below)
                todo.append(below)
    return found
