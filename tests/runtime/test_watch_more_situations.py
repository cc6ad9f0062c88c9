"""Training situations in which gradients go unusual ways: right ones are silent, wrong ones are found."""

from __future__ import annotations

import copy
import random
import threading
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional
from torch.nn.utils import clip_grad_norm_

import zerograd
from support.training import assert_found, batches, either_way, loss_of, net, sgd


@either_way
def test_a_first_layer_attack_adds_a_second_backward_to_the_window(right: bool) -> None:
    table, model = nn.Embedding(9, 3), net()
    optimizer = torch.optim.Adam([*table.parameters(), *model.parameters()])
    with zerograd.watch(on="collect") as report:
        for _ in batches(12):
            words = torch.randint(0, 9, (5,))
            loss_of(model, table(words)).backward()  # ZG101
            kept = table.weight.data.clone()
            assert table.weight.grad is not None
            table.weight.data.add_(table.weight.grad / table.weight.grad.norm())
            loss_of(model, table(words)).backward()
            table.weight.data = kept
            optimizer.step()
            if right:
                optimizer.zero_grad()
    assert_found(report, right=right)


@either_way
def test_parts_of_a_model_hand_gradients_to_each_other(right: bool) -> None:
    front, back = nn.Linear(3, 4), nn.Linear(4, 2)
    opt_f, opt_b = sgd(front), sgd(back)
    with zerograd.watch(on="collect") as report:
        for x in batches(12):
            opt_b.zero_grad()
            if right:
                opt_f.zero_grad()
            for part in x.chunk(2):
                sent = front(part)
                got = sent.detach().requires_grad_()
                loss_of(back, got).backward()
                sent.backward(got.grad)  # ZG101
            opt_f.step()
            opt_b.step()
    assert_found(report, right=right)


@either_way
def test_layers_with_losses_of_their_own_are_watched(right: bool) -> None:
    layers = [nn.Linear(3, 4), nn.Linear(4, 4)]
    optimizers = [torch.optim.Adam(one.parameters()) for one in layers]
    with zerograd.watch(on="collect") as report:
        for x in batches(12):
            for number, (layer, optimizer) in enumerate(zip(layers, optimizers, strict=True)):
                if right or number == 0:
                    optimizer.zero_grad()
                out = layer(x).relu()
                (out.pow(2).mean() - 1).pow(2).backward()  # ZG101
                optimizer.step()
                x = out.detach()
    assert_found(report, right=right)


@either_way
def test_a_variance_reduced_gradient_is_watched(right: bool) -> None:
    model = net()
    old = copy.deepcopy(model)
    optimizer = sgd(model)
    with zerograd.watch(on="collect") as report:
        for x in batches(12):
            if right:
                optimizer.zero_grad()
            loss_of(model, x).backward()  # ZG101
            old.zero_grad()
            loss_of(old, x).backward()
            for param, then in zip(model.parameters(), old.parameters(), strict=True):
                assert param.grad is not None
                assert then.grad is not None
                param.grad.data -= 0.5 * then.grad.data
            optimizer.step()
    assert_found(report, right=right)


@either_way
def test_a_flat_buffer_of_gradients_is_watched(right: bool) -> None:
    model = net()
    flat, at = torch.zeros(sum(param.numel() for param in model.parameters())), 0
    for param in model.parameters():
        param.grad = flat[at : at + param.numel()].view_as(param)
        at += param.numel()
    optimizer = sgd(model)
    with zerograd.watch(on="collect") as report:
        for x in batches(12):
            if right:
                flat.zero_()
            loss_of(model, x).backward()  # ZG101
            optimizer.step()
    assert_found(report, right=right)


@either_way
def test_experts_that_are_drawn_at_random_are_watched(right: bool) -> None:
    experts = nn.ModuleList([nn.Linear(3, 2) for _ in range(6)])
    optimizer = torch.optim.Adam(experts.parameters())
    chance = random.Random(0)
    with zerograd.watch(on="collect") as report:
        for x in batches(30):
            if right:
                optimizer.zero_grad()
            chosen = chance.sample(list(experts), 2)
            loss_of(lambda x, chosen=chosen: sum(one(x) for one in chosen), x).backward()  # ZG101
            optimizer.step()
    assert_found(report, right=right)


