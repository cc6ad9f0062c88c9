"""Optimizer-in-backward: each gradient is used and freed as soon as it is complete.

Each parameter is stepped by a view of its optimizer. The view shares the optimizer's state but has
this one parameter only. Checkpoints and schedulers see the optimizer that the user made.
"""

from __future__ import annotations

import weakref
from typing import Any

from torch import Tensor
from torch.nn.utils import clip_grad_value_
from torch.optim import Optimizer


class InBackward:
    """A context manager: inside it, backward steps each parameter when its gradient is complete."""

    def __init__(self, optimizers: list[Optimizer], clip_value: float | None) -> None:
        self._optimizers = optimizers
        self._clip_value = clip_value
        self._views: dict[int, tuple[Optimizer, dict[str, Any]]] = {}
        self._done: set[int] = set()
        self._active = False

    def __enter__(self) -> None:
        for optimizer in self._optimizers:
            for group in optimizer.param_groups:
                for param in group["params"]:
                    if id(param) not in self._views:
                        self._views[id(param)] = _view(optimizer, param), group
                        self._add_hook(param)
        self._done.clear()
        self._active = True

    def __exit__(self, *raised: object) -> None:
        self._active = False
        if self._done:
            for optimizer in self._optimizers:
                # Without this a scheduler warns that it stepped before the optimizer.
                optimizer._opt_called = True  # type: ignore[attr-defined]

    def _add_hook(self, param: Tensor) -> None:
        weak_self = weakref.ref(self)

        def completed(param: Tensor) -> None:
            found = weak_self()
            if found is not None and found._active:
                found._step(param)

        handle = param.register_post_accumulate_grad_hook(completed)  # type: ignore[no-untyped-call]
        weakref.finalize(self, handle.remove)

    def _step(self, param: Tensor) -> None:
        if id(param) in self._done:
            raise RuntimeError(
                "a parameter got a second gradient in one backward, after free_gradients had used"
                " the first (a reentrant checkpoint does that): set use_reentrant=False or"
                " free_gradients=False"
            )
        self._done.add(id(param))
        view, group = self._views[id(param)]
        options = {name: value for name, value in group.items() if name != "params"}
        (own,) = view.param_groups
        own.update(options)
        if self._clip_value is not None:
            clip_grad_value_([param], self._clip_value)
        # Call the class's step(): a scheduler has wrapped the step() of the user's instance.
        type(view).step(view)
        param.grad = None
        if any(own[name] is not value for name, value in options.items()):
            raise TypeError(
                f"{type(view).__name__} keeps state of all parameters together, so it cannot step"
                " them one by one: set free_gradients=False"
            )


def _view(optimizer: Optimizer, param: Tensor) -> Optimizer:
    """The same optimizer for one parameter."""
    view = object.__new__(type(optimizer))
    view.__dict__.update(optimizer.__dict__)
    view.param_groups = [{"params": [param]}]
    return view
