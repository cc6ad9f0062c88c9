"""Every step of a `Stepper` uses the gradient of its window: the mean over one big batch."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import zerograd
from support.big_batch import TOLERANCE, Batch, Seen, data, error, expect, loss_of
from support.stepper_training import Training, constant, same, split
from zerograd.stepper import Stepper, weights


# The gradient
@pytest.mark.parametrize("optimizer", ["SGD", "AdamW"])
@pytest.mark.parametrize("n", [1, 2, 3, 4, 7])
def test_every_window_has_the_gradient_of_its_one_big_batch(optimizer: str, n: int) -> None:
    batches = data(3, 1, 7, 2, 2, 9, 1, 4, 5, 1)
    training = Training(optimizer, accumulate=n)
    training.run(batches)
    expect(training.seen, split(batches, n))
    lengths = [step.length for step in training.stepper.history]
    assert lengths == [len(window) for window in split(batches, n)]


def test_equal_batches_need_no_weight() -> None:
    batches = data(*[4] * 10)
    training = Training(accumulate=4)
    training.run(batches, weigh=constant(1))
    expect(training.seen, split(batches, 4))


def test_a_summed_loss_is_divided_by_the_weight_of_the_window() -> None:
    batches = data(3, 1, 7, 2, 2)
    training = Training(accumulate=2, reduction="sum")
    for x, y in training.stepper(batches):
        loss = (training.model(x) - y).square().sum() / y.shape[1]
        training.stepper.backward(loss, weight=len(x))
    expect(training.seen, split(batches, 2))


def test_any_iterable_will_do_and_none_is_looked_into_ahead() -> None:
    training = Training(accumulate=2)
    batches = data(1, 2, 3)
    asked: list[int] = []

    def endless() -> Iterator[Batch]:
        for number, batch in enumerate(batches):
            assert len(asked) == number, "the batch before has had its backward"
            yield batch

    for batch in training.stepper(endless()):
        training.stepper.backward(loss_of(training.model, batch), weight=len(batch[0]))
        asked.append(len(training.seen.gradients))
    assert asked == [0, 1, 1]
    expect(training.seen, split(batches, 2))


def test_a_window_can_be_closed_by_its_weight() -> None:
    batches = data(3, 1, 7, 2, 2, 9, 1)
    training = Training(accumulate_weight=5)
    training.run(batches)
    expect(training.seen, [batches[:3], batches[3:6], batches[6:]])
    assert [step.weight for step in training.stepper.history] == [11, 13, 1]


def test_a_masked_batch_counts_for_nothing_even_if_its_mean_is_nan() -> None:
    batches = data(3, 2)
    training = Training(accumulate=3)
    for batch in training.stepper([batches[0], None, batches[1]]):
        if batch is None:
            nothing = training.model(batches[0][0])[:0].mean()
            assert nothing.isnan()
            training.stepper.backward(nothing, weight=0)
        else:
            training.stepper.backward(loss_of(training.model, batch), weight=len(batch[0]))
    expect(training.seen, [batches])


def test_a_window_in_which_everything_is_masked_is_not_stepped() -> None:
    training = Training("AdamW", accumulate=2)
    training.run(data(2, 2))
    before = training.weights()
    training.run(data(2, 2), weigh=constant(0))
    assert same(training.weights(), before)
    assert training.stepper.last_step is not None
    assert training.stepper.last_step.reason == "no weight"
    assert (training.stepper.steps, training.stepper.skipped) == (1, 1)


def test_a_loss_that_reaches_no_parameter_is_not_stepped() -> None:
    training = Training("AdamW")
    leaf = torch.ones((), requires_grad=True)
    for _ in training.stepper([1]):
        training.stepper.backward(leaf * 2)
    assert training.stepper.last_step is not None
    assert training.stepper.last_step.reason == "no gradient"


def test_a_weight_may_be_a_tensor() -> None:
    batches = data(3, 1, 7)
    training = Training(accumulate=2)
    training.run(batches, weigh=lambda batch: torch.tensor(len(batch[0])))
    expect(training.seen, split(batches, 2))


@pytest.fixture
def as_if_on_a_device(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Treat tensors as if they were on a device, and record every wait for one."""
    waited: list[str] = []
    for module in (weights, zerograd.stepper.close_window, zerograd.stepper.sharing):
        monkeypatch.setattr(module, "on_host", lambda _: False)
    for name in ("item", "tolist", "__float__", "__bool__", "__int__"):
        inner = getattr(Tensor, name)

        def waits(self: Tensor, *args: Any, _name: str = name, _inner: Any = inner) -> Any:
            waited.append(_name)
            return _inner(self, *args)

        monkeypatch.setattr(Tensor, name, waits)
    return waited


