"""What is read of gradients and parameters, against torch itself."""

from __future__ import annotations

import math

import pytest
import torch
from torch import nn

from zerograd.runtime.gradient_values import has_finite_bytes, holding

FLOATS = [torch.float16, torch.bfloat16, torch.float32, torch.float64]


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("place", [0, 1, 9])
def test_inf_and_nan_are_seen_in_memory_at_any_place(dtype: torch.dtype, place: int) -> None:
    limits = torch.finfo(dtype)
    for number in (0.0, -0.0, 1.0, limits.max, limits.min, limits.tiny, limits.tiny / 2):
        values = torch.full((10,), number, dtype=dtype)
        assert has_finite_bytes(values, 10) is True
        for bad in (math.inf, -math.inf, math.nan):
            values[place] = bad
            assert has_finite_bytes(values, 10) is False
            assert has_finite_bytes(nn.Parameter(values), 1024) is False
            assert has_finite_bytes(values, place) is (None if place == 0 else True)


def test_what_cannot_be_read_in_one_piece_is_not_known() -> None:
    wide = torch.full((4, 4), math.nan)
    assert has_finite_bytes(wide.t()[:2], 4) is None
    assert has_finite_bytes(wide.to_sparse(), 4) is None
    assert has_finite_bytes(wide.to(torch.complex64), 4) is None
    assert has_finite_bytes(torch.ones(4, dtype=torch.int64), 4) is None
    assert has_finite_bytes(torch.empty(0), 4) is None
    assert has_finite_bytes(torch.empty(4, device="meta"), 4) is None


def test_the_parameters_that_hold_gradients_keep_their_order() -> None:
    params = [nn.Parameter(torch.ones(1)) for _ in range(5)]
    for param in (params[3], params[0]):
        param.grad = torch.zeros(1)
    assert [id(one) for one in holding(iter(params))] == [id(params[0]), id(params[3])]
