"""Checks of the arguments of `Stepper`. Each error names the argument and says what to do instead."""

from __future__ import annotations

import inspect
import math
from collections.abc import Iterable, Sequence
from typing import Any, TypeVar, cast

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from zerograd.stepper.sharing import SingleProcess

T = TypeVar("T")


def check_order(modules: object) -> None:
    """Refuse swapped arguments."""
    first = next(iter(modules), None) if isinstance(modules, (list, tuple)) else modules
    if isinstance(first, Optimizer):
        raise TypeError("the modules come first: Stepper(model, optimizer)")


def as_list(value: T | Iterable[T], kind: type, what: str) -> list[T]:
    """One or several, as a list of at least one."""
    several = isinstance(value, Iterable) and not isinstance(value, kind)
    found: list[Any] = list(cast("Iterable[T]", value)) if several else [value]
    for one in found:
        if not isinstance(one, kind):
            raise TypeError(
                f"{what} must be one {kind.__name__} or several, not {type(one).__name__}"
            )
    if not found:
        raise ValueError(f"{what} is empty: there is nothing to train")
    return found


def parameters(optimizers: Iterable[Optimizer]) -> list[Tensor]:
    """The parameters of these optimizers, in their order."""
    return [
        param
        for optimizer in optimizers
        for group in optimizer.param_groups
        for param in group["params"]
    ]


def check_optimizers(
    modules: Sequence[nn.Module], optimizers: Sequence[Optimizer], scaler: Any
) -> None:
    """Refuse optimizers that need a closure, share parameters, or train another model.

    Refuse fp16 parameters under a scaler, too.
    """
    for optimizer in optimizers:
        name = type(optimizer).__name__
        closure = inspect.signature(type(optimizer).step).parameters.get("closure")
        if closure is not None and closure.default is closure.empty:
            raise TypeError(
                f"{name} runs backward itself, in the closure that its step() needs, and as often"
                " as it wants: a stepper cannot count that. Write the loop yourself: call"
                " optimizer.step(closure), with zero_grad() and backward() in the closure"
            )
    params = parameters(optimizers)
    if len({id(param) for param in params}) < len(params):
        raise ValueError(
            "two optimizers step the same parameter: give each parameter to one optimizer"
        )
    known = {id(param) for module in modules for param in module.parameters()}
    for optimizer in optimizers:
        if not any(id(param) in known for param in parameters([optimizer])):
            raise ValueError(
                f"none of {type(optimizer).__name__}'s parameters belong to the model: make the"
                " optimizer after the model has its final parameters (moved, wrapped, sharded)"
            )
    if scaler is not None and any(param.dtype == torch.float16 for param in params):
        raise ValueError(
            "a GradScaler cannot unscale the gradients of fp16 parameters: keep the parameters in"
            " fp32 and run the forward under torch.autocast"
        )


def check_window_size(accumulate: int | None, accumulate_weight: float | None) -> None:
    """A window is closed by a number of batches or by a weight."""
    if accumulate is not None and accumulate_weight is not None:
        raise ValueError("accumulate= and accumulate_weight= cannot both close a window: give one")
    if accumulate is not None:
        if isinstance(accumulate, bool) or not isinstance(accumulate, int):
            raise TypeError(f"accumulate must be a whole number, not {accumulate!r}")
        if accumulate < 1:
            raise ValueError(f"accumulate={accumulate}: a window needs at least one batch")
    _check_positive("accumulate_weight", accumulate_weight)


def check_clipping(clip_norm: float | None, clip_value: float | None) -> None:
    """Gradients are clipped in one way."""
    if clip_norm is not None and clip_value is not None:
        raise ValueError("clip_norm= and clip_value= cannot both clip the gradients: give one")
    _check_positive("clip_norm", clip_norm)
    _check_positive("clip_value", clip_value)


def check_choice(name: str, value: str, *known: str) -> None:
    """An option has one of a few values."""
    if value not in known:
        raise ValueError(f"{name} must be {' or '.join(map(repr, known))}, not {value!r}")


def check_accumulate_dtype(*, scaled: bool, ranks: SingleProcess) -> None:
    """Refuse what `accumulate_dtype` cannot be combined with."""
    _refuse(
        "accumulate_dtype",
        {
            "scaler": (scaled, "a scaler is for fp16, accumulate_dtype for bf16"),
            "FSDP2": (
                ranks.sharded,
                "pass MixedPrecisionPolicy(reduce_dtype=...) to fully_shard() instead",
            ),
        },
    )


def check_free_gradients(
    *,
    windows: bool,
    clip_norm: bool,
    scaled: bool,
    skip_nonfinite: bool,
    accumulate_dtype: bool,
    ranks: SingleProcess,
) -> None:
    """Refuse what `free_gradients` cannot be combined with."""
    needs_all = "it needs all gradients of a window at once"
    averages_later = "it averages gradients after the backward"
    _refuse(
        "free_gradients",
        {
            "accumulate": (windows, "a longer window keeps the gradients"),
            "clip_norm": (clip_norm, needs_all),
            "scaler": (scaled, needs_all),
            "skip_nonfinite": (skip_nonfinite, needs_all),
            "accumulate_dtype": (accumulate_dtype, "nothing is accumulated"),
            "DDP": (ranks.size > 1 and not ranks.sharded, averages_later),
            "FSDP2": (ranks.sharded, averages_later),
        },
    )


def as_schedulers(scheduler: Any) -> list[Any]:
    """One scheduler, several or none, as a list. Refuse those whose step() needs an argument."""
    schedulers = [] if scheduler is None else scheduler
    schedulers = list(schedulers) if isinstance(schedulers, Iterable) else [schedulers]
    for one in schedulers:
        for name, argument in inspect.signature(one.step).parameters.items():
            if (
                argument.default is argument.empty
                and argument.kind is argument.POSITIONAL_OR_KEYWORD
            ):
                raise TypeError(
                    f"{type(one).__name__}.step() needs {name}, which a stepper does not know:"
                    " step it yourself, when stepper.last_step.stepped is true"
                )
    return schedulers


def _check_positive(name: str, value: float | None) -> None:
    if value is not None and not (0 < value < math.inf):
        raise ValueError(f"{name}={value}: it must be above 0 and finite")


def _refuse(name: str, others: dict[str, tuple[bool, str]]) -> None:
    """Each combination: whether it was asked for, and why it is refused."""
    for other, (present, why) in others.items():
        if present:
            raise ValueError(f"{name} cannot be combined with {other}: {why}")
