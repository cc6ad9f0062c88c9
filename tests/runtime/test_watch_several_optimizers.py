"""Several optimizers in one program: GANs, actors and critics, shared parameters."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.nn.utils
import torch.nn.utils.clip_grad
from torch import nn

import zerograd
from support.training import assert_found, batches, either_way, loss_of, net, sgd


@pytest.mark.parametrize("mistake", [None, "generator", "discriminator"])
def test_a_gan_whose_phases_fill_each_other_is_watched(mistake: str | None) -> None:
    generator, judge = net(), nn.Linear(2, 1)
    opt_g, opt_d = sgd(generator), torch.optim.Adam(judge.parameters(), lr=0.01)
    with zerograd.watch(on="collect") as report:
        for x in batches(10):
            fake = generator(x)
            if mistake != "discriminator":
                opt_d.zero_grad()
            real_loss = judge(torch.ones(5, 2)).mean()
            (judge(fake.detach()).mean() - real_loss).backward()
            opt_d.step()
            if mistake != "generator":
                opt_g.zero_grad()
            (-judge(fake).mean()).backward()
            opt_g.step()
    codes = [finding.code for finding in report.findings]
    assert codes == ([] if mistake is None else ["ZG101"])
    assert report.errors == []


def test_a_gan_that_clears_everything_through_its_modules_is_right() -> None:
    generator, judge = net(), nn.Linear(2, 1)
    opt_g, opt_d = sgd(generator), sgd(judge)
    with zerograd.watch(on="collect") as report:
        for x in batches(10):
            fake = generator(x)
            judge.zero_grad()
            judge(fake.detach()).mean().backward()
            opt_d.step()
            generator.zero_grad()
            (-judge(fake).mean()).backward()
            opt_g.step()
    assert_found(report, right=True)


@pytest.mark.parametrize("cleared_twice", [False, True])
def test_a_gan_whose_phases_share_a_function_for_backward_is_right(cleared_twice: bool) -> None:
    generator, judge = net(), nn.Linear(2, 1)
    opt_g, opt_d = sgd(generator), sgd(judge)

    def run(loss: Any) -> None:
        loss.backward()

    with zerograd.watch(on="collect") as report:
        for x in batches(10):
            fake = generator(x)
            opt_d.zero_grad()
            run(judge(fake.detach()).mean())
            opt_d.step()
            if cleared_twice:
                opt_d.zero_grad()
            opt_g.zero_grad()
            run(-judge(fake).mean())
            opt_g.step()
    assert_found(report, right=True)


def test_a_discriminator_of_two_backward_calls_leaves_no_window_open() -> None:
    generator, judge = net(), nn.Linear(2, 1)
    opt_g, opt_d = sgd(generator), sgd(judge)
    with zerograd.watch(on="collect") as report:
        for x in batches(10):
            opt_d.zero_grad()
            judge(x.tile(1, 2)[:, :2]).mean().backward()
            fake = generator(x)
            (-judge(fake.detach()).mean()).backward()
            opt_d.step()
            opt_g.zero_grad()
            judge(fake).mean().backward()
            opt_g.step()
    assert report.findings == []


@either_way
def test_what_the_generators_phase_leaves_in_the_discriminator_is_found(right: bool) -> None:
    generator, judge = net(), nn.Linear(2, 1)
    opt_g, opt_d = sgd(generator), sgd(judge)
    with zerograd.watch(on="collect") as report:
        for x in batches(10):
            fake = generator(x)
            (-judge(fake).mean()).backward()
            opt_g.step()
            opt_g.zero_grad()
            if right:
                opt_d.zero_grad()
            judge(fake.detach()).pow(2).mean().backward()  # ZG106
            opt_d.step()
            opt_d.zero_grad()
    assert_found(report, right=right)


@either_way
def test_an_actor_whose_loss_runs_through_the_critic_is_watched(right: bool) -> None:
    actor, critic = nn.Linear(3, 2), nn.Linear(5, 1)
    opt_a, opt_c = sgd(actor), sgd(critic)
    with zerograd.watch(on="collect") as report:
        for x in batches(10):
            action = actor(x)
            value = critic(torch.cat([x, action.detach()], 1))
            if right:
                opt_c.zero_grad()
            (value - 1).pow(2).mean().backward()  # ZG101
            opt_c.step()
            opt_a.zero_grad()
            (-critic(torch.cat([x, action], 1)).mean()).backward()
            opt_a.step()
    codes = {finding.code for finding in report.findings}
    assert codes == (set() if right else {"ZG101"})


def test_two_nets_that_know_nothing_of_each_other_are_right() -> None:
    first, second = net(), net(seed=1)
    opt_a, opt_b = sgd(first), sgd(second)
    with zerograd.watch(on="collect") as report:
        for x in batches(10):
            opt_a.zero_grad()
            opt_b.zero_grad()
            loss_of(first, x).backward()
            opt_a.step()
            loss_of(second, x).backward()
            opt_b.step()
    assert_found(report, right=True)


@either_way
def test_one_of_two_nets_that_is_never_cleared_is_found(right: bool) -> None:
    first, second = net(), net(seed=1)
    opt_a, opt_b = sgd(first), sgd(second)
    with zerograd.watch(on="collect") as report:
        for x in batches(10):
            opt_a.zero_grad()
            if right:
                opt_b.zero_grad()
            loss_of(first, x).backward()
            opt_a.step()
            loss_of(second, x).backward()  # ZG101
            opt_b.step()
    assert_found(report, right=right, seen=9)


def test_an_encoder_of_many_tasks_with_three_optimizers_is_right() -> None:
    encoder, left, right = net(), nn.Linear(2, 1), nn.Linear(2, 1)
    optimizers = [sgd(encoder), sgd(left), sgd(right)]
    with zerograd.watch(on="collect") as report:
        for x in batches(10):
            for optimizer in optimizers:
                optimizer.zero_grad()
            code = encoder(x)
            left(code).pow(2).mean().backward(retain_graph=True)
            optimizers[1].step()
            right(code).pow(2).mean().backward()
            optimizers[2].step()
            optimizers[0].step()
    assert_found(report, right=True)


@either_way
def test_parameters_shared_by_two_optimizers_are_watched(right: bool) -> None:
    shared, first, second = nn.Linear(3, 3), nn.Linear(3, 1), nn.Linear(3, 1)
    opt_a = torch.optim.SGD([*shared.parameters(), *first.parameters()], lr=0.01)
    opt_b = torch.optim.SGD([*shared.parameters(), *second.parameters()], lr=0.01)
    with zerograd.watch(on="collect") as report:
        for x in batches(10):
            opt_a.zero_grad()
            first(shared(x)).pow(2).mean().backward()
            opt_a.step()
            if right:
                opt_b.zero_grad()
            second(shared(x)).pow(2).mean().backward()  # ZG101
            opt_b.step()
    assert_found(report, right=right)


@either_way
def test_two_optimizers_over_the_same_parameters_are_one_subject(right: bool) -> None:
    model = net()
    slow, fast = sgd(model, lr=0.001), sgd(model)
    with zerograd.watch(on="collect") as report:
        for number, x in enumerate(batches(10)):
            optimizer = slow if number % 2 else fast
            if right or number != 5:
                slow.zero_grad()
            loss_of(model, x).backward()  # ZG101
            optimizer.step()
    assert_found(report, right=right, seen=1)


@either_way
def test_an_optimizer_per_layer_is_watched(right: bool) -> None:
    model = net()
    optimizers = [sgd(model[0]), sgd(model[2])]
    with zerograd.watch(on="collect") as report:
        for x in batches():
            for optimizer in optimizers[: 2 if right else 1]:
                optimizer.zero_grad()
            loss_of(model, x).backward()  # ZG101
            for optimizer in optimizers:
                optimizer.step()
    assert_found(report, right=right)
    if not right:
        assert "(2.weight, 2.bias)" in report.findings[0].message
