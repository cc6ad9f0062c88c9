"""Looking at gradients: which of them hold anything, and which a backward really reaches.

It reads and never writes; nothing here draws random numbers or changes what a program computes.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from operator import attrgetter
from typing import TYPE_CHECKING

from zerograd.core.events import Measured

if TYPE_CHECKING:
    from torch import Tensor
    from torch.utils.hooks import RemovableHandle

MOST_NAMES = 3
MOST_BYTES = 256 * 1024 * 1024
"""Gradients larger than this are not copied: a run must not run out of memory for us."""
_GRAD, _VERSION = attrgetter("grad"), attrgetter("_version")


def holding(params: Iterable[Tensor]) -> list[Tensor]:
    """The parameters whose gradient is not None."""
    return [param for param in params if param.grad is not None]


def nonzero(params: Sequence[Tensor]) -> list[Tensor]:
    """Of parameters that hold gradients those whose gradient is not zero everywhere."""
    return [param for param, norm in zip(params, norms(params), strict=True) if norm != 0.0]


def holds(param: Tensor) -> bool:
    """Whether a parameter's gradient is not zero everywhere; its first number may tell it already."""
    grad = param.grad
    if grad is None:
        return False
    return (is_plain(grad) and _first(grad) != 0) or bool(nonzero([param]))


def is_plain(grad: Tensor) -> bool:
    """Whether a gradient's numbers lie in this process as in an array."""
    import torch

    return grad.layout is torch.strided and grad.numel() > 0 and not hasattr(grad, "to_local")


def _first(grad: Tensor) -> float:
    # After a training step nothing is in the caches: every further call would cost more than this.
    number: float = grad.as_strided((), ()).item()
    return number


def filled(first: Tensor, params: Sequence[Tensor]) -> bool:
    """Whether any of the parameters has a gradient that is not zero; the first is asked first."""
    return holds(first) or bool(nonzero(holding(params)))


def norms(params: Sequence[Tensor]) -> list[float]:
    """The norm of each gradient; that of a gradient with no numbers in it is 0."""
    import torch

    with torch.no_grad():
        grads = [plain(param.grad) for param in params if param.grad is not None]
        by_device: dict[object, list[int]] = {}
        for number, grad in enumerate(grads):
            by_device.setdefault((grad.device, grad.dtype), []).append(number)
        found = [0.0] * len(grads)
        for numbers in by_device.values():
            together = torch._foreach_norm([grads[number] for number in numbers])
            for number, norm in zip(numbers, torch.stack(list(together)).tolist(), strict=True):
                found[number] = norm
        return found


def plain(grad: Tensor) -> Tensor:
    """The gradient as a tensor that norms can be taken of: what this process holds of it."""
    if hasattr(grad, "to_local"):
        grad = grad.to_local()
    grad = grad.detach()
    if grad.is_sparse:
        # Entries of one place may cancel only when they are added up.
        grad = grad.coalesce().values()
    return grad


class Touch:
    """Temporary hooks: which of some parameters a backward reaches, and with how much."""

    def __init__(self, params: Sequence[Tensor]) -> None:
        self.params = params
        self._squares: dict[int, float] = {}
        self._error: Exception | None = None
        self._handles: list[RemovableHandle] = []
        # FSDP2 puts gradients where they belong by itself: no hook of the parameter is called.
        sharded = [one for one in params if _is_sharded(one)]
        self._sharded = Versions(sharded, version)
        self._before = copies(sharded)
        try:
            for param in params:
                if param.requires_grad:
                    hook = self._hook(id(param))
                    self._handles.append(param.register_hook(hook))  # type: ignore[no-untyped-call]
        except BaseException:
            self.remove()
            raise

    def _hook(self, key: int) -> Callable[[Tensor | None], None]:
        def incoming(grad: Tensor | None) -> None:
            if grad is None:
                return
            try:
                square = float(plain(grad).double().norm()) ** 2
                self._squares[key] = self._squares.get(key, 0.0) + square
            except Exception as error:
                # It must not come up in the user's backward.
                self._error = error

        return incoming

    def reached(self) -> list[Tensor]:
        """The parameters that the backward has reached; the hooks are gone now."""
        self.remove()
        if self._error is not None:
            raise self._error
        for param in self._sharded.changed():
            before = self._before.pop(id(param), None)
            if before is not None and param.grad is not None:
                came = plain(param.grad).double() - before
                self._squares.setdefault(id(param), float(came.norm()) ** 2)
        found = set(self._squares) | set(map(id, self._sharded.changed()))
        return [param for param in self.params if id(param) in found]

    def saw(self, params: Iterable[Tensor]) -> bool:
        """Whether it is known what the backward brought to each of them."""
        return all(id(param) in self._squares for param in params)

    def expected(self, params: Iterable[Tensor]) -> float:
        """The norm of what the backward brought to them."""
        return math.sqrt(sum(self._squares.get(id(param), 0.0) for param in params))

    def remove(self) -> None:
        """Leave no hook behind."""
        for handle in self._handles:
            handle.remove()
        self._handles.clear()


def measured(touch: Touch, params: Sequence[Tensor], names: Sequence[str]) -> Measured | None:
    """The numbers of a backward that added onto what was there, as far as they were seen."""
    if not touch.saw(params):
        return None
    squares = (
        float(plain(one.grad).double().norm()) ** 2 for one in params if one.grad is not None
    )
    got = math.sqrt(sum(squares))
    shard = any(map(_is_sharded, params))
    return Measured(touch.expected(params), got, tuple(names[:MOST_NAMES]), len(params), shard)


def copies(params: Sequence[Tensor]) -> dict[int, Tensor]:
    """What this process holds of gradients, copied, by parameter; of too many, or with no memory, none."""
    grads = {id(param): plain(param.grad) for param in params if param.grad is not None}
    if sum(grad.numel() * grad.element_size() for grad in grads.values()) > MOST_BYTES:
        return {}
    with suppress(RuntimeError):
        return {key: grad.clone() for key, grad in grads.items()}
    return {}


def _is_sharded(param: Tensor) -> bool:
    return hasattr(param, "device_mesh")


class Versions:
    """Whether gradients were written to since: exact for what one backward does to plain tensors."""

    def __init__(
        self, params: Sequence[Tensor], version: Callable[[Tensor], int] = _VERSION
    ) -> None:
        self.params = params
        self._version = version
        self._grads = list(map(_GRAD, params))
        self._versions = _versions(self._grads, version)
        self._changed: list[Tensor] | None = None

    def changed(self) -> list[Tensor]:
        """The parameters whose gradient was another object, or written to, when first asked."""
        if self._changed is None:
            now = list(map(_GRAD, self.params))
            seen = zip(
                self.params,
                now,
                self._grads,
                _versions(now, self._version),
                self._versions,
                strict=True,
            )
            self._changed = [
                param
                for param, grad, grad_before, version, version_before in seen
                if grad is not grad_before or version != version_before
            ]
        return self._changed


def _versions(grads: Iterable[Tensor | None], version: Callable[[Tensor], int]) -> list[int]:
    return [-1 if grad is None else version(grad) for grad in grads]


def version(grad: Tensor) -> int:
    """How often a gradient was written to; of a distributed one, what this process holds of it."""
    # FSDP2 writes to the tensor inside, and the version of the one outside stands still.
    inside = getattr(grad, "_local_tensor", None)
    return grad._version if inside is None else grad._version + int(inside._version)
