"""The configurations that an exploration has reached, and the branch decisions that lead to each.

A path is a set of decisions. Of several paths to one configuration only the smallest are kept: a path that
contains another is dropped, and so is a test both of whose arms lead to the same configuration.
"""

from __future__ import annotations

from collections.abc import Iterable
from collections.abc import Set as AbstractSet
from typing import NamedTuple

from zerograd.core.automaton import Node

MOST_DECISIONS = 3
"""The greatest weight of a path that is followed, without what decides whether a loop runs at all."""
OUTER_DECISIONS = 3
"""How much what decides whether a loop runs at all may weigh besides."""


class Decision(NamedTuple):
    """An outcome of a test that the exploration had to assume."""

    test: str
    """As source text."""
    outcome: bool
    weight: int = 1
    """How many ordinary decisions it counts for: the rarer the outcome, the more."""
    scope: tuple[int, ...] = ()
    """The calls and loops in which the test is asked, where the same text may mean another test."""

    @property
    def unweighted(self) -> Decision:
        """The same outcome of the same test, whatever it weighs."""
        return self if self.weight == 1 else self._replace(weight=1)

    def __str__(self) -> str:
        return self.test if self.outcome else f"not ({self.test})"


Decisions = frozenset[Decision]
Configuration = tuple[Node, int]
"""A state, as the exploration has interned it, and what is known, as `Knowledge` has numbered it."""
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
            for decision in path:
                rest = path - {decision}
                if rest | {opposite(decision)} in paths:
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
    return sorted(kept, key=lambda path: (weight(path), sorted(path)))


def merge(into: Configurations, more: Configurations) -> None:
    """Adds all of one to the other."""
    for key, paths in list(more.items()):
        add(into, key, paths)


def decide(
    paths: Iterable[Decisions],
    decision: Decision,
    outer: AbstractSet[Decision] = frozenset(),
    most: int = MOST_DECISIONS,
) -> set[Decisions]:
    """The paths with one more decision; those that would weigh more than `most` are given up.

    `outer` are those that decide, outside of all loops, whether a loop runs at all.
    """
    decided = {_with(path, decision) for path in paths}
    return {path for path in decided if _is_light(path, outer, most)}


def _is_light(path: Decisions, outer: AbstractSet[Decision], most: int) -> bool:
    whole = weight(path)
    if whole <= most:
        return True
    return whole <= most + OUTER_DECISIONS and whole - weight(path & outer) <= most


def _with(path: Decisions, decision: Decision) -> Decisions:
    """The path with one more decision; of two that are the same, the heavier one counts."""
    for other in path:
        if other.unweighted == decision.unweighted:
            return path if other.weight >= decision.weight else path - {other} | {decision}
    return path | {decision}


def weight(path: Decisions) -> int:
    """How many ordinary decisions a path counts for."""
    return sum(decision.weight for decision in path)


def opposite(decision: Decision) -> Decision:
    """The other outcome of the same test."""
    return decision._replace(outcome=not decision.outcome)


def join(
    then: Configurations,
    learned_then: int,
    orelse: Configurations,
    learned_else: int,
) -> Configurations:
    """Merges two arms; where both end in the same state, the test is forgotten."""
    out: Configurations = {}
    arms = ((then, learned_then), (orelse, learned_else))
    bare = [{(state, known & ~learned) for state, known in arm} for arm, learned in arms]
    for (arm, learned), other in zip(arms, reversed(bare), strict=True):
        for (state, known), paths in arm.items():
            key = (state, known & ~learned)
            add(out, key if key in other else (state, known), paths)
    return out
