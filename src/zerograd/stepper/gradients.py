"""The gradients of one stepper's parameters: held, set aside, multiplied, measured.

Between two backward calls of an open window they are in `.grad`, or, while another stepper has a
window open too, aside; with an `accumulate_dtype` they are always aside.
"""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import Tensor

from zerograd.stepper.weights import Amount

Held = list[Tensor | None]

_LOW = (torch.float16, torch.bfloat16)


def multiply(grads: list[Tensor], factor: Amount) -> None:
    """Multiply all gradients in place."""
    dense = [grad for grad in grads if not grad.is_sparse]
    if dense:
        torch._foreach_mul_(dense, factor)
    for grad in grads:
        if grad.is_sparse:
            grad.mul_(factor)


def total_norm(grads: list[Tensor]) -> Tensor:
    """The norm of all gradients as one vector; under FSDP2 that of all shards, on every rank."""
    parts = [grad.coalesce().values() if grad.is_sparse else grad for grad in grads]
    low = any(part.dtype in _LOW for part in parts)
    norms = torch._foreach_norm(parts, 2, torch.float32 if low else None)
    if len({(norm.device, norm.dtype) for norm in norms}) > 1:
        norms = tuple(norm.to(norms[0]) for norm in norms)
    total = torch.linalg.vector_norm(torch.stack(norms))
    full = getattr(total, "full_tensor", None)  # a DTensor's, summed over the ranks
    return total if full is None else full()  # type: ignore[no-any-return]


class Gradients:
    """What has been accumulated for these parameters."""

    def __init__(self, dtype: torch.dtype | None) -> None:
        self.params: list[Tensor] = []
        self.ids: set[int] = set()
        self._dtype = dtype
        self._aside: Held | None = None

    def of(self, params: Iterable[Tensor]) -> None:
        """A window opens over these parameters, with nothing in them."""
        self.params = list(params)
        self.ids = set(map(id, self.params))
        self._aside = None if self._dtype is None else [None] * len(self.params)

    def put_aside(self, copy: bool = False) -> None:
        """Make room in `.grad` for somebody else's backward.

        Where gradients are views of DDP's buckets, that backward would write into them: a copy then.
        """
        if self._aside is None:
            self._aside = [
                param.grad.clone() if copy and param.grad is not None else param.grad
                for param in self.params
            ]
            for param in self.params:
                param.grad = None

    def put_back(self) -> None:
        """Have our own in `.grad` again, and nothing else; with a dtype of our own, nothing."""
        if self._dtype is not None:
            for param in self.params:
                param.grad = None
        elif self._aside is not None:
            for param, grad in zip(self.params, self._aside, strict=True):
                param.grad = grad
            self._aside = None

    def add_up(self) -> None:
        """With a dtype of our own: take what a backward has left in `.grad`."""
        if self._dtype is None or self._aside is None:
            return
        for index, param in enumerate(self.params):
            new = param.grad
            if new is not None:
                held = self._aside[index]
                if held is None:
                    self._aside[index] = new.to(self._dtype)
                else:
                    held.add_(new)
                param.grad = None

    def lay_open(self) -> None:
        """With a dtype of our own: all of it into `.grad`, for a backward that synchronises."""
        if self._dtype is not None and self._aside is not None:
            for index, (param, held) in enumerate(zip(self.params, self._aside, strict=True)):
                if held is not None:
                    param.grad = held.to(param.dtype)
                    self._aside[index] = None

    def present(self) -> list[Tensor]:
        """The gradients there are, where they are."""
        if self._aside is not None:
            return [grad for grad in self._aside if grad is not None]
        return [param.grad for param in self.params if param.grad is not None]

    def copies(self) -> Held:
        """A copy of them, for a checkpoint."""
        held = self._aside if self._aside is not None else [param.grad for param in self.params]
        return [None if grad is None else grad.detach().clone() for grad in held]

    def restore(self, params: Iterable[Tensor], held: Held) -> None:
        """The gradients of a checkpoint, set aside until their window goes on."""
        self.of(params)
        self._aside = [
            None if grad is None else grad.to(param.device, copy=True)
            for param, grad in zip(self.params, held, strict=True)
        ]

    def dirty(self) -> bool:
        """Whether `.grad` holds anything."""
        return any(param.grad is not None for param in self.params)

    def forget(self) -> None:
        """Nothing is held any more; `.grad` is the caller's to clear."""
        self._aside = None if self._dtype is None else [None] * len(self.params)
