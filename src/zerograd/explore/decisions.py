"""The configurations that an exploration has reached, and the branch decisions that lead to each.

A path is a set of decisions. Of several paths to one configuration only the smallest are kept: a path that
contains another is dropped, and so is a test both of whose arms lead to the same configuration.
"""

from __future__ import annotations

from collections.abc import Iterable
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
Path = int
"""Decisions as `Numbering` has numbered them: a bit for one that weighs one, two bits for one that weighs two."""
Configuration = tuple[Node, int]
"""A state, as the exploration has interned it, and what is known, as `Knowledge` has numbered it."""
Configurations = dict[Configuration, set[Path]]
"""The paths to each configuration. A set of paths may be that of several configurations: it is never changed."""
FREE: Path = 0
"""The path without decisions."""


class Numbering:
    """Gives decisions their bits: four for each test, of which the upper two are for its being false."""

    def __init__(self) -> None:
        self._tests: dict[tuple[str, tuple[int, ...]], int] = {}

    def bits(self, decisions: Iterable[Decision]) -> Path:
        """The bits of a path with these decisions; of two that are the same, the heavier one counts."""
        path = FREE
        for one in decisions:
            at = self._tests.setdefault((one.test, one.scope), len(self._tests))
            path |= (1 if one.weight == 1 else 3) << 4 * at + (0 if one.outcome else 2)
        return path

    def decisions(self, path: Path) -> Decisions:
        """The decisions of a path."""
        return frozenset(
            Decision(test, outcome, (path >> at & 3).bit_count(), scope)
            for (test, scope), number in self._tests.items()
            for outcome, at in ((True, 4 * number), (False, 4 * number + 2))
            if path >> at & 3
        )


def add(into: Configurations, key: Configuration, paths: set[Path]) -> set[Path]:
    """Adds the paths that are not implied by ones already there; returns those."""
    have = into.get(key)
    if have is None:
        into[key] = paths
        return paths
    if FREE in have:
        return set()
    new = {path for path in paths if not any(other & path == other for other in have)}
    if not new:
        return new
    into[key] = _reduced(have | new)
    return into[key] - have


def _reduced(paths: set[Path]) -> set[Path]:
    """The smallest, without tests both of whose arms lead here."""
    if FREE in paths:
        return {FREE}
    return _cancelled(
        {p for p in paths if not any(other & p == other and other != p for other in paths)}
    )


def _cancelled(paths: set[Path]) -> set[Path]:
    """Where both arms of a test lead here, the test does not matter."""
    for path in paths:
        left = path
        while left:
            at = (left & -left).bit_length() - 1 & ~1
            rest = path & ~(3 << at)
            if rest | (path >> at & 3) << (at ^ 2) in paths:
                return _cancelled({rest, *(p for p in paths if rest & p != rest)})
            left &= ~(3 << at)
    return paths


def smallest(paths: set[Decisions]) -> list[Decisions]:
    """The sets that imply all others, the shortest first."""
    numbering = Numbering()
    kept = map(numbering.decisions, _reduced(set(map(numbering.bits, paths))))
    return sorted(kept, key=lambda path: (weight(path), sorted(path)))


def merge(into: Configurations, more: Configurations) -> None:
    """Adds all of one to the other."""
    for key, paths in list(more.items()):
        add(into, key, paths)


def decide(
    paths: Iterable[Path], decision: Path, outer: Path = FREE, most: int = MOST_DECISIONS
) -> set[Path]:
    """The paths with one more decision; those that would weigh more than `most` are given up.

    `outer` are those that decide, outside of all loops, whether a loop runs at all.
    """
    decided = {path | decision for path in paths}
    return {path for path in decided if _is_light(path, outer, most)}


def _is_light(path: Path, outer: Path, most: int) -> bool:
    whole = path.bit_count()
    if whole <= most:
        return True
    inner = path & ~(outer & ~(path >> 1))  # of those that weigh two, both bits count
    return whole <= most + OUTER_DECISIONS and inner.bit_count() <= most


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
