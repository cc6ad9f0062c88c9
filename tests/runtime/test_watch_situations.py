"""Right training programs of other kinds, which have to stay silent."""

from __future__ import annotations

import copy
from typing import Any

import torch
from torch import nn
from torch.nn.utils import clip_grad_norm_

import zerograd
from support.training import assert_found, batches, loss_of, net, sgd


def test_a_first_order_meta_learner_that_sums_gradients_of_copies_is_right() -> None:
    model = net()
    optimizer = torch.optim.Adam(model.parameters())
    with zerograd.watch(on="collect") as report:
        for x in batches(8):
            optimizer.zero_grad()
            for sign in (1, -1):
                fast = copy.deepcopy(model)
                inner = sgd(fast)
                loss_of(fast, sign * x).backward()
                inner.step()
                inner.zero_grad()
                loss_of(fast, sign * x).backward()
                for param, other in zip(model.parameters(), fast.parameters(), strict=True):
                    assert other.grad is not None
                    param.grad = other.grad if param.grad is None else param.grad + other.grad
            optimizer.step()
    assert_found(report, right=True)


def test_three_optimizers_of_an_actor_two_critics_and_a_temperature_are_right() -> None:
    actor, first, second = net(), nn.Linear(5, 1), nn.Linear(5, 1)
    warmth = torch.zeros(1, requires_grad=True)
    opt_a, opt_w = torch.optim.Adam(actor.parameters()), torch.optim.Adam([warmth])
    opt_c = torch.optim.Adam([*first.parameters(), *second.parameters()])
    with zerograd.watch(on="collect") as report:
        for x in batches(20):
            action = actor(x)
            seen = torch.cat([x, action.detach()], 1)
            opt_c.zero_grad()
            (first(seen).pow(2).mean() + (second(seen) - 1).pow(2).mean()).backward()
            opt_c.step()
            tried = torch.cat([x, action], 1)
            opt_a.zero_grad()
            (action.pow(2).mean() - torch.min(first(tried), second(tried)).mean()).backward()
            opt_a.step()
            opt_w.zero_grad()
            (-warmth * action.detach().mean()).sum().backward()
            opt_w.step()
    assert_found(report, right=True)


def test_alternating_adapters_that_are_frozen_and_clipped_together_are_right() -> None:
    base, adapters = net().requires_grad_(False), [nn.Linear(2, 2), nn.Linear(2, 2)]
    optimizers = [sgd(one) for one in adapters]
    params = [param for one in adapters for param in one.parameters()]
    with zerograd.watch(on="collect") as report:
        for number, x in enumerate(batches(20)):
            for which, one in enumerate(adapters):
                one.requires_grad_(which == number % 2)
            optimizers[number % 2].zero_grad()
            (adapters[1](adapters[0](base(x))) - 1).pow(2).mean().backward()
            clip_grad_norm_(params, 0.1)
            optimizers[number % 2].step()
    assert_found(report, right=True)


def test_a_penalty_that_is_added_every_fourth_time_with_frozen_sides_is_right() -> None:
    generator, judge = net(), nn.Sequential(nn.Linear(2, 4), nn.Tanh(), nn.Linear(4, 1))
    opt_g, opt_d = torch.optim.Adam(generator.parameters()), torch.optim.Adam(judge.parameters())

    def step(module: Any, other: Any, optimizer: Any, loss: Any) -> None:
        module.requires_grad_(True)
        other.requires_grad_(False)
        module.zero_grad()
        loss().backward()
        optimizer.step()

    with zerograd.watch(on="collect") as report:
        for number, x in enumerate(batches(16)):
            real = torch.ones(5, 2, requires_grad=True)
            step(judge, generator, opt_d, lambda: torch.mean(judge(generator(x)) - judge(real)))  # noqa: B023
            if number % 4 == 0:

                def penalty() -> Any:
                    (slope,) = torch.autograd.grad(judge(real).sum(), real, create_graph=True)  # noqa: B023
                    return slope.pow(2).sum() + 0 * judge(real).sum()  # noqa: B023

                step(judge, generator, opt_d, penalty)
            step(generator, judge, opt_g, lambda: -judge(generator(x)).mean())  # noqa: B023
    assert_found(report, right=True)
