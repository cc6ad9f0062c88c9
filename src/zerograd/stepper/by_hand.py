"""While the loop of a stepper runs, nobody else fills, uses or clears its gradients.

A call by hand is refused where it is made: `loss.backward()`, `optimizer.step()` and
`optimizer.zero_grad()`. `Gradients` notices other ways to clear when the window continues.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Iterable
from functools import partial
from types import FrameType
from typing import Any

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


class _Loop:
    """The function that runs the loop. A traceback may hold a loop whose function has ended."""

    def __init__(self) -> None:
        self._function: tuple[int, object] | None = None  # not the frame: it would hold the loop

    def advances(self, frame: FrameType | None) -> None:
        """A frame asks for a batch. An iterator, as of a progress bar, asks for its caller."""
        while frame is not None and (
            frame.f_code.co_flags & inspect.CO_GENERATOR or frame.f_code.co_name == "__next__"
        ):
            frame = frame.f_back
        self._function = None if frame is None else (id(frame), frame.f_code)

    def runs(self) -> bool:
        """Whether that function is running, in any thread."""
        for frame in sys._current_frames().values():
            outer: FrameType | None = frame
            while outer is not None:
                if self._function == (id(outer), outer.f_code):
                    return True
                outer = outer.f_back
        return False

    def refuse(self, what: str, way_out: str) -> None:
        """Refuse a call by hand, if it is made while the loop runs."""
        if not working.depth and self.runs():
            raise RuntimeError(f"{what}: {way_out}")


class ByHand:
    """Refuses calls by hand on the parameters and optimizers of one stepper."""

    def __init__(self, optimizers: Iterable[Optimizer]) -> None:
        self._optimizers = list(optimizers)
        self._filling: dict[Tensor, Any] = {}
        self._stepping: list[Any] = []
        self._loop = _Loop()
        self.advances = self._loop.advances

    def refuse(self, params: Iterable[Tensor]) -> None:
        """From now on refuse. Called again, it adds parameters that were frozen or unknown."""
        for param in params:
            if param.requires_grad and param not in self._filling:
                self._filling[param] = param.register_post_accumulate_grad_hook(  # type: ignore[no-untyped-call]
                    partial(_no_backward, self._loop)
                )
        if not self._stepping:
            for optimizer in self._optimizers:
                if hasattr(optimizer, "_optimizer_step_pre_hooks"):  # a wrapper may have none
                    self._stepping.append(
                        optimizer.register_step_pre_hook(partial(_no_step, self._loop))
                    )
                # torch has no hook for it. Copies and checkpoints of an optimizer leave it out.
                vars(optimizer).setdefault("zero_grad", _NoClear(self._loop, optimizer))

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

    def __init__(self, loop: _Loop, optimizer: Optimizer) -> None:
        self._loop = loop
        self._optimizer = optimizer

    def __call__(self, *args: Any, **options: Any) -> None:
        self._loop.refuse(
            "zero_grad() inside the loop of a stepper",
            "it would drop gradients of the open window. Remove the call: the stepper clears when a"
            " window opens and when it closes",
        )
        type(self._optimizer).zero_grad(self._optimizer, *args, **options)


def _no_backward(loop: _Loop, param: Tensor) -> None:
    if not working.depth:
        loop.refuse(
            "a plain backward() inside the loop of a stepper reached its parameters",
            "the stepper would not count, weight or use this gradient. Call stepper.backward(loss)."
            " For another model's loss, give that model its own stepper; for a gradient that no"
            " step uses, call torch.autograd.grad()",
        )


def _no_step(loop: _Loop, *called: object) -> None:
    loop.refuse(
        "optimizer.step() inside the loop of a stepper",
        "stepper.backward() has stepped, or will when the window is full. Remove the call; to step"
        " before the window is full, call stepper.flush()",
    )
