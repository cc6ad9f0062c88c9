"""A `Stepper` refuses weights, options, optimizers and calls that make no sense."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from torch import nn

from support.big_batch import data, expect, loss_of, net
from support.stepper_training import Training, constant
from zerograd.stepper import Stepper


@pytest.mark.parametrize("weight", [-1, math.nan, math.inf, -0.5, torch.tensor(-2)])
def test_a_weight_is_finite_and_not_negative(weight: object) -> None:
    with pytest.raises(ValueError, match="to leave a batch out, use weight=0"):
        Training().run(data(2), weigh=constant(weight))


@pytest.mark.parametrize("weight", [torch.ones(2), "3", None, 1j])
def test_a_weight_is_one_number(weight: object) -> None:
    with pytest.raises((ValueError, TypeError), match="weight must be"):
        Training().run(data(2), weigh=constant(weight))


def test_a_refused_call_leaves_the_window_as_it_was() -> None:
    batches = data(3, 1)
    training = Training(accumulate=2)
    for batch in training.stepper(batches):
        loss = loss_of(training.model, batch)
        with pytest.raises(ValueError, match="the loss must be one number"):
            training.stepper.backward(loss.expand(2))
        with pytest.raises(ValueError, match="weight=-1"):
            training.stepper.backward(loss, weight=-1)
        with pytest.raises(RuntimeError, match="no graph"):
            training.stepper.backward(loss.detach())
        with pytest.raises(TypeError, match="the loss must be a tensor, not float"):
            training.stepper.backward(loss.item())  # type: ignore[arg-type]
        training.stepper.backward(loss, weight=len(batch[0]))
        with pytest.raises(RuntimeError, match="add up its losses"):
            training.stepper.backward(loss_of(training.model, batch))
    expect(training.seen, [batches])


def test_backward_belongs_into_the_loop() -> None:
    training = Training()
    with pytest.raises(RuntimeError, match="inside a loop over stepper"):
        training.stepper.backward(loss_of(training.model, data(1)[0]))
    training.run(data(1))
    with pytest.raises(RuntimeError, match="inside a loop over stepper"):
        training.stepper.backward(loss_of(training.model, data(1)[0]))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"accumulate": 0}, "a window needs at least one batch"),
        ({"accumulate": 1.5}, "accumulate must be a whole number"),
        ({"accumulate": True}, "accumulate must be a whole number"),
        ({"accumulate_weight": 0}, "above 0"),
        ({"accumulate": 2, "accumulate_weight": 5}, "cannot both"),
        ({"clip_norm": 0}, "above 0"),
        ({"clip_value": math.inf}, "finite"),
        ({"clip_value": 1, "clip_norm": 1}, "cannot both"),
        ({"reduction": "none"}, "reduction must be 'mean' or 'sum'"),
        ({"sync": "never"}, "sync must be 'last' or 'every'"),
        (
            {"free_gradients": True, "accumulate": 2},
            "free_gradients cannot be combined with accumulate",
        ),
        ({"free_gradients": True, "accumulate_weight": 2}, "combined with accumulate"),
        ({"free_gradients": True, "clip_norm": 1}, "combined with clip_norm"),
        ({"free_gradients": True, "skip_nonfinite": True}, "combined with skip_nonfinite"),
        (
            {"free_gradients": True, "accumulate_dtype": torch.float32},
            "combined with accumulate_dtype",
        ),
        ({"free_gradients": True, "scaler": torch.amp.GradScaler("cpu")}, "combined with scaler"),
        (
            {"accumulate_dtype": torch.float32, "scaler": torch.amp.GradScaler("cpu")},
            "accumulate_dtype cannot be combined with scaler",
        ),
    ],
    ids=lambda one: one if isinstance(one, str) else "+".join(one),
)
def test_what_makes_no_sense_is_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises((ValueError, TypeError), match=message):
        Training(**options)


def test_an_optimizer_of_another_model_is_refused() -> None:
    optimizer = torch.optim.SGD(net().parameters(), lr=0.1)
    with pytest.raises(ValueError, match="none of SGD's parameters belong to the model"):
        Stepper(net(), optimizer)


def test_an_optimizer_that_needs_a_closure_is_refused() -> None:
    model = net()
    with pytest.raises(TypeError, match=r"LBFGS runs backward itself.*optimizer.step\(closure\)"):
        Stepper(model, torch.optim.LBFGS(model.parameters()))


def test_optimizers_that_share_a_parameter_are_refused() -> None:
    model = net()
    optimizers = [torch.optim.SGD(model.parameters(), lr=0.1) for _ in range(2)]
    with pytest.raises(ValueError, match="two optimizers step the same parameter"):
        Stepper(model, optimizers)


def test_a_scheduler_that_needs_a_metric_is_refused() -> None:
    training = Training()
    plateau = torch.optim.lr_scheduler.ReduceLROnPlateau(training.optimizer)
    with pytest.raises(TypeError, match=r"ReduceLROnPlateau.* needs metrics"):
        Stepper(training.model, training.optimizer, scheduler=plateau)


def test_a_scaler_over_half_precision_parameters_is_refused() -> None:
    model = net().half()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with pytest.raises(ValueError, match="keep the parameters in fp32"):
        Stepper(model, optimizer, scaler=torch.amp.GradScaler("cpu"))


def test_a_scaler_is_of_one_stepper() -> None:
    scaler = torch.amp.GradScaler("cpu")
    one, other = Training(scaler=scaler), Training(scaler=scaler)
    one.run(data(2))
    with pytest.raises(ValueError, match="two steppers share a GradScaler"):
        other.run(data(2))
    del one
    other.run(data(2))
    assert other.stepper.steps == 1


def test_things_that_are_no_modules_or_optimizers_are_refused() -> None:
    model = net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with pytest.raises(TypeError, match="modules must be one Module or several, not str"):
        Stepper(["model"], optimizer)  # type: ignore[list-item]
    with pytest.raises(ValueError, match="optimizers is empty"):
        Stepper(model, [])


def test_a_parameter_that_never_gets_a_gradient_is_left_alone() -> None:
    model = net()
    model.register_parameter("unused", nn.Parameter(torch.ones(1, dtype=torch.float64)))
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.1)
    stepper = Stepper(model, optimizer, accumulate=2, clip_norm=1.0)
    for batch in stepper(data(2, 2)):
        stepper.backward(loss_of(model, batch))
    assert model.get_parameter("unused").item() == 1.0
    assert stepper.steps == 1