def on_device(batch: Batch) -> Tensor:
    return torch.tensor(len(batch[0]))


@pytest.mark.parametrize("options", [{}, {"clip_norm": 0.05}, {"reduction": "mean"}], ids=str)
def test_weights_on_a_device_are_not_waited_for(
    as_if_on_a_device: list[str], options: dict[str, Any]
) -> None:
    batches = data(3, 1, 7, 2, 2)
    training = Training("SGD", accumulate=2, **options)
    for batch in training.stepper(batches):
        loss, weight = loss_of(training.model, batch), on_device(batch)
        as_if_on_a_device.clear()
        training.stepper.backward(loss, weight=weight)
        assert not as_if_on_a_device
    assert not as_if_on_a_device
    if "clip_norm" not in options:
        expect(training.seen, split(batches, 2))


@pytest.mark.parametrize("options", [{"skip_nonfinite": True}, {"scaler": True}], ids=str)
def test_a_device_is_waited_for_once_where_a_decision_needs_it(
    as_if_on_a_device: list[str], options: dict[str, Any]
) -> None:
    if "scaler" in options:
        options = {"scaler": torch.amp.GradScaler("cpu", init_scale=8.0)}
    batches = data(3, 1, 7, 2, 2)
    training = Training(accumulate=2, **options)
    for batch in training.stepper(batches):
        loss, weight = loss_of(training.model, batch), on_device(batch)
        as_if_on_a_device.clear()
        closes = training.stepper.steps
        training.stepper.backward(loss, weight=weight)
        # torch's own unscale_ and update do not wait either
        assert len(as_if_on_a_device) == training.stepper.steps - closes
    expect(training.seen, split(batches, 2), tolerance=1e-6 if "scaler" in options else TOLERANCE)


def test_a_window_masked_on_the_device_is_seen_where_a_device_is_waited_for(
    as_if_on_a_device: list[str],
) -> None:
    training = Training("AdamW", skip_nonfinite=True)
    training.run(data(2, 2))
    before = training.weights()
    training.run(data(2), weigh=constant(torch.tensor(0)))
    assert training.stepper.last_step is not None
    assert training.stepper.last_step.reason == "no weight"
    assert same(training.weights(), before)


def test_a_negative_weight_on_a_device_is_an_error_there(as_if_on_a_device: list[str]) -> None:
    with pytest.raises(RuntimeError, match="weight is negative or not finite"):
        Training().run(data(2), weigh=constant(torch.tensor(-1.0)))


# In low precision
def test_bf16_gradients_can_be_added_up_in_fp32() -> None:
    torch.manual_seed(0)
    exact = nn.Linear(64, 8)
    n = 256
    x = torch.randn(n, 4, 64).bfloat16()
    gradients = {}
    for dtype in (None, torch.float32):
        model = copy.deepcopy(exact).bfloat16()
        optimizer = torch.optim.AdamW(model.parameters(), lr=0.1)
        seen = Seen(optimizer)
        stepper = Stepper(model, optimizer, accumulate=n, accumulate_dtype=dtype)
        for one in stepper(x):
            stepper.backward(model(one).square().mean())
        (gradients[dtype],) = seen.gradients
        assert gradients[dtype][0].dtype == torch.bfloat16
        assert stepper.steps == 1
    reference = copy.deepcopy(exact).bfloat16().double()
    loss = reference(x.double().reshape(-1, 64)).square().mean()
    expected = torch.autograd.grad(loss, list(reference.parameters()))
    plain, added = (error(gradients[dtype], expected) for dtype in (None, torch.float32))
    assert added < plain / 3
    assert added < 2.0**-8
