"""A clip at the wrong place is found, however the function was imported."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.utils
import torch.nn.utils.clip_grad
from torch.nn import utils
from torch.nn.utils import clip_grad_norm_, clip_grad_value_
from torch.nn.utils.clip_grad import clip_grad_norm_ as clip_by_another_name

import zerograd
from support.training import assert_found, batches, either_way, loss_of, net, sgd

CLIPS: dict[str, Callable[[Any], object]] = {
    "from torch.nn.utils": lambda params: clip_grad_norm_(params, 1.0),
    "by name": lambda params: clip_grad_norm_(parameters=params, max_norm=1.0),
    "from torch.nn.utils.clip_grad": lambda params: clip_by_another_name(params, 1.0),
    "utils.": lambda params: utils.clip_grad_norm_(params, 1.0),
    "torch.nn.utils.": lambda params: torch.nn.utils.clip_grad_norm_(params, 1.0),
    "torch.nn.utils.clip_grad.": lambda params: torch.nn.utils.clip_grad.clip_grad_norm_(
        params, 1.0, norm_type=1.0
    ),
    "in two parts": lambda params: torch.nn.utils.clip_grads_with_norm_(
        params := list(params),
        1.0,
        torch.nn.utils.get_total_norm([one.grad for one in params if one.grad is not None]),
    ),
    "value": lambda params: clip_grad_value_(params, 1.0),
    "value, by name": lambda params: clip_grad_value_(parameters=params, clip_value=1.0),
    "utils., value": lambda params: utils.clip_grad_value_(params, 1.0),
}
if not hasattr(torch.nn.utils, "clip_grads_with_norm_"):  # before torch 2.6
    del CLIPS["in two parts"]


@either_way
@pytest.mark.parametrize("how", CLIPS)
def test_a_clip_after_the_step_is_found_however_it_was_imported(how: str, right: bool) -> None:
    model = net()
    optimizer = sgd(model)
    with zerograd.watch(on="collect") as report:
        for x in batches():
            optimizer.zero_grad()
            loss_of(model, x).backward()
            if right:
                CLIPS[how](model.parameters())
            optimizer.step()
            if not right:
                clip = CLIPS[how]
                clip(model.parameters())
    codes = [finding.code for finding in report.findings]
    assert codes == ([] if right else ["ZG203"])


@either_way
def test_a_clip_before_the_backward_is_found(right: bool) -> None:
    model = net()
    optimizer = sgd(model)
    with zerograd.watch(on="collect") as report:
        for x in batches():
            optimizer.zero_grad(set_to_none=False)
            if not right:
                clip_grad_norm_(model.parameters(), 1.0)  # ZG202
            loss_of(model, x).backward()
            if right:
                clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
    assert_found(report, right=right)


@either_way
def test_a_clip_in_the_middle_of_a_window_is_found(right: bool) -> None:
    model = net()
    optimizer = sgd(model)
    with zerograd.watch(on="collect") as report:
        for number, x in enumerate(batches(12), 1):
            (loss_of(model, x) / 4).backward()
            if number % 4 == 0 or not right:
                clip_grad_norm_(model.parameters(), 1.0)  # ZG204
            if number % 4 == 0:
                optimizer.step()
                optimizer.zero_grad()
    assert_found(report, right=right)


def test_asking_for_the_norm_is_no_clip() -> None:
    model = net()
    optimizer = sgd(model)
    with zerograd.watch(on="collect") as report:
        for x in batches():
            optimizer.zero_grad()
            loss_of(model, x).backward()
            optimizer.step()
            clip_grad_norm_(model.parameters(), float("inf"))
    assert_found(report, right=True)


@either_way
def test_clipping_each_parameter_by_itself_is_watched(right: bool) -> None:
    model = net()
    optimizer = sgd(model)
    with zerograd.watch(on="collect") as report:
        for x in batches():
            if right:
                optimizer.zero_grad()
            loss_of(model, x).backward()  # ZG101
            for param in model.parameters():
                clip_grad_norm_(param, 1.0)
            optimizer.step()
    assert_found(report, right=right, seen=5)
