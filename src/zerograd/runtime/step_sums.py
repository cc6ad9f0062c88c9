"""The gradients that a step uses, and those that it should use, if others were there before.

Before a backward adds to gradients that are not meant for the next step, they are copied: the step should use the
difference. Clips and scalers between the backward and the step change the numbers, too.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from zerograd.core.interruptions import Tolerating
from zerograd.runtime.gradient_values import copies, holding, plain

if TYPE_CHECKING:
    from torch import Tensor

TINY = 1e-6
"""Smaller relative changes are rounding: a clip multiplies by a little less than it should."""


class StepSum:
    """The gradients of one subject, from the backward that adds to what was there until the step."""

    def __init__(self) -> None:
        self._there: frozenset[int] = frozenset()
        """The identities of the parameters whose gradients were there, also of those too large to be copied."""
        self._begin({})

    @property
    def began(self) -> bool:
        """Whether something is there that is not meant for the next step, and is followed."""
        return bool(self._there)

    def forget(self) -> None:
        """Nothing is there that was not meant for the next step."""
        if self._there:
            self._there = frozenset()
            self._begin({})

    def _begin(self, base: dict[int, Tensor]) -> None:
        self._base = base
        """Copies of what was there before, by the identity of the parameter."""
        self._times = 0
        """How many backward calls have added to them."""
        self.concerned: list[Tensor] = []
        """The parameters that they have reached."""
        self._right = self._got = math.nan
        """The norms of what was added, and of the sum, when the last backward or clip came."""
        self._clipped = False

    def begin(self, params: Sequence[Tensor]) -> None:
        """A backward is about to add to gradients that are not meant for the next step."""
        self._there = frozenset(map(id, params))
        self._begin(copies(params))

    def take(self, base: dict[int, Tensor]) -> None:
        """The same, where the copies were made before."""
        self._there = frozenset(base)
        self._begin(base)

    def added(
        self, params: Sequence[Tensor], reached: Sequence[Tensor], brought: float = math.nan
    ) -> None:
        """It has added to them; `brought` is the norm of that, for gradients too large to be copied."""
        if not self._there:
            return
        self._times += 1
        self.concerned = list({id(one): one for one in (*self.concerned, *reached)}.values())
        held = holding(params)
        self._got, self._clipped = _norm(held, {}), False
        if self._base:
            self._right = _norm(held, self._base)
        elif self._times == 1:
            others = [param for param in held if id(param) not in self._there]
            self._right = math.hypot(brought, _norm(others, {}))
        else:
            self._right = math.nan

    def is_still_there(self, params: Iterable[Tensor]) -> bool:
        """Whether gradients have the norm that the last backward or clip has left."""
        return math.isclose(_norm(holding(params), {}), self._got, rel_tol=TINY)

    def clips(self, params: Iterable[Tensor]) -> None:
        """They are about to be clipped; a scaler may have divided them since."""
        if self._got > 0:
            now = _norm(holding(params), {})
            self._right, self._got, self._clipped = self._right * now / self._got, now, True

    def at_step(self, params: Iterable[Tensor], *, divided: bool) -> tuple[float, float] | None:
        """The norms that a step should use and does use; `divided` if a scaler may have divided in between."""
        if math.isnan(self._right):
            return None
        held = holding(params)
        used = _norm(held, {})
        if self._clipped:
            # If the clip had an effect, the norm that is used is its limit.
            took_effect = used < self._got * (1 - TINY)
            return (min(self._right, used) if took_effect else self._right), used
        if divided or not self._base:
            return (self._right * used / self._got if self._got else self._right), used
        return _norm(held, self._base), used


def _norm(held: Sequence[Tensor], base: dict[int, Tensor]) -> float:
    """The norm of gradients together, less what was there before; nan if it cannot be computed."""
    import torch

    squares = 0.0
    with Tolerating(RuntimeError), torch.no_grad():  # no memory, or sparse at other places
        for param in held:
            if param.grad is not None:
                grad, before = plain(param.grad), base.get(id(param))
                grad = grad if before is None else grad - before
                squares += float(grad.double().norm()) ** 2
        return math.sqrt(squares)
    return math.nan
