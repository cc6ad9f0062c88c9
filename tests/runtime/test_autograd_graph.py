"""Which leaves a walk through the graph of a loss finds."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from zerograd.runtime.autograd_graph import leaves


class _Doubled(torch.autograd.Function):
    """A function of the program that keeps something under the name that torch uses for leaves."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        ctx.variable = 3
        return 2 * x

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        return (ctx.variable - 1) * grads[0]


def test_every_leaf_is_found_once_and_the_first_layers_come_first() -> None:
    first, second = nn.Linear(2, 2), nn.Linear(2, 1)
    loss = second(first(torch.ones(1, 2)) + first(torch.zeros(1, 2))).sum()
    found = leaves((loss,))
    assert set(map(id, found)) == set(map(id, (*first.parameters(), *second.parameters())))
    assert len(found) == 4
    assert {id(one) for one in found[:2]} == set(map(id, first.parameters()))


def test_what_a_function_of_the_program_keeps_is_no_leaf() -> None:
    layer = nn.Linear(2, 1)
    loss = _Doubled.apply(layer(torch.ones(1, 2))).sum()  # type: ignore[no-untyped-call]
    assert set(map(id, leaves((loss,)))) == set(map(id, layer.parameters()))
