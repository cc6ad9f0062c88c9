"""Programs as users write them, in a right and a wrong version: the wrong one is found at its line, in every step."""

from __future__ import annotations

import threading

import torch
from torch import Tensor, nn

import zerograd
from support.training import assert_found, batches, either_way, loss_of, net, sgd


@either_way
def test_complex_parameters_are_watched(right: bool) -> None:
    layer = nn.Linear(3, 2, bias=False, dtype=torch.cfloat)
    optimizer = torch.optim.Adam(layer.parameters())
    used = []
    with zerograd.watch(on="collect") as report:
        for x in batches(12):
            if right:
                optimizer.zero_grad()
            layer(x.to(torch.cfloat)).abs().square().mean().backward()  # ZG101
            used.append(float(layer.weight.grad.norm()))  # type: ignore[union-attr]
            optimizer.step()
    assert_found(report, right=right, seen=11)
    if not right:
        assert f"got {used[1]:.6g} " in report.findings[0].message


@either_way
def test_a_critic_that_two_losses_reach_is_watched(right: bool) -> None:
    actor, critic = nn.Linear(3, 2), nn.Linear(5, 1)
    of_actor, of_critic = (
        torch.optim.Adam(actor.parameters()),
        torch.optim.Adam(critic.parameters()),
    )
    with zerograd.watch(on="collect") as report:
        for x in batches(12):
            action = actor(x).detach()
            if right:
                of_critic.zero_grad()
            critic(torch.cat([x, action], 1)).square().mean().backward()  # ZG101
            of_critic.step()
            of_actor.zero_grad()
            (-critic(torch.cat([x, actor(x)], 1)).mean()).backward()
            of_actor.step()
    assert_found(report, right=right, seen=11)


@either_way
def test_one_of_two_threads_that_train_is_wrong(right: bool) -> None:
    def train(clears: bool) -> None:
        model = net()
        optimizer = sgd(model)
        for x in inputs:
            if clears:
                optimizer.zero_grad()
            loss_of(model, x).backward()  # ZG101
            optimizer.step()

    inputs = list(batches(12))
    with zerograd.watch(on="collect") as report:
        threads = [threading.Thread(target=train, args=(one,)) for one in (True, right)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert_found(report, right=right, seen=11)


@either_way
def test_an_optimizer_of_each_parameter_steps_inside_backward(right: bool) -> None:
    def step(param: Tensor) -> None:
        optimizers[id(param)].step()
        if right:
            optimizers[id(param)].zero_grad()

    model = net()
    optimizers = {id(one): torch.optim.Adam([one], foreach=False) for one in model.parameters()}
    for one in model.parameters():
        one.register_post_accumulate_grad_hook(step)
    with zerograd.watch(on="collect") as report:
        for x in batches(12):
            loss_of(model, x).backward()  # ZG101
    assert_found(report, right=right)


def test_gradients_of_two_tasks_that_the_program_merges_are_right() -> None:
    model = net()
    optimizer = torch.optim.Adam(model.parameters())
    with zerograd.watch(on="collect") as report:
        for x in batches(12):
            gradients = []
            for factor in (1.0, 2.0):
                optimizer.zero_grad()
                (factor * loss_of(model, x)).backward()
                gradients.append([one.grad.clone() for one in model.parameters()])
            for one, first, second in zip(model.parameters(), *gradients, strict=True):
                one.grad = first + second
            optimizer.step()
    assert_found(report, right=True)
