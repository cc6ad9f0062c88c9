"""Fingerprints: a few numbers about one step of a rank that other ranks compare with their own.

They are exact: sums of bit patterns, which are the same in whatever order they are added up. A
fingerprint is stored as a line of JSON, and equal fingerprints are equal lines.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, NamedTuple

from zerograd.runtime.gradient_values import numbers

MOST_SUMS = 16
"""How many sums a fingerprint has at most: with more parameters, the sums of neighbours are added."""


class Fingerprint(NamedTuple):
    """What a rank holds just before a step."""

    step: int
    syncs: int
    """How many backward calls were synchronised until then."""
    rates: list[float]
    scale: float | None
    parameters: list[int]
    gradients: list[int]

    def line(self) -> str:
        """The fingerprint as a line of JSON."""
        return json.dumps(self)


def read(line: str) -> Fingerprint:
    """The fingerprint in a line of JSON."""
    return Fingerprint(*json.loads(line))


def of_step(step: int, lines: Sequence[str]) -> str | None:
    """The line of a step; None if there is none."""
    return next((line for line in lines if line.startswith(f"[{step},")), None)


def taken(
    step: int,
    syncs: int,
    groups: Sequence[dict[str, Any]],
    scaler: Any,
    parameters: Sequence[Any],
    gradients: Sequence[Any],
) -> Fingerprint:
    """The fingerprint of a step. All tensors are summed together: that takes half the time."""
    sums = _sums([*parameters, *gradients])
    return Fingerprint(
        step,
        syncs,
        [float(one["lr"]) for one in groups if "lr" in one],
        scaler.get_scale() if scaler is not None else None,
        _few(sums[: len(parameters)]),
        _few(sums[len(parameters) :]),
    )


def difference(mine: Fingerprint, other: Fingerprint, *, twins: bool) -> str:
    """What differs between two fingerprints of one step: the cause rather than its effects."""
    if mine.syncs != other.syncs:
        return "steps"
    if mine.rates != other.rates:
        return "learning rate"
    if mine.scale != other.scale:
        return "scale"
    # If only one has a gradient, the ranks took different branches of the model: that is not a difference.
    if twins and _apart(mine.parameters, other.parameters):
        return "parameters"
    if twins and _apart(mine.gradients, other.gradients):
        return "gradients"
    return ""


def values(what: str, mine: Fingerprint, other: Fingerprint) -> tuple[str, str]:
    """The two values that differ, if they are worth printing."""
    if what == "steps":
        return str(mine.syncs), str(other.syncs)
    if what == "learning rate":
        pairs = zip(mine.rates, other.rates, strict=False)
    elif what == "scale":
        pairs = zip([mine.scale or 0.0], [other.scale or 0.0], strict=True)
    else:
        return "", ""
    return next(((f"{a:g}", f"{b:g}") for a, b in pairs if a != b), ("", ""))


def behind(tensors: Sequence[Any], mine: Sequence[int], other: Sequence[int]) -> list[Any]:
    """The tensors whose sums differ."""
    width = _width(len(tensors))
    found: list[Any] = []
    for number, (here, there) in enumerate(zip(mine, other, strict=False)):
        if here != there:
            found += tensors[number * width : (number + 1) * width]
    return found


def _apart(mine: Sequence[int], other: Sequence[int]) -> bool:
    return len(mine) == len(other) and mine != other


def _few(sums: Sequence[int]) -> list[int]:
    """At most MOST_SUMS sums: those of neighbours are added."""
    width = _width(len(sums))
    return [sum(sums[at : at + width]) for at in range(0, len(sums), width)]


def _width(number: int) -> int:
    return max(-(-number // MOST_SUMS), 1)


def _sums(tensors: Sequence[Any]) -> list[int]:
    """The sum of each tensor."""
    import torch

    return numbers([_bits(torch, one) for one in tensors])


def _bits(torch: Any, tensor: Any) -> Any:
    """The sum of a tensor's numbers, read as integers: an overflow is the same on all ranks.

    An integer has no gradient, so that autograd takes no note of this.
    """
    if type(tensor) not in (torch.Tensor, torch.nn.Parameter) and hasattr(tensor, "to_local"):
        tensor = tensor.detach().to_local()
    if tensor.is_sparse:
        tensor = tensor.coalesce().values()
    if tensor.is_complex():
        tensor = torch.view_as_real(tensor.resolve_conj())
    size = tensor.element_size()
    if size in (4, 8):
        kind = torch.int32 if size == 4 else torch.int64
        return tensor.view(kind).sum(dtype=kind)
    kind = torch.int16 if size == 2 else torch.uint8
    return tensor.view(kind).sum(dtype=torch.int64)
