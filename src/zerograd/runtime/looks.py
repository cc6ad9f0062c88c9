"""Looks at gradients before and after one backward: to which of them it adds, and how much."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import repeat
from operator import is_
from typing import TYPE_CHECKING, Any

from zerograd.runtime.gradient_values import (
    GRAD,
    VERSION,
    copies,
    is_flattened,
    is_sharded,
    plain,
    version,
)
from zerograd.runtime.subjects import Subject

if TYPE_CHECKING:
    from torch import Tensor
    from torch.utils.hooks import RemovableHandle


@dataclass(eq=False)
class Look:
    """One subject that holds used gradients while a backward runs, and the means to see what is reached."""

    subject: Subject
    params: list[Tensor]
    _means: GradientHooks | Versions
    _all: Versions | None = None

    @property
    def exact(self) -> GradientHooks | None:
        """The hooks, if there are some on each of the parameters that hold used gradients."""
        return self._means if isinstance(self._means, GradientHooks) else None

    def reached(self) -> list[Tensor]:
        """The parameters that hold used gradients and were reached."""
        return self._means.changed()

    def reaches_subject(self) -> bool:
        """Whether any parameter of the subject was reached."""
        return bool(self.reached()) or (self._all is not None and bool(self._all.changed()))


def close(looks: Sequence[Look]) -> None:
    """Leave no hook behind."""
    for look in looks:
        if look.exact is not None:
            look.exact.remove()


class GradientHooks:
    """Hooks for one backward: which of some parameters it reaches, and how much it adds."""

    def __init__(self, params: Sequence[Tensor], heard: Callable[..., Any]) -> None:
        self.params = params
        self._heard = heard
        self._squares: dict[int, float] = {}
        self._handles: list[RemovableHandle] = []
        # FSDP2 writes gradients of parameters by itself: no hook of the parameter is called. FSDP1
        # calls it with the gradient of the whole parameter, before ranks have shared it.
        sharded = [one for one in params if is_sharded(one)]
        self._sharded = Versions(sharded, version)
        self._before = copies(sharded)
        try:
            for param in params:
                if param.requires_grad and not is_flattened(param):
                    hook = self._hook(id(param))
                    self._handles.append(param.register_hook(hook))  # type: ignore[no-untyped-call]
        except BaseException:
            self.remove()
            raise

    def _hook(self, key: int) -> Callable[[Tensor | None], None]:
        def incoming(grad: Tensor | None) -> None:
            if grad is not None:
                self._heard(self._note, key, grad)

        return incoming

    def _note(self, key: int, grad: Tensor) -> None:
        square = float(plain(grad).double().norm()) ** 2
        self._squares[key] = self._squares.get(key, 0.0) + square

    def changed(self) -> list[Tensor]:
        """The parameters that the backward has reached; the hooks are gone now."""
        self.remove()
        unmeasured = set()
        for param in self._sharded.changed():
            before, grad = self._before.pop(id(param), None), param.grad
            if before is None or grad is None or plain(grad).shape != before.shape:
                unmeasured.add(id(param))
                continue
            came = float((plain(grad).double() - before).norm())
            if came or not is_flattened(
                param
            ):  # FSDP1 also makes new views of what it leaves alone
                self._squares.setdefault(id(param), came**2)
        found = unmeasured.union(self._squares)
        return [param for param in self.params if id(param) in found]

    def brought(self, params: Iterable[Tensor]) -> float:
        """The norm of what the backward brought to them; nan if that is not known of each."""
        return math.sqrt(sum(self._squares.get(id(param), math.nan) for param in params))

    def remove(self) -> None:
        """Leave no hook behind."""
        for handle in self._handles:
            handle.remove()
        self._handles.clear()


class Versions:
    """Whether gradients were written to since: exact for what one backward does to plain tensors."""

    def __init__(
        self, params: Sequence[Tensor], version: Callable[[Tensor], int] = VERSION
    ) -> None:
        self.params = params
        self._version = version
        self._grads = list(map(GRAD, params))
        self._versions = _versions(self._grads, version)
        self._changed: list[Tensor] | None = None

    def changed(self) -> list[Tensor]:
        """The parameters whose gradient was another object, or written to, when first asked."""
        if self._changed is None:
            now = list(map(GRAD, self.params))
            versions = _versions(now, self._version)
            if versions == self._versions and all(map(is_, now, self._grads)):
                self._changed = []
                return self._changed
            seen = zip(self.params, now, self._grads, versions, self._versions, strict=True)
            self._changed = [
                param
                for param, grad, grad_before, version, version_before in seen
                if grad is not grad_before or version != version_before
            ]
        return self._changed


def _versions(grads: Sequence[Tensor | None], version: Callable[[Tensor], int]) -> list[int]:
    if version is VERSION:
        # No loop in Python: a GAN is looked at in every step.
        return list(map(getattr, grads, repeat("_version"), repeat(-1)))
    return [-1 if grad is None else version(grad) for grad in grads]
