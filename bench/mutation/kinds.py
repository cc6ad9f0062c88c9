"""What a way to break a loop is."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from mutation.acts import Acts
from mutation.surgery import Edit

Broken = Iterator[tuple[int, list[Edit] | None]]
"""Lines, each with the edits that break the source there."""
Operator = Callable[[Acts], Broken]


@dataclass(frozen=True)
class Kind:
    """A way to break a loop, and the codes that tell of it; the first is the rule written for it."""

    name: str
    codes: tuple[str, ...]
    operator: Operator
    counts: bool = True
    """Whether a rule claims to see it wherever it is; else it is measured, and no goal."""
    repairable: bool = True
    """Whether there is a fix for it."""


@dataclass(frozen=True)
class Mutant:
    """One broken source."""

    kind: Kind
    line: int
    text: str


KINDS: list[Kind] = []


def breaks(
    name: str, *codes: str, counts: bool = True, repairable: bool = True
) -> Callable[[Operator], Operator]:
    """Enters an operator into the list of kinds."""

    def enter(operator: Operator) -> Operator:
        KINDS.append(Kind(name, codes, operator, counts, repairable))
        return operator

    return enter
