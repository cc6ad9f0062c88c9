"""A `Stepper` clips, scales and skips with the gradient of the whole window, as torch does."""

from __future__ import annotations

import math

import pytest
import torch
from torch import nn
from torch.nn import functional

from support.big_batch import TOLERANCE, Seen, big_batch, data, error, expect, loss_of, net
from support.stepper_training import Training, split
from zerograd.stepper import Stepper, weights


@pytest.mark.parametrize("n", [1, 3])
def test_clipping_is_torchs_on_the_windows_gradient(n: int) -> None:
    batches = data(3, 1, 7, 2)
    training = Training(accumulate=n, clip_norm=0.05)
    training.run(batches)
    for (values, gradient), window, step in zip(
        training.seen, split(batches, n), training.stepper.history, strict=True
    ):
        model = net()
        with torch.no_grad():
            for param, value in zip(model.parameters(), values, strict=True):
                param.copy_(value)
        for param, grad in zip(model.parameters(), big_batch(model, window), strict=True):
            param.grad = grad
        norm = nn.utils.clip_grad_norm_(model.parameters(), 0.05)
        assert step.norm == pytest.approx(float(norm), rel=TOLERANCE)
        assert error(gradient, [p.grad for p in model.parameters() if p.grad is not None]) < 1e-12


def test_a_gradient_below_the_limit_is_left_alone() -> None:
    batches = data(3, 1, 7)
    training = Training(accumulate=2, clip_norm=1e6)
    training.run(batches)
    expect(training.seen, split(batches, 2))


def test_values_are_clipped_too() -> None:
    batches = data(3, 1)
    training = Training(accumulate=2, clip_value=0.01)
    training.run(batches)
    clipped = [grad.clamp(-0.01, 0.01) for grad in big_batch(net(), batches)]
    assert error(training.seen.gradients[0], clipped) < TOLERANCE


def test_sparse_gradients_are_normalised_and_clipped() -> None:
    model = nn.Embedding(6, 2, sparse=True).double()
    optimizer = torch.optim.SGD(model.parameters(), lr=1.0)
    stepper = Stepper(model, optimizer, accumulate=3, clip_norm=0.1)
    before = model.weight.detach().clone()
    for tokens in stepper([torch.tensor([1, 1, 2]), torch.tensor([3])]):
        stepper.backward(model(tokens).sum(dim=1).mean(), weight=len(tokens))
    gradient = torch.zeros(6, 2, dtype=torch.float64)
    gradient[1], gradient[2], gradient[3] = 0.5, 0.25, 0.25
    expected = gradient * min(1.0, 0.1 / (float(gradient.norm()) + 1e-6))
    assert error([before - model.weight.detach()], [expected]) < TOLERANCE


def test_a_scaler_scales_and_unscales_and_skips_on_overflow() -> None:
    batches = data(3, 1, 7, 2)
    scaler = torch.amp.GradScaler("cpu", init_scale=1024.0)
    training = Training("AdamW", accumulate=2, scaler=scaler, clip_norm=1e9)
    schedule = torch.optim.lr_scheduler.StepLR(training.optimizer, 1, 0.5)
    training.stepper._schedulers = [schedule]
    poisoned = [batches[0], (batches[1][0] * math.inf, batches[1][1]), *batches[2:]]
    training.run(poisoned)
    first, second = training.stepper.history
    assert (first.stepped, first.reason, first.scale) == (False, "nonfinite", 1024.0)
    assert (second.stepped, second.reason, second.scale) == (True, "", 512.0)
    assert first.lr == second.lr == (0.1,), "the schedule waits for a step"
    assert schedule.get_last_lr() == [0.05]
    assert scaler.get_scale() == 512.0
    expect(training.seen, [batches[2:]], tolerance=1e-6)


def test_a_disabled_scaler_is_none() -> None:
    batches = data(3, 1)
    training = Training(accumulate=2, scaler=torch.amp.GradScaler("cpu", enabled=False))
    training.run(batches)
    expect(training.seen, [batches])
    assert training.stepper.last_step is not None
    assert training.stepper.last_step.scale is None


@pytest.mark.parametrize("weight", [1, 256, 10_000, 1_000_000])
def test_large_weights_do_not_overflow_half_precision(weight: int) -> None:
    model = net().float()
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0**10)
    stepper = Stepper(model, optimizer, accumulate=4, scaler=scaler)
    for x, y in stepper(data(*[4] * 40)):
        with torch.autocast("cpu", dtype=torch.float16):
            loss = functional.mse_loss(model(x.float()), y.float())
        stepper.backward(loss, weight=weight)
    assert stepper.skipped == 0


@pytest.mark.parametrize("weight", [1e-6, 1, 3, 700, 1e6])
@pytest.mark.parametrize("n", [2, 3, 5, 8])
def test_a_batch_is_scaled_as_if_divided_by_the_windows_length(n: int, weight: float) -> None:
    training = Training(accumulate=n)
    for batch in training.stepper(data(*[1] * 3 * n)):
        training.stepper.backward(loss_of(training.model, batch), weight=weight)
        if training.stepper._window.count:
            factor = weight / training.stepper._window.unit
            assert 2**-0.5 <= factor * n <= 2**0.5
            assert math.frexp(float(training.stepper._window.unit))[0] == 0.5, "a power of two"


@pytest.mark.parametrize("value", [0.0, 1e-9, 0.7, 1.0, 3.0, 96.0, 1e12])
def test_a_power_of_two_is_the_same_on_a_device(value: float) -> None:
    on_device = weights.power_of_two(torch.tensor(value, dtype=torch.float64))
    assert float(on_device) == weights.power_of_two(value)


def test_windows_with_nan_are_dropped_and_counted() -> None:
    batches = data(3, 1, 7, 2, 2)
    training = Training("AdamW", accumulate=2, skip_nonfinite=True)
    broken = (batches[2][0] * math.nan, batches[2][1])
    training.run([*batches[:2], broken, *batches[3:]])
    expect(training.seen, [batches[:2], batches[4:]])
    assert [step.reason for step in training.stepper.history] == ["", "nonfinite", ""]
    assert training.stepper.skipped == 1


def test_several_optimizers_step_together_or_not_at_all() -> None:
    model = net()
    first = torch.optim.SGD(model[0].parameters(), lr=0.1)
    second = torch.optim.AdamW(model[2].parameters(), lr=0.2)
    seen = Seen(first), Seen(second)
    stepper = Stepper(model, [first, second], accumulate=2, skip_nonfinite=True)
    batches = data(3, 1, 2)
    expected = big_batch(model, batches[:2])
    for batch in stepper(batches):
        loss = loss_of(model, batch)
        if stepper.steps:
            loss = (
                loss + model.get_parameter("2.weight").sum() * math.inf
            )  # in the second optimizer alone
        stepper.backward(loss, weight=len(batch[0]))
    (one,), (other,) = seen[0].gradients, seen[1].gradients
    assert error([*one, *other], expected) < TOLERANCE
    assert stepper.history[0].lr == (0.1, 0.2)
    assert stepper.history[1].reason == "nonfinite"
