"""The gradients that one stepper has accumulated.

Between two backward calls of an open window the gradients are in `.grad`. They are held outside
`.grad` while another stepper uses the same parameters, and always with an `accumulate_dtype`.
"""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import Tensor

from zerograd.stepper.weights import Scalar

Held = list[Tensor | None]

_LOW_PRECISION = (torch.float16, torch.bfloat16)


def multiply(grads: list[Tensor], factor: Scalar) -> None:
    """Multiply all gradients in place."""
    dense = [grad for grad in grads if not grad.is_sparse]
    if dense:
        torch._foreach_mul_(dense, factor)
    for grad in grads:
        if grad.is_sparse:
            grad.mul_(factor)


def total_norm(grads: list[Tensor]) -> Tensor:
    """The norm of all gradients as one vector. Under FSDP2 it covers the shards of all ranks."""
    parts = [grad.coalesce().values() if grad.is_sparse else grad for grad in grads]
    low = any(part.dtype in _LOW_PRECISION for part in parts)
    norms = torch._foreach_norm(parts, 2, torch.float32 if low else None)
    if len({(norm.device, norm.dtype) for norm in norms}) > 1:
        norms = tuple(norm.to(norms[0]) for norm in norms)
    total = torch.linalg.vector_norm(torch.stack(norms))
    full = getattr(total, "full_tensor", None)  # a DTensor is summed over the ranks
    return total if full is None else full()  # type: ignore[no-any-return]


class Gradients:
    """The accumulated gradients of these parameters."""

    def __init__(self, dtype: torch.dtype | None) -> None:
        self.params: list[Tensor] = []
        self.ids: set[int] = set()
        self._dtype = dtype
        self._held: Held | None = None
        """The gradients outside `.grad`, in the order of the parameters."""
        self._kept = 0
        """The number of gradients after the last backward."""

    def track(self, params: Iterable[Tensor]) -> None:
        """Start over with these parameters and no gradients."""
        self.params = list(params)
        self.ids = set(map(id, self.params))
        self.forget()

    def move_out(self, copy: bool = False) -> None:
        """Move the gradients out of `.grad`, so that another stepper can use it.

        `copy` is for gradients that are views of DDP's buckets, which the next backward overwrites.
        """
        if self._held is None:
            self._held = [
                param.grad.clone() if copy and param.grad is not None else param.grad
                for param in self.params
            ]
            for param in self.params:
                param.grad = None

    def move_in(self) -> None:
        """Move the gradients back into `.grad`. With an `accumulate_dtype`, empty `.grad`."""
        if self._dtype is not None:
            for param in self.params:
                param.grad = None
        elif self._held is not None:
            for param, grad in zip(self.params, self._held, strict=True):
                param.grad = grad
            self._held = None

    def accumulate(self) -> None:
        """After a backward. With an `accumulate_dtype`, add `.grad` to the held gradients."""
        if self._dtype is None or self._held is None:
            self._kept = len(self.present())
            return
        for index, param in enumerate(self.params):
            new = param.grad
            if new is not None:
                held = self._held[index]
                if held is None:
                    self._held[index] = new.to(self._dtype)
                else:
                    held.add_(new)
                param.grad = None

    def write_grad(self) -> None:
        """With an `accumulate_dtype`: write the sum to `.grad`, for a synchronisation or a step."""
        if self._dtype is not None and self._held is not None:
            for index, (param, held) in enumerate(zip(self.params, self._held, strict=True)):
                if held is not None:
                    param.grad = held.to(param.dtype)
                    self._held[index] = None

    def present(self) -> list[Tensor]:
        """The gradients that are not None."""
        if self._held is not None:
            return [grad for grad in self._held if grad is not None]
        return [param.grad for param in self.params if param.grad is not None]

    def copies(self) -> Held:
        """Copies for a checkpoint."""
        held = self._held if self._held is not None else [param.grad for param in self.params]
        return [None if grad is None else grad.detach().clone() for grad in held]

    def load(self, params: Iterable[Tensor], held: Held) -> None:
        """Take the gradients of a checkpoint, and hold them until the window continues."""
        self.track(params)
        self._held = [
            None if grad is None else grad.to(param.device, copy=True)
            for param, grad in zip(self.params, held, strict=True)
        ]

    def check_kept(self) -> None:
        """Refuse to continue a window that somebody has cleared."""
        if len(self.present()) < self._kept:
            raise RuntimeError(
                "gradients of the open window were cleared since its last batch (model.zero_grad(),"
                " or .grad = None): remove that. The stepper clears when a window opens and when it"
                " closes; to leave a batch out, `continue`"
            )

    def any_grad(self) -> bool:
        """Whether any `.grad` is set."""
        return any(param.grad is not None for param in self.params)

    def forget(self) -> None:
        """Drop the held gradients. The caller clears `.grad`."""
        self._held = None if self._dtype is None else [None] * len(self.params)
        self._kept = 0
