"""Walks the graph of a loss: to the leaves that a backward would reach, and to what a scaler multiplied."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

MARK = "zerograd.scaled"
SOURCE = "zerograd.unscaled"
MOST_NODES = 100_000
"""A larger graph is not walked to its end."""


def scaled_by_a_scaler(output: Any, scale: float) -> bool | None:
    """Whether what a tensor was computed from was multiplied: by a scaler, or by its scale.

    None if it cannot be seen.
    """
    root = getattr(output, "grad_fn", None)
    if root is None:
        return None
    if is_marked(output):
        return True
    if _factor(root, scale):
        return True
    seen, todo = {root}, [root]
    while todo:
        if len(seen) > MOST_NODES:
            return None
        for node, _ in todo.pop().next_functions:
            if node is not None and node not in seen:
                if MARK in node.metadata or _factor(node, scale):
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
        for below, _ in node.next_functions:
            if below is not None:
                below.metadata[SOURCE] = True


def has_a_scaled_copy(output: Any) -> bool:
    """Whether this tensor is the unscaled input of a scaler."""
    node = getattr(output, "grad_fn", None)
    return node is not None and SOURCE in node.metadata


def _factor(node: Any, scale: float) -> bool:
    """Whether a node multiplies by the scale of a scaler, or divides by its inverse."""
    if scale == 1.0 or node.name() not in ("MulBackward0", "DivBackward0"):
        return False
    wanted = scale if node.name() == "MulBackward0" else 1 / scale
    for name in ("_saved_other", "_saved_self"):
        saved = getattr(node, name, None)
        if saved is not None and saved.numel() == 1 and float(saved) == wanted:
            return True
    return False


def reads_apart(outputs: Iterable[Any], own: frozenset[int], other: frozenset[int]) -> bool:
    """Whether some of the leaves `own` are used where the graph does not lead to any of `other`.

    Data must be read there, too: a weight that is only transformed is not used yet.
    """
    below: dict[Any, tuple[bool, bool, frozenset[int]]] = {}
    """By node: whether it leads to `other`, whether it reads data, and up to two of `own`."""
    apart: list[frozenset[int]] = []
    reached: set[int] = set()
    for node, edges in _bottom_up(outputs):
        variable = getattr(node, "variable", None)
        if variable is not None:
            ours = id(variable) in own
            reached |= {id(variable)} if ours else set()
            data = not ours and id(variable) not in other
            below[node] = (id(variable) in other, data, frozenset([id(variable)] if ours else ()))
            continue
        known = [below[edge] for edge in edges if edge is not None]
        some = frozenset(sorted(frozenset().union(*(one[2] for one in known)))[:2])
        leads, data = any(one[0] for one in known), None in edges or any(one[1] for one in known)
        below[node] = (leads, data, some)
        if data and not leads and some:
            apart.append(some)
    return any(len(some) >= min(2, len(reached)) for some in apart)


def passed(outputs: Iterable[Any], owners: Mapping[int, str]) -> set[tuple[str, str]]:
    """Pairs of owners of leaves: the graph passes through the first on its way to the second.

    It does where parameters of the first, alone or transformed, meet what leads to the second.
    """
    below: dict[Any, tuple[bool, frozenset[str]]] = {}
    """By node: whether it reads data, and the owners that it leads to."""
    pairs: set[tuple[str, str]] = set()
    for node, edges in _bottom_up(outputs):
        variable = getattr(node, "variable", None)
        if variable is not None:
            owner = owners.get(id(variable))
            below[node] = (owner is None, frozenset() if owner is None else frozenset([owner]))
            continue
        known = [below[edge] for edge in edges if edge is not None]
        every = frozenset[str]().union(*(one[1] for one in known))
        below[node] = (None in edges or any(data for data, _ in known), every)
        if len(every) > 1:
            for data, some in known:
                if len(some) == 1 and not data:
                    pairs |= {(one, other) for one in some for other in every - some}
    return pairs


def _bottom_up(outputs: Iterable[Any]) -> Iterator[tuple[Any, list[Any]]]:
    """The nodes of a graph, each after those that it leads to, and with them."""
    todo = [(root, False) for root in _roots(outputs)]
    done: set[Any] = set()
    while todo and len(done) <= MOST_NODES:
        node, is_next = todo.pop()
        if node in done:
            continue
        edges = [edge for edge, _ in node.next_functions]
        if is_next:
            done.add(node)
            yield node, edges
        else:
            todo.append((node, True))
            todo += [(edge, False) for edge in edges if edge is not None and edge not in done]


def _roots(outputs: Iterable[Any]) -> list[Any]:
    return [node for node in (getattr(output, "grad_fn", None) for output in outputs) if node]


def leaves(outputs: Iterable[Any]) -> list[Any]:
    """The leaf tensors that a backward of the outputs would reach."""
    nodes = _roots(outputs)
    seen = {None, *nodes}
    found: list[Any] = []
    # This is the longest part of a first step. A plain loop takes a quarter of the time of one over whole
    # layers, which have few nodes each (3 µs instead of 13 for the MLP of `bench/pytest_overhead.py`).
    for node in nodes:  # it grows while it is read
        edges = node.next_functions
        if not edges:
            found.append(getattr(node, "variable", None))
        elif len(nodes) <= MOST_NODES:
            for below, _ in edges:
                if below not in seen:
                    seen.add(below)
                    nodes.append(below)
    # The first layers of a model come last in its graph.
    return [leaf for leaf in reversed(found) if leaf is not None]
