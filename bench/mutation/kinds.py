"""The kinds of mutations."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from mutation.acts import Acts
from mutation.surgery import Edit

Broken = Iterator[tuple[int, list[Edit] | None]]
"""Lines, each with the edits that break the source at that line."""
Operator = Callable[[Acts], Broken]


@dataclass(frozen=True)
class Kind:
    """A way to break a loop, and the codes that report it. The first is the rule for this kind."""

    name: str
    codes: tuple[str, ...]
    operator: Operator
    repairable: bool = True
    """Whether it has a fix."""


@dataclass(frozen=True)
class Mutant:
    """One broken source."""

    kind: Kind
    line: int
    text: str


KINDS: list[Kind] = []


def breaks(name: str, *codes: str, repairable: bool = True) -> Callable[[Operator], Operator]:
    """Add an operator to the list of kinds."""

    def enter(operator: Operator) -> Operator:
        KINDS.append(Kind(name, codes, operator, repairable))
        return operator

    return enter
