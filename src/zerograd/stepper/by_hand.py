"""While the loop of a stepper runs, nobody else fills, uses or clears its gradients.

A call by hand is refused where it is made: `loss.backward()`, `optimizer.step()` and
`optimizer.zero_grad()`. `Gradients` notices other ways to clear when the window continues.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NoReturn

from torch import Tensor
from torch.optim import Optimizer


class _Working:
    """A context manager: inside it, a stepper does the work. Steppers may work inside each other."""

    depth = 0

    def __enter__(self) -> None:
        self.depth += 1

    def __exit__(self, *raised: object) -> None:
        self.depth -= 1


working = _Working()
"""One for all steppers, because two of them may share parameters and optimizers."""


class ByHand:
    """Refuses calls by hand on the parameters and optimizers of one stepper."""

    def __init__(self, optimizers: Iterable[Optimizer]) -> None:
        self._optimizers = list(optimizers)
        self._filling: dict[Tensor, Any] = {}
        self._stepping: list[Any] = []

    def refuse(self, params: Iterable[Tensor]) -> None:
        """From now on refuse. Called again, it adds parameters that were frozen or unknown."""
        for param in params:
            if param.requires_grad and param not in self._filling:
                self._filling[param] = param.register_post_accumulate_grad_hook(_no_backward)  # type: ignore[no-untyped-call]
        if not self._stepping:
            for optimizer in self._optimizers:
                if hasattr(optimizer, "_optimizer_step_pre_hooks"):  # a wrapper may have none
                    self._stepping.append(optimizer.register_step_pre_hook(_no_step))
                # torch has no hook for it. Copies and checkpoints of an optimizer leave it out.
                vars(optimizer).setdefault("zero_grad", _NoClear(optimizer))

    def allow(self) -> None:
        """Refuse nothing any more."""
        for handle in (*self._filling.values(), *self._stepping):
            handle.remove()
        self._filling.clear()
        self._stepping.clear()
        for optimizer in self._optimizers:
            if isinstance(vars(optimizer).get("zero_grad"), _NoClear):
                del vars(optimizer)["zero_grad"]


class _NoClear:
    """The `zero_grad()` of an optimizer, for steppers only."""

    def __init__(self, optimizer: Optimizer) -> None:
        self._optimizer = optimizer

    def __call__(self, *args: Any, **options: Any) -> None:
        if not working.depth:
            _refuse(
                "zero_grad() inside the loop of a stepper",
                "it would drop gradients of the open window. Remove the call: the stepper clears"
                " when a window opens and when it closes",
            )
        type(self._optimizer).zero_grad(self._optimizer, *args, **options)


def _no_backward(param: Tensor) -> None:
    if not working.depth:
        _refuse(
            "a plain backward() inside the loop of a stepper reached its parameters",
            "the stepper would not count, weight or use this gradient. Call stepper.backward(loss)."
            " For another model's loss, give that model its own stepper; for a gradient that no"
            " step uses, call torch.autograd.grad()",
        )


def _no_step(*called: object) -> None:
    if not working.depth:
        _refuse(
            "optimizer.step() inside the loop of a stepper",
            "stepper.backward() has stepped, or will when the window is full. Remove the call; to"
            " step before the window is full, call stepper.flush()",
        )


def _refuse(what: str, way_out: str) -> NoReturn:
    raise RuntimeError(f"{what}: {way_out}. (A loop that was left runs while something holds it.)")
