"""Parameters that receive gradients and belong to no optimizer.

The graph is walked when a backward call runs first, and later at one backward in EVERY. If that finds a new
parameter, the graph is walked again after each of the next steps, so that parameters that are made or unfrozen
late are found soon, too. A parameter is reported after three sightings of a gradient that was not cleared, with
steps in between, and only after a search for optimizers that have not been seen yet.
"""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable
from types import ModuleType
from typing import TYPE_CHECKING, Any

from zerograd.core.events import Backward, Event, Measured, Site
from zerograd.runtime.gradient_values import holding, is_sharded, nonzero
from zerograd.runtime.live_objects import instances
from zerograd.runtime.parameter_names import MOST_NAMES, names_in_modules, names_of
from zerograd.runtime.subjects import Subjects

if TYPE_CHECKING:
    from torch import Tensor

EVERY = 256
ENOUGH_SIGHTINGS = 3
DEPTH = 5
MOST = 100_000


class Orphans:
    """Sightings of gradients that nothing steps or clears."""

    _more = 0
    """How often the graph is walked again because of a parameter that was not known."""
    _steps = -1
    """How many steps there had been at the last walk."""

    def __init__(self, torch: Any, subjects: Subjects, post: Callable[[Event], None]) -> None:
        self._torch = torch
        self._subjects = subjects
        self._post = post
        self._seen: dict[int, tuple[weakref.ref[Any], int, int]] = {}
        """By identity: a parameter without optimizer, its sightings, and the number of steps at the last one."""
        self._reported: dict[int, weakref.ref[Any]] = {}
        """By identity: sets would compare tensors by their values."""

    def next(self, backwards: int) -> int:
        """The number of the next backward whose graph is to be walked, after this one."""
        if self._more:
            return backwards + 1
        return (backwards // EVERY + 1) * EVERY

    def is_due(self, steps: int) -> bool:
        """Whether another walk can show more than the last one; there have been `steps` steps."""
        return not self._more or steps > self._steps

    def look(self, strangers: list[Tensor], site: Site, steps: int) -> None:
        """A backward is about to reach these parameters of no optimizer; there have been `steps` steps."""
        if self.is_due(steps):
            self._more, self._steps = max(self._more - 1, 0), steps
        self._seen = {
            key: (ref, 0 if param.grad is None else times, when)
            for key, (ref, times, when) in self._seen.items()
            if (param := ref()) is not None
        }
        for leaf in strangers:
            if self._is_reported(leaf):
                continue
            ref, times, when = self._seen.get(id(leaf), (None, 0, -1))
            if ref is None or ref() is not leaf:
                ref, times, when = weakref.ref(leaf), 0, -1
                self._more = ENOUGH_SIGHTINGS
            if leaf.grad is not None and steps > max(when, 0):
                times += 1
            self._seen[id(leaf)] = (ref, times, steps)
        enough = [ref() for ref, times, _ in self._seen.values() if times >= ENOUGH_SIGHTINGS]
        if enough:
            self._report([one for one in enough if one is not None], site)

    def _is_flat(self, param: Tensor) -> bool:
        """Whether a parameter is the flat one of FSDP1, and an optimizer has its parts."""
        parts = getattr(param, "_params", None) or ()
        return any(map(self._subjects.owns, parts))

    def _is_reported(self, leaf: Tensor) -> bool:
        reported = self._reported.get(id(leaf))
        return reported is not None and reported() is leaf

    def _report(self, params: list[Tensor], site: Site) -> None:
        ours, others = optimizers(self._torch)
        for optimizer in ours:
            self._subjects.of(optimizer)
        theirs = set().union(*(_reach(other) for other in others))
        # While FSDP2 does not synchronise, it keeps gradients in whole copies of its parameters.
        copied = {
            one.shape for subject in self._subjects.all for one in subject.params if is_sharded(one)
        }
        params = [
            param
            for param in nonzero(holding(params))
            if not self._subjects.owns(param)
            and id(param) not in theirs
            and param.shape not in copied
            and not self._is_flat(param)
        ]
        for param in params:
            self._reported[id(param)] = weakref.ref(param)
            del self._seen[id(param)]
        if params:
            names = names_of(params, names_in_modules(params))
            seen = Measured(0.0, 0.0, tuple(names[:MOST_NAMES]), len(params))
            self._post(Backward(site, orphan=True, measured=seen))


def optimizers(torch: Any) -> tuple[list[Any], list[Any]]:
    """The optimizers of the program: those of torch, and objects that look like one and are not."""
    ours, others = [], []
    for found in instances(lambda kind: _is_optimizer(kind, torch) or _looks_like_one(kind, torch)):
        if not _is_optimizer(type(found), torch):
            others.append(found)
        elif getattr(found, "param_groups", None):
            ours.append(found)
    return ours, others


def unknown_optimizers(torch: Any) -> list[Any]:
    """Objects that look like an optimizer, and neither are nor hold one of torch's."""
    ours, others = optimizers(torch)
    known = set(map(id, ours))
    return [other for other in others if not _reach(other) & known]


def _reach(root: Any) -> set[int]:
    """The identities of the objects that an object refers to, directly or through others."""
    found: set[int] = set()
    layer = [root]
    for _ in range(DEPTH):
        layer = [one for one in gc.get_referents(*layer) if id(one) not in found]
        layer = [one for one in layer if not isinstance(one, (type, ModuleType))][:MOST]
        found.update(map(id, layer))
    return found


def _is_optimizer(kind: type, torch: Any) -> bool:
    return issubclass(kind, torch.optim.Optimizer)


def _looks_like_one(kind: type, torch: Any) -> bool:
    if issubclass(kind, (type, torch.nn.Module)):
        return False
    return _callable(kind, "step") and _callable(kind, "zero_grad")


def _callable(kind: type, name: str) -> bool:
    return any(callable(vars(base).get(name)) for base in kind.__mro__)
