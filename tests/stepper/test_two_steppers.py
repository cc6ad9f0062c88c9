"""Two steppers with connected models: each steps with its own windows."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from support.big_batch import TOLERANCE, Seen, data, error, expect, loss_of, net
from support.stepper_training import split
from zerograd.stepper import Stepper


class Gan:
    """A generator and a discriminator with one stepper each."""

    def __init__(self, n: int, m: int) -> None:
        torch.manual_seed(0)
        self.g = nn.Linear(2, 3).double()
        self.d = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 1)).double()
        self.g_optimizer = torch.optim.SGD(self.g.parameters(), lr=0.1)
        self.d_optimizer = torch.optim.SGD(self.d.parameters(), lr=0.1)
        self.g_seen, self.d_seen = Seen(self.g_optimizer), Seen(self.d_optimizer)
        self.g_stepper = Stepper(self.g, self.g_optimizer, accumulate=n)
        self.d_stepper = Stepper(self.d, self.d_optimizer, accumulate=m)

    def d_loss(self, real: Tensor) -> Tensor:
        fake = self.g(torch.ones(len(real), 2, dtype=torch.float64)).detach()
        return functional.mse_loss(self.d(real).mean(), self.d(fake).mean())

    def g_loss(self, real: Tensor) -> Tensor:
        judged = self.d(self.g(torch.ones(len(real), 2, dtype=torch.float64)))
        return functional.mse_loss(judged, torch.ones_like(judged))


@pytest.mark.parametrize("n", [1, 2, 3])
@pytest.mark.parametrize("m", [1, 2, 3])
def test_what_one_stepper_runs_back_does_not_end_up_in_the_others_step(n: int, m: int) -> None:
    gan = Gan(n, m)
    batches = [x for x, _ in data(*[2] * 7)]
    alone: dict[str, list[list[Tensor]]] = {"g": [], "d": []}
    for real in gan.d_stepper(gan.g_stepper(batches)):
        loss = gan.d_loss(real)
        alone["d"].append(list(torch.autograd.grad(loss, [*gan.d.parameters()], retain_graph=True)))
        gan.d_stepper.backward(loss)
        loss = gan.g_loss(real)
        alone["g"].append(list(torch.autograd.grad(loss, [*gan.g.parameters()], retain_graph=True)))
        gan.g_stepper.backward(loss)
    for seen, each, size in ((gan.d_seen, alone["d"], m), (gan.g_seen, alone["g"], n)):
        windows = [each[start : start + size] for start in range(0, len(each), size)]
        assert len(windows) == len(seen.gradients)
        for window, gradient in zip(windows, seen.gradients, strict=True):
            mean = [sum(parts) / len(window) for parts in zip(*window, strict=True)]
            assert error(gradient, mean) < TOLERANCE


def test_two_steppers_over_the_same_parameters_keep_their_windows_apart() -> None:
    model = net()
    optimizers = [torch.optim.SGD(model.parameters(), lr=lr) for lr in (0.0, 0.0)]
    seen = [Seen(one) for one in optimizers]
    steppers = [
        Stepper(model, one, accumulate=n) for one, n in zip(optimizers, (2, 3), strict=True)
    ]
    batches = data(3, 1, 7, 2, 2)
    for batch in steppers[0](steppers[1](batches)):
        for stepper in steppers:
            stepper.backward(loss_of(model, batch), weight=len(batch[0]))
    expect(seen[0], split(batches, 2))
    expect(seen[1], split(batches, 3))


def test_dropping_one_window_leaves_the_others_alone() -> None:
    model = net()
    optimizers = [torch.optim.SGD(model.parameters(), lr=0.0) for _ in range(2)]
    seen = Seen(optimizers[1])
    first, second = (Stepper(model, one, accumulate=4) for one in optimizers)
    batches = data(3, 1, 7, 2)
    for number, batch in enumerate(second(batches)):
        second.backward(loss_of(model, batch), weight=len(batch[0]))
        if number == 1:
            for other in first(batches):
                first.backward(loss_of(model, other))
                break
    expect(seen, [batches])


def test_a_window_that_was_set_aside_can_be_dropped() -> None:
    model = net()
    optimizers = [torch.optim.SGD(model.parameters(), lr=0.0) for _ in range(2)]
    seen = Seen(optimizers[1])
    first, second = (Stepper(model, one, accumulate=2) for one in optimizers)
    batches = data(3, 1)
    loops = first(batches), second(batches)
    for stepper, loop in zip((first, second), loops, strict=True):
        stepper.backward(loss_of(model, next(loop)), weight=3)
    loops[0].close()
    second.backward(loss_of(model, next(loops[1])), weight=1)
    expect(seen, [batches])
