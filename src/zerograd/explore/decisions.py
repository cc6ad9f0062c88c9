"""Where an exploration stands, and on which branch decisions that depends.

Sets of decisions are kept as small as they can be: what is implied goes, and so does a test both of
whose arms lead to the same place.
"""

from __future__ import annotations

from collections.abc import Iterable

from zerograd.explore.logic import Fact, Known

MOST_DECISIONS = 3
Decision = tuple[str, bool]
Decisions = frozenset[Decision]
Configuration = tuple[int, Known]
"""A state, by its number in the exploration, and what is known."""
Configurations = dict[Configuration, set[Decisions]]
_FREE: Decisions = frozenset()


def add(into: Configurations, key: Configuration, paths: Iterable[Decisions]) -> set[Decisions]:
    """Adds the paths that are not implied by ones already there; returns those."""
    have = into.get(key)
    if have is None:
        into[key] = new = set(paths)
        return new
    if _FREE in have:
        return set()
    new = {path for path in paths if not any(other <= path for other in have)}
    if not new:
        return new
    before = set(have)
    have |= new
    _reduce(have)
    return have - before


def _reduce(paths: set[Decisions]) -> None:
    """Keeps the smallest, and drops tests both of whose arms lead here."""
    if _FREE in paths:
        paths.clear()
        paths.add(_FREE)
        return
    paths -= {path for path in paths if any(other < path for other in paths)}
    _cancel(paths)


def _cancel(paths: set[Decisions]) -> None:
    """Where both arms of a test lead here, the test does not matter."""
    changed = True
    while changed:
        changed = False
        for path in list(paths):
            for text, taken in path:
                rest = path - {(text, taken)}
                if rest | {(text, not taken)} in paths:
                    paths -= {other for other in paths if rest <= other}
                    paths.add(rest)
                    changed = True
                    break
            if changed:
                break


def smallest(paths: set[Decisions]) -> list[Decisions]:
    """The sets that imply all others, the shortest first."""
    kept = set(paths)
    _reduce(kept)
    return sorted(kept, key=lambda path: (len(path), sorted(path)))


def merge(into: Configurations, more: Configurations) -> None:
    """Adds all of one to the other."""
    for key, paths in list(more.items()):
        add(into, key, paths)


def decide(paths: Iterable[Decisions], decision: Decision) -> set[Decisions]:
    """The paths with one more decision; those that would have too many are given up."""
    decided = {path | {decision} for path in paths}
    return {path for path in decided if len(path) <= MOST_DECISIONS}


def join(
    then: Configurations,
    learned_then: frozenset[tuple[Fact, bool]],
    orelse: Configurations,
    learned_else: frozenset[tuple[Fact, bool]],
) -> Configurations:
    """Merges two arms; where both end in the same state, the test is forgotten."""
    out: Configurations = {}
    bare_then = {(state, known - learned_then): paths for (state, known), paths in then.items()}
    bare_else = {(state, known - learned_else): paths for (state, known), paths in orelse.items()}
    for (state, known), paths in then.items():
        key = (state, known - learned_then)
        add(out, key if key in bare_else else (state, known), paths)
    for (state, known), paths in orelse.items():
        key = (state, known - learned_else)
        add(out, key if key in bare_then else (state, known), paths)
    return out
