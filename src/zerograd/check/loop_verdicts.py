"""The verdict on each training loop of a check: right, wrong, or not followed and why."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import replace
from functools import cached_property
from typing import Literal

from zerograd.core.events import Site
from zerograd.core.finding import Finding
from zerograd.core.training_loop import (
    Found,
    Gap,
    LoopVerdict,
    NotFollowed,
    TrainingLoop,
    VerdictName,
    joined,
)

Grade = Literal["wrong", "possible", "advice", ""]
Seen = tuple[str, TrainingLoop]
"""A training loop, and the checked file that led to it."""


def verdicts(
    seen: Iterable[Seen],
    checked: Sequence[AbstractSet[str]],
    findings: list[Finding],
    grade: Callable[[str, Found], Grade],
) -> list[LoopVerdict]:
    """One verdict per loop of these files; `grade` says what a finding in a loop of a file counts for."""
    files = _Files(checked)
    inside = [one for one in seen if one[1].site.path in files]
    grades: dict[tuple[str, Found], Grade] = {}
    for home, loop in inside:
        for found in loop.found:
            grades[loop.site.path, found] = grade(home, found)
    places = {(one.code, one.site): number for number, one in enumerate(findings)}
    return [_verdict(loop, grades, places) for loop in joined(list(_driven(inside)))]


class _Files:
    """A set of files: paths as they are given, or absolute."""

    def __init__(self, given: Sequence[AbstractSet[str]]) -> None:
        self._given = given

    def __contains__(self, path: str) -> bool:
        return any(path in some for some in self._given) or os.path.abspath(path) in self._absolute

    @cached_property
    def _absolute(self) -> frozenset[str]:
        return frozenset(os.path.abspath(path) for some in self._given for path in some)


def _driven(seen: list[Seen]) -> Iterable[TrainingLoop]:
    """The loops, without the functions whose steps the loops of other files drive."""
    elsewhere = {
        step.site for _, loop in seen for step in loop.steps if step.site.path != loop.site.path
    }
    for _, loop in seen:
        if loop.kind == "loop" or not elsewhere:
            yield loop
            continue
        mine = [s for s in loop.steps if s.site.path != loop.site.path or s.site not in elsewhere]
        if mine:
            yield replace(loop, steps=tuple(mine))


def _verdict(
    loop: TrainingLoop,
    grades: dict[tuple[str, Found], Grade],
    places: dict[tuple[str, Site], int],
) -> LoopVerdict:
    graded = [(grades[loop.site.path, found], found) for found in loop.found]
    shown = tuple(sorted(places[f.code, f.site] for f in loop.found if (f.code, f.site) in places))
    if any(grade == "wrong" for grade, _ in graded):
        return LoopVerdict(loop, "wrong", findings=shown)
    gap = loop.gap
    for name, why in (("possible", NotFollowed.POSSIBLE), ("advice", NotFollowed.ADVICE)):
        first = next((found for grade, found in graded if grade == name), None)
        if gap is None and first is not None:
            gap = Gap(why, first.site, call=first.code)
    verdict: VerdictName = "right" if gap is None else "not followed"
    return LoopVerdict(loop, verdict, gap, shown)
