"""Parameters that are frozen and unfrozen while a program trains others."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import zerograd
from support.training import assert_found, batches, either_way, loss_of, net, sgd

clip = nn.utils.clip_grad_norm_


def train(module: nn.Module, on: bool) -> None:
    """Freeze or unfreeze a module."""
    module.requires_grad_(on)


def first(model: Any, x: Tensor) -> Any:
    return (model(x) ** 2).mean()


@either_way
@pytest.mark.parametrize("limit", ["norm", "value", "none"])
def test_a_discriminator_is_frozen_while_the_generator_is_trained(limit: str, right: bool) -> None:
    generator, judge = net(), nn.Linear(2, 1)
    opt_g, opt_d = sgd(generator), torch.optim.Adam(judge.parameters(), lr=0.01)

    def limited(module: nn.Module) -> None:
        if limit == "norm":
            clip(module.parameters(), 0.1)
        elif limit == "value":
            nn.utils.clip_grad_value_(module.parameters(), 0.1)

    with zerograd.watch(on="collect") as report:
        for x in batches(12):
            fake = generator(x)
            train(judge, on=True)
            if right:
                opt_d.zero_grad()
            (judge(fake.detach()) - judge(torch.ones(5, 2))).mean().backward()  # ZG101
            limited(judge)
            opt_d.step()
            train(judge, on=False)
            opt_g.zero_grad()
            (-judge(fake).mean()).backward()
            limited(generator)
            opt_g.step()
    assert_found(report, right=right, seen=11)


@either_way
def test_two_generators_and_two_discriminators_are_trained_in_turns(right: bool) -> None:
    to_b, to_a = nn.Linear(3, 3), nn.Linear(3, 3)
    judge_a, judge_b = nn.Linear(3, 1), nn.Linear(3, 1)
    generators = [*to_b.parameters(), *to_a.parameters()]
    judges = [*judge_a.parameters(), *judge_b.parameters()]
    opt_g, opt_d = torch.optim.Adam(generators), torch.optim.Adam(judges)
    with zerograd.watch(on="collect") as report:
        for x in batches(12):
            train(judge_a, on=False)
            train(judge_b, on=False)
            opt_g.zero_grad()
            fake_b, fake_a = to_b(x), to_a(x)
            cycle = (to_a(fake_b) - x).abs().mean() + (to_b(fake_a) - x).abs().mean()
            (judge_b(fake_b).mean() + judge_a(fake_a).mean() + cycle).backward()
            clip(generators, 1.0)
            opt_g.step()
            train(judge_a, on=True)
            train(judge_b, on=True)
            if right:
                opt_d.zero_grad()
            (judge_a(x) - judge_a(fake_a.detach())).mean().backward()  # ZG101
            (judge_b(x) - judge_b(fake_b.detach())).mean().backward()
            clip(judges, 1.0)
            opt_d.step()
    assert_found(report, right=right, seen=11)


@pytest.mark.parametrize("clipped", ["own", "all"])
def test_optimizers_are_toggled(clipped: str) -> None:
    generator, judge = net(), nn.Linear(2, 1)
    opts = {"g": sgd(generator), "d": sgd(judge)}
    modules: dict[str, nn.Module] = {"g": generator, "d": judge}
    everything = [*generator.parameters(), *judge.parameters()]

    def toggle(name: str) -> None:
        for other, module in modules.items():
            train(module, on=other == name)

    with zerograd.watch(on="collect") as report:
        for x in batches(12):
            for name in ("g", "d"):
                toggle(name)
                fake = generator(x)
                loss = -judge(fake).mean() if name == "g" else judge(fake.detach()).mean()
                loss.backward()
                clip(everything if clipped == "all" else modules[name].parameters(), 0.1)
                opts[name].step()
                opts[name].zero_grad()
                for module in modules.values():
                    train(module, on=True)
    assert_found(report, right=True)


@pytest.mark.parametrize("freezes", [False, True])
@pytest.mark.parametrize("clears", ["optimizer", "module", "both"])
def test_adapters_take_turns(clears: str, freezes: bool) -> None:
    base, adapters = nn.Linear(3, 4), [nn.Linear(4, 2), nn.Linear(4, 2), nn.Linear(4, 2)]
    opts = [sgd(one) for one in adapters]
    together = nn.ModuleList(adapters)
    with zerograd.watch(on="collect") as report:
        for x, active in zip(batches(30), itertools.cycle(range(3)), strict=False):
            if freezes:
                for number, adapter in enumerate(adapters):
                    train(adapter, on=number == active)
            if clears == "optimizer":
                opts[active].zero_grad()
            elif clears == "module":
                adapters[active].zero_grad()
            else:
                together.zero_grad()
            first(adapters[active], base(x).detach()).backward()
            clip(together.parameters(), 0.1)
            opts[active].step()
    assert_found(report, right=True)


@either_way
@pytest.mark.parametrize("cleared", ["optimizer", "trained part", "model"])
def test_layers_are_unfrozen_one_after_the_other(cleared: str, right: bool) -> None:
    model = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 4), nn.Tanh(), nn.Linear(4, 2))
    optimizer = sgd(model)
    train(model, on=False)
    with zerograd.watch(on="collect") as report:
        for number, x in enumerate(batches(30)):
            if number % 10 == 0:
                train(model[4 - number // 5], on=True)
            trained = [param for param in model.parameters() if param.requires_grad]
            if right or number != 25:
                if cleared == "optimizer":
                    optimizer.zero_grad()
                elif cleared == "model":
                    model.zero_grad()
                else:
                    for param in trained:
                        param.grad = None
            first(model, x).backward()  # ZG101
            clip(trained, 1.0)
            optimizer.step()
    assert_found(report, right=right, seen=1)


def test_a_clear_of_others_does_not_clear_a_frozen_optimizer() -> None:
    generator, judge = net(), nn.Linear(2, 1)
    opt_g, opt_d = sgd(generator), sgd(judge)
    with zerograd.watch(on="collect") as report:
        for x in batches(12):
            fake = generator(x)
            train(judge, on=True)
            judge(fake.detach()).mean().backward()  # ZG101
            opt_d.step()
            train(judge, on=False)
            generator.zero_grad()
            (-judge(fake).mean()).backward()
            clip(generator.parameters(), 0.1)
            opt_g.step()
    assert_found(report, seen=11)


def test_a_clear_of_everything_clears_a_frozen_optimizer_too() -> None:
    generator, judge = net(), nn.Linear(2, 1)
    opt_g, opt_d = sgd(generator), sgd(judge)
    both = nn.ModuleList([generator, judge])
    with zerograd.watch(on="collect") as report:
        for x in batches(12):
            fake = generator(x)
            train(judge, on=True)
            judge(fake.detach()).mean().backward()
            opt_d.step()
            train(judge, on=False)
            both.zero_grad()
            (-judge(fake).mean()).backward()
            opt_g.step()
    assert_found(report, right=True)


def test_steps_while_all_is_frozen_use_nothing_that_a_later_step_could_use_again() -> None:
    model = net()
    optimizer = sgd(model)
    with zerograd.watch(on="collect") as report:
        for number, x in enumerate(batches(12)):
            model.requires_grad_(number % 4 == 3)
            if number % 4 == 3:
                loss_of(model, x).backward()
            optimizer.step()
            if number % 4 == 3:
                optimizer.zero_grad()
    assert_found(report, right=True)
