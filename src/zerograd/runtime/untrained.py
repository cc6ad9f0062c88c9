"""Parameters that an optimizer has and no backward reaches, while others take their place.

Seen when the graph of a backward is walked, twice with ENOUGH steps in between.
"""

from __future__ import annotations

import weakref
from collections import Counter
from typing import TYPE_CHECKING, Any

from zerograd.core.events import Measured
from zerograd.runtime.parameter_names import MOST_NAMES
from zerograd.runtime.subjects import Subject, Subjects

if TYPE_CHECKING:
    from torch import Tensor

ENOUGH = 100


class UntrainedParameters:
    """Since when no graph that was walked has reached a parameter."""

    def __init__(self, subjects: Subjects) -> None:
        self._subjects = subjects
        self._since: dict[int, tuple[weakref.ref[Any], int, int]] = {}
        """By the identity of parameters: how many steps their optimizer had taken then, and their
        version: a step that uses a gradient writes to its parameter."""
        self._reported: set[str] = set()

    def next(self, backwards: int) -> int:
        """The number of the next backward whose graph is to be walked, after this one."""
        return backwards + (ENOUGH if self._since else 1 << 30)

    def look(self, leaves: list[Tensor], strangers: list[Tensor]) -> list[Measured]:
        """A backward is about to reach these leaves, and among them strangers: parameters of no optimizer.

        The result has the parameters in whose place the strangers are.
        """
        since, self._since = self._since, {}
        found: list[Measured] = []
        if strangers:
            reached, others = set(map(id, leaves)), Counter(tuple(one.shape) for one in strangers)
            for subject in self._subjects.all:
                found += self._of(subject, reached, others, since)
        return found

    def _of(
        self,
        subject: Subject,
        reached: set[int],
        others: Counter[tuple[int, ...]],
        since: dict[int, tuple[weakref.ref[Any], int, int]],
    ) -> list[Measured]:
        missed = [
            param
            for param in subject.params
            if param.requires_grad and param.grad is None and id(param) not in reached
        ]
        if not missed or Counter(tuple(param.shape) for param in missed) - others:
            return []
        steps, long = subject.track.steps, True
        for param in missed:
            ref, first, version = since.get(id(param), (None, steps, 0))
            if ref is None or ref() is not param or version != param._version:
                ref, first = weakref.ref(param), steps
            self._since[id(param)] = (ref, first, param._version)
            long &= steps - first >= ENOUGH
        if not long or subject.name in self._reported:
            return []
        self._reported.add(subject.name)
        return [Measured(0.0, 0.0, tuple(subject.names(missed)[:MOST_NAMES]), len(missed))]
