"""The verdict on each training loop of a check: right, wrong, or not followed and why."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from typing import Literal

from zerograd.check.settings import Settings
from zerograd.core.events import Site
from zerograd.core.finding import Finding
from zerograd.core.records import replace
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
Seen = tuple[str, Settings, tuple[TrainingLoop, ...]]
"""A checked file, its settings, and the training loops that it led to."""


def verdicts(
    seen: Iterable[Seen],
    checked: Iterable[str],
    findings: list[Finding],
    grade: Callable[[Settings, Found], Grade],
) -> list[LoopVerdict]:
    """One verdict per loop of these files; `grade` says whether a finding makes its loop wrong."""
    absolute: frozenset[str] | None = None
    inside = []
    grades: dict[tuple[str, Found], Grade] = {}
    for home, settings, loops in seen:
        for loop in loops:
            path = loop.site.path
            if path != home:
                absolute = absolute or frozenset(map(os.path.abspath, checked))
                if os.path.abspath(path) not in absolute:
                    continue
            inside.append(loop)
            for found in loop.found:
                grades[path, found] = grade(settings, found)
    places = {(one.code, one.site): number for number, one in enumerate(findings)}
    return [_verdict(loop, grades, places) for loop in joined(_driven(inside))]


def _driven(loops: list[TrainingLoop]) -> list[TrainingLoop]:
    """The loops, without the functions whose steps the loops of other files drive."""
    elsewhere = {
        step.site for loop in loops for step in loop.steps if step.site.path != loop.site.path
    }
    if not elsewhere:
        return loops
    kept = []
    for loop in loops:
        if loop.kind == "loop":
            kept.append(loop)
            continue
        mine = [s for s in loop.steps if s.site.path != loop.site.path or s.site not in elsewhere]
        if mine:
            kept.append(replace(loop, steps=tuple(mine)))
    return kept


def _verdict(
    loop: TrainingLoop,
    grades: dict[tuple[str, Found], Grade],
    places: dict[tuple[str, Site], int],
) -> LoopVerdict:
    first: dict[Grade, Found] = {}
    numbers = []
    for found in loop.found:
        first.setdefault(grades[loop.site.path, found], found)
        if (found.code, found.site) in places:
            numbers.append(places[found.code, found.site])
    shown = tuple(sorted(numbers))
    if "wrong" in first:
        return LoopVerdict(loop, "wrong", findings=shown)
    gap = loop.gap
    for name, why in _DOUBTS.items():
        if gap is None and name in first:
            gap = Gap(why, first[name].site, call=first[name].code)
    verdict: VerdictName = "right" if gap is None else "not followed"
    return LoopVerdict(loop, verdict, gap, shown)


_DOUBTS: dict[Grade, NotFollowed] = {
    "possible": NotFollowed.POSSIBLE,
    "advice": NotFollowed.ADVICE,
}
"""Findings that do not make a loop wrong, and leave it without a verdict."""