@either_way
def test_the_last_layer_is_held_back_in_the_first_steps(right: bool) -> None:
    model = net()
    optimizer = torch.optim.AdamW(model.parameters())
    with zerograd.watch(on="collect") as report:
        for number, x in enumerate(batches(20)):
            if right:
                optimizer.zero_grad()
            loss_of(model, x).backward()  # ZG101
            for param in model.parameters():
                assert param.grad is not None
                param.grad.mul_(min(1.0, 3 / float(param.grad.norm() + 1e-6)))
            if number < 6:
                for param in model[2].parameters():
                    param.grad = None
            optimizer.step()
    assert_found(report, right=right)


def gradients_of_a_cache() -> None:
    model = net()
    optimizer = sgd(model)
    scaler = torch.amp.GradScaler("cpu", init_scale=8.0)
    for x in batches(10):
        optimizer.zero_grad()
        with torch.no_grad():
            seen = model(x)
        seen.requires_grad_()
        scaler.scale(functional.cross_entropy(seen @ seen.T, torch.arange(5))).backward()  # type: ignore[no-untyped-call]
        for part, grad in zip(x.chunk(2), seen.grad.chunk(2), strict=True):
            torch.autograd.backward(model(part), grad_tensors=grad)
        scaler.step(optimizer)
        scaler.update()


def clipped_samples_and_noise() -> None:
    model = net()
    optimizer = sgd(model)
    for x in batches(10):
        total = [torch.zeros_like(param) for param in model.parameters()]
        for sample in x:
            optimizer.zero_grad()
            loss_of(model, sample).backward()
            clip_grad_norm_(model.parameters(), 1.0)
            for own, param in zip(total, model.parameters(), strict=True):
                own += param.grad
        for own, param in zip(total, model.parameters(), strict=True):
            param.grad = own / len(x)
        optimizer.step()


def what_is_measured_after_a_task_is_dropped() -> None:
    model = net()
    optimizer = sgd(model)
    for _ in range(12):
        for x in batches(3):
            optimizer.zero_grad()
            loss_of(model, x).backward()
            optimizer.step()
        for x in batches(3):
            loss_of(model, x).backward()
        [param.grad.pow(2) for param in model.parameters()]
        optimizer.zero_grad()


def windows_that_grow() -> None:
    model = net()
    optimizer = sgd(model)
    length, filled = 1, 0
    for number, x in enumerate(batches(60)):
        length *= 2 if number in (10, 25, 40) else 1
        (loss_of(model, x) / length).backward()
        filled += 1
        if filled >= length:
            optimizer.step()
            optimizer.zero_grad()
            filled = 0


def a_step_in_a_new_thread_each_time() -> None:
    model = net()
    optimizer = sgd(model)

    def step(x: Any) -> None:
        optimizer.zero_grad()
        loss_of(model, x).backward()
        optimizer.step()

    for x in batches(10):
        thread = threading.Thread(target=step, args=(x,))
        thread.start()
        thread.join()


def blocks_that_take_turns() -> None:
    model = net()
    blocks = [model[0], model[2]]
    for number, x in enumerate(batches(40)):
        if number % 5 == 0:
            model.requires_grad_(False)
            block = blocks[number // 5 % 2].requires_grad_(True)
            optimizer = torch.optim.AdamW(block.parameters())
        optimizer.zero_grad()
        loss_of(model, x).backward()
        optimizer.step()


def a_penalty_on_the_weights_of_losses() -> None:
    model, weights = net(), nn.Parameter(torch.ones(2))
    optimizer, other = sgd(model), torch.optim.Adam([weights])
    for x in batches(12):
        losses = (model(x) - 1).pow(2).mean(0)
        optimizer.zero_grad()
        (weights * losses).sum().backward(retain_graph=True)
        weights.grad = None
        norms = [
            torch.autograd.grad(w * loss, model[2].weight, retain_graph=True, create_graph=True)[0]
            for w, loss in zip(weights, losses, strict=True)
        ]
        gap = (norms[0].norm() - norms[1].norm()).abs()
        (weights.grad,) = torch.autograd.grad(gap, weights)
        optimizer.step()
        other.step()
        other.zero_grad()


RIGHT = [
    gradients_of_a_cache,
    clipped_samples_and_noise,
    what_is_measured_after_a_task_is_dropped,
    windows_that_grow,
    a_step_in_a_new_thread_each_time,
    blocks_that_take_turns,
    a_penalty_on_the_weights_of_losses,
]


@pytest.mark.parametrize("program", RIGHT, ids=lambda program: program.__name__)
def test_right_programs_are_silent(program: Any) -> None:
    torch.manual_seed(0)
    with zerograd.watch(on="collect") as report:
        program()
    assert (report.errors, report.findings) == ([], [])
