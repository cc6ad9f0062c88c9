"""Optimizers that are made for one step, one after the other, over the same parameters.

It counts only where nothing else has written to the parameters between two of them: clients of a
federated training, or a model that is put back for each sample, begin from other parameters.
"""

from __future__ import annotations

import weakref
from typing import TYPE_CHECKING, Any

from zerograd.core.events import Site
from zerograd.fold.judge import Track
from zerograd.runtime.gradient_values import imprint

if TYPE_CHECKING:
    from torch import Tensor

ENOUGH = 5
MOST = 1024


class _Life:
    """The optimizer that stepped a parameter last, and how many like it stepped the parameter before."""

    optimizer: weakref.ref[Any] | None = None
    site: Site | None = None
    """Where it is made."""
    track: Track | None = None
    before = 0
    """The track of its subject, and how many steps that had taken before the optimizer stepped."""
    row = 0
    """How many optimizers in a row, before it, were made there and took one step."""
    left: object = None
    """What its only step has left."""

    def __init__(self, param: Tensor) -> None:
        self.param = weakref.ref(param)

    @property
    def steps(self) -> int:
        """How many steps the optimizer has taken."""
        return 0 if self.track is None else self.track.steps - self.before


class OptimizerLives:
    """The optimizers of each set of parameters, which is known by its first one."""

    def __init__(self) -> None:
        self._made: dict[int, tuple[weakref.ref[Any], Site]] = {}
        self._lives: dict[int, _Life] = {}

    def made(self, optimizer: Any, site: Site) -> None:
        """An optimizer got parameters."""
        if id(optimizer) not in self._made:
            key, forget = id(optimizer), self._made.pop
            self._made[key] = (weakref.ref(optimizer, lambda _: forget(key, None)), site)

    def made_at(self, optimizer: Any) -> Site | None:
        """Where an optimizer was made, if that was seen."""
        known = self._made.get(id(optimizer))
        return None if known is None or known[0]() is not optimizer else known[1]

    def step_begins(self, optimizer: Any, param: Tensor, track: Track) -> None:
        """An optimizer is about to step a subject; `param` is the first of its parameters."""
        life = self._lives.get(id(param))
        if life is None or life.param() is not param:
            if len(self._lives) >= MOST:
                self._lives.clear()
            life = self._lives[id(param)] = _Life(param)
        if life.optimizer is not None and life.optimizer() is optimizer:
            return
        made = self._made.get(id(optimizer))
        site = None if made is None else made[1]
        alike = life.steps == 1 and site is not None and life.site == site
        life.row = life.row + 1 if alike and life.left == imprint(param) else 0
        life.optimizer, life.site = weakref.ref(optimizer), site
        life.track, life.before = track, track.steps

    def step_ended(self, optimizer: Any, param: Tensor, *, inside: bool) -> Site | None:
        """An optimizer has stepped; with `inside`, a backward ran in the step. Returns where it is made, if it is one of many."""
        life = self._lives.get(id(param))
        if life is None or life.steps:
            return None  # it had stepped before
        if inside or not _remembers(optimizer):
            life.row, life.left = 0, None
            return None
        life.left = imprint(param)
        return life.site if life.row >= ENOUGH else None


def _remembers(optimizer: Any) -> bool:
    state = getattr(optimizer, "state", None) or {}
    return any(
        value is not None
        for one in state.values()
        for value in (one.values() if isinstance(one, dict) else ())
    )
