"""What cannot be right is refused when a stepper is made, by name and with the way out."""

from __future__ import annotations

import inspect
import math
from collections.abc import Iterable, Sequence
from typing import Any, TypeVar, cast

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

T = TypeVar("T")


def listed(value: T | Iterable[T], kind: type, what: str) -> list[T]:
    """One or several, as a list of at least one."""
    found: list[Any] = [value] if isinstance(value, kind) else list(cast("Iterable[T]", value))
    for one in found:
        if not isinstance(one, kind):
            raise TypeError(f"{what} is a {kind.__name__} or several, not {type(one).__name__}")
    if not found:
        raise ValueError(f"{what}: an empty list leaves nothing to train")
    return found


def parameters(optimizers: Iterable[Optimizer]) -> list[Tensor]:
    """What these optimizers step, in their order."""
    return [
        param
        for optimizer in optimizers
        for group in optimizer.param_groups
        for param in group["params"]
    ]


def unfit(modules: Sequence[nn.Module], optimizers: Sequence[Optimizer], scaler: Any) -> None:
    """Optimizers that need a closure, share parameters, or are not the modules'; fp16 under a scaler."""
    for optimizer in optimizers:
        name = type(optimizer).__name__
        closure = inspect.signature(type(optimizer).step).parameters.get("closure")
        if closure is not None and closure.default is closure.empty:
            raise TypeError(
                f"{name} runs backward itself, from the closure that its step() needs, as often as"
                " it likes: a stepper cannot count that. Call optimizer.step(closure) in a loop of"
                " your own, with zero_grad() and backward() in the closure"
            )
    params = parameters(optimizers)
    if len({id(param) for param in params}) < len(params):
        raise ValueError(
            "two optimizers step the same parameter: give each parameter to one of them"
        )
    known = {id(param) for module in modules for param in module.parameters()}
    for optimizer in optimizers:
        if not any(id(param) in known for param in parameters([optimizer])):
            raise ValueError(
                f"none of {type(optimizer).__name__}'s parameters are the model's: make the"
                " optimizer after the model has its final parameters (moved, wrapped, sharded)"
            )
    if scaler is not None and any(param.dtype == torch.float16 for param in params):
        raise ValueError(
            "a GradScaler cannot unscale the gradients of fp16 parameters: keep the parameters in"
            " fp32 and run the forward under torch.autocast"
        )


def windows(accumulate: int | None, accumulate_weight: float | None) -> None:
    """A window has a length or a weight."""
    if accumulate is not None and accumulate_weight is not None:
        raise ValueError("a window is closed by accumulate= or by accumulate_weight=, not by both")
    if accumulate is not None:
        if isinstance(accumulate, bool) or not isinstance(accumulate, int):
            raise TypeError(f"accumulate is a whole number, not {accumulate!r}")
        if accumulate < 1:
            raise ValueError(f"accumulate={accumulate}: a window holds at least one batch")
    _positive("accumulate_weight", accumulate_weight)


def clips(clip_norm: float | None, clip_value: float | None) -> None:
    """Gradients are clipped in one way."""
    if clip_norm is not None and clip_value is not None:
        raise ValueError("gradients are clipped by clip_norm= or by clip_value=, not by both")
    _positive("clip_norm", clip_norm)
    _positive("clip_value", clip_value)


def other_words(name: str, word: str, *known: str) -> None:
    """An option that is one of a few words."""
    if word not in known:
        raise ValueError(f"{name} is {' or '.join(map(repr, known))}, not {word!r}")


def _positive(name: str, value: float | None) -> None:
    if value is not None and not (0 < value < math.inf):
        raise ValueError(f"{name}={value}: it must be above 0 and finite")


def together(name: str, others: dict[str, tuple[bool, str]]) -> None:
    """What an option cannot be combined with, each with its reason."""
    for other, (present, why) in others.items():
        if present:
            raise ValueError(f"{name} cannot be combined with {other}: {why}")


def demanding(scheduler: Any) -> list[Any]:
    """One scheduler, several or none, as a list; not those that must be told something."""
    schedulers = [] if scheduler is None else scheduler
    schedulers = list(schedulers) if isinstance(schedulers, Iterable) else [schedulers]
    for one in schedulers:
        for name, told in inspect.signature(one.step).parameters.items():
            if told.default is told.empty and told.kind is told.POSITIONAL_OR_KEYWORD:
                raise TypeError(
                    f"{type(one).__name__}.step() needs {name}, which a stepper does not know:"
                    " step it yourself, when stepper.last_step.stepped"
                )
    return schedulers
