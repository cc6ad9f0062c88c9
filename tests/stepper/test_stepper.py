"""`Stepper` on one process: whatever happens in a loop, a step uses the gradient of its window."""

from __future__ import annotations

import copy
import gc
import math
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

import zerograd
from support.big_batch import TOLERANCE, Batch, Seen, big_batch, data, error, expect, loss_of, net
from zerograd.stepper import Step, Stepper, weights


class Training:
    """A model, an optimizer, a stepper over them, and what was stepped on."""

    def __init__(self, optimizer: str = "SGD", *, lr: float = 0.1, **options: Any) -> None:
        self.model = net()
        kind = getattr(torch.optim, optimizer)
        self.optimizer: torch.optim.Optimizer = kind(self.model.parameters(), lr=lr)
        self.seen = Seen(self.optimizer)
        self.stepper = Stepper(self.model, self.optimizer, **options)

    def run(
        self, batches: Any, weigh: Callable[[Batch], object] = lambda batch: len(batch[0])
    ) -> None:
        for batch in self.stepper(batches):
            self.stepper.backward(loss_of(self.model, batch), weight=weigh(batch))

    def weights(self) -> list[Tensor]:
        return [param.detach().clone() for param in self.model.parameters()]

    def gradients(self) -> list[Tensor | None]:
        return [param.grad for param in self.model.parameters()]


def constant(weight: object) -> Callable[[Batch], object]:
    return lambda _: weight


def same(one: list[Tensor], other: list[Tensor]) -> bool:
    return all(torch.equal(a, b) for a, b in zip(one, other, strict=True))


def split(batches: list[Batch], n: int) -> list[list[Batch]]:
    return [batches[start : start + n] for start in range(0, len(batches), n)]


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
    """Tensors count as if they were on a device; whoever waits for one is written down."""
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
        # torch's own unscale_ and update read nothing either
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


# Clipping, scaling, skipping


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


# Leaving


def gone(training: Training, batches: list[Batch], leave: Callable[[], None]) -> None:
    """A loop that is left in the middle of its second window."""
    try:
        for number, batch in enumerate(training.stepper(batches)):
            if number == 3:
                leave()
            training.stepper.backward(loss_of(training.model, batch), weight=len(batch[0]))
            if number == 2 and leave is _break:
                break
    except ZeroDivisionError:
        pass


def _break() -> None:
    raise AssertionError


def _raise() -> None:
    raise ZeroDivisionError


@pytest.mark.parametrize("leave", [_break, _raise])
def test_leaving_the_loop_drops_the_open_window(leave: Callable[[], None]) -> None:
    batches = data(3, 1, 7, 2, 2)
    training = Training(accumulate=2)
    gone(training, batches, leave)
    gc.collect()
    assert training.gradients() == [None] * 4
    training.run(batches)
    expect(training.seen, [batches[:2], *split(batches, 2)])


def test_a_loop_that_somebody_holds_on_to_leaks_nothing_into_the_next() -> None:
    batches = data(3, 1, 7, 2, 2)
    training = Training(accumulate=2)
    held = training.stepper(batches)
    for number, batch in enumerate(held):
        training.stepper.backward(loss_of(training.model, batch), weight=len(batch[0]))
        if number == 2:
            break
    training.run(batches)
    expect(training.seen, [batches[:2], *split(batches, 2)])
    with pytest.raises(RuntimeError, match="this loop ended when the same stepper began another"):
        next(iter(held))
    del held
    gc.collect()
    training.run(batches[:2])
    assert training.stepper.steps == 5


def test_flush_keeps_what_is_open() -> None:
    batches = data(3, 1, 7, 2, 2)
    training = Training(accumulate=2)
    training.stepper.flush()
    for number, batch in enumerate(training.stepper(batches)):
        if number == 3:
            training.stepper.flush()
            training.stepper.flush()
            break
        training.stepper.backward(loss_of(training.model, batch), weight=len(batch[0]))
    training.stepper.flush()
    expect(training.seen, [batches[:2], batches[2:3]])


def test_flush_in_the_middle_and_on() -> None:
    batches = data(3, 1, 7, 2, 2)
    training = Training(accumulate=3)
    for number, batch in enumerate(training.stepper(batches)):
        training.stepper.backward(loss_of(training.model, batch), weight=len(batch[0]))
        if number == 0:
            training.stepper.flush()
    expect(training.seen, [batches[:1], batches[1:4], batches[4:]])


def test_a_backward_that_fails_takes_its_window_with_it() -> None:
    def fail(gradient: Tensor) -> None:
        raise MemoryError

    batches = data(3, 1, 7, 2, 2)
    training = Training(accumulate=2)
    for number, batch in enumerate(training.stepper(batches)):
        if number == 1:
            # the last layer has its gradient by the time the first fails
            hidden = training.model[0](batch[0])
            hidden.register_hook(fail)
            with pytest.raises(MemoryError):
                training.stepper.backward(training.model[2](training.model[1](hidden)).mean())
            assert training.gradients() == [None] * 4
            continue
        training.stepper.backward(loss_of(training.model, batch), weight=len(batch[0]))
    expect(training.seen, [batches[2:4], batches[4:]])


def test_a_step_that_fails_leaves_nothing_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    batches = data(3, 1, 7)
    scaler = torch.amp.GradScaler("cpu", init_scale=8.0)
    training = Training(accumulate=2, scaler=scaler)
    with monkeypatch.context() as patch:
        patch.setattr(training.optimizer, "step", _out_of_memory)
        with pytest.raises(MemoryError):
            training.run(batches)
    assert training.gradients() == [None] * 4
    training.run(batches)
    expect(training.seen, split(batches, 2), tolerance=1e-6)


def _out_of_memory() -> None:
    raise MemoryError


def test_a_batch_may_be_left_out_with_continue() -> None:
    batches = data(3, 1, 7, 2)
    training = Training(accumulate=2)
    for number, batch in enumerate(training.stepper(batches)):
        if number != 1:
            training.stepper.backward(loss_of(training.model, batch), weight=len(batch[0]))
    expect(training.seen, [[batches[0], batches[2]], [batches[3]]])


def test_an_empty_loader_does_nothing() -> None:
    training = Training(accumulate=2)
    training.run([])
    assert training.stepper.last_step is None
    assert not training.stepper.history


def test_what_was_in_the_gradients_before_is_not_used() -> None:
    batches = data(3, 1)
    training = Training(accumulate=2)
    torch.autograd.backward(loss_of(training.model, batches[0]))
    for batch in training.stepper(batches):
        if not training.stepper._window.count:
            torch.autograd.backward(
                loss_of(training.model, batch)
            )  # before the window's first backward
        training.stepper.backward(loss_of(training.model, batch), weight=len(batch[0]))
    expect(training.seen, [batches])


def test_parameters_may_join_between_windows() -> None:
    batches = data(3, 1, 2)
    model = net()
    optimizer = torch.optim.SGD(model[2].parameters(), lr=0.1)
    seen = Seen(optimizer)
    stepper = Stepper(model, optimizer, accumulate=2)
    for batch in stepper(batches):
        stepper.backward(loss_of(model, batch), weight=len(batch[0]))
        if stepper.steps == 1 and len(optimizer.param_groups) == 1:
            optimizer.add_param_group({"params": list(model[0].parameters())})
            now = copy.deepcopy(model)
    expected = big_batch(now, batches[2:])
    assert error(seen.gradients[1], [*expected[2:], *expected[:2]]) < TOLERANCE


# Two steppers


class Gan:
    """A generator and a discriminator, with a stepper each."""

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


def test_adding_up_in_another_dtype_leaves_nothing_behind_either() -> None:
    batches = data(3, 1, 7, 2, 2)
    training = Training(accumulate=2, accumulate_dtype=torch.float64, clip_norm=1e9)
    gone(training, batches, _raise)
    torch.autograd.backward(loss_of(training.model, batches[0]))
    training.run(batches)
    expect(training.seen, [batches[:2], *split(batches, 2)])


# Optimizer-in-backward


@pytest.mark.parametrize("optimizer", ["SGD", "AdamW", "Adagrad", "RMSprop"])
@pytest.mark.parametrize("reduction", ["mean", "sum"])
def test_freeing_gradients_changes_no_weight(optimizer: str, reduction: str) -> None:
    batches = data(3, 1, 7, 2, 2)
    trained = []
    for free in (False, True):
        training = Training(optimizer, free_gradients=free, clip_value=0.05, reduction=reduction)
        schedule = torch.optim.lr_scheduler.StepLR(training.optimizer, 2, 0.5)
        training.stepper._schedulers = [schedule]
        training.run(batches)
        assert training.gradients() == [None] * 4
        assert training.stepper.steps == 5
        trained.append((training.weights(), training.optimizer.state_dict()))
    assert same(trained[0][0], trained[1][0])
    states = [[one for _, one in sorted(state["state"].items())] for _, state in trained]
    for one, other in zip(*states, strict=True):
        assert {name: torch.as_tensor(value).tolist() for name, value in one.items()} == {
            name: torch.as_tensor(value).tolist() for name, value in other.items()
        }


def test_a_masked_batch_frees_and_steps_nothing() -> None:
    training = Training("AdamW", free_gradients=True)
    training.run(data(3))
    before = training.weights()
    training.run(data(3), weigh=constant(0))
    assert same(training.weights(), before)
    assert training.stepper.skipped == 1


def test_freeing_ends_with_the_stepper() -> None:
    training = Training(free_gradients=True)
    training.run(data(3))
    model, batch = training.model, data(3)[0]
    torch.autograd.backward(loss_of(model, batch))
    assert all(grad is not None for grad in training.gradients()), "only the stepper's own backward"
    hooks = [param._post_accumulate_grad_hooks for param in model.parameters()]
    del training
    gc.collect()
    assert not any(hooks)


def test_an_optimizer_that_keeps_its_state_together_cannot_step_in_parts() -> None:
    class Counting(torch.optim.SGD):
        def step(self, closure: Any = None) -> Any:
            for group in self.param_groups:
                group["k"] = group.get("k", 0) + 1
            return super().step(closure)

    model = net()
    optimizer = Counting(model.parameters(), lr=0.1)
    optimizer.param_groups[0]["k"] = 0
    stepper = Stepper(model, optimizer, free_gradients=True)
    for batch in stepper(data(3)):
        with pytest.raises(TypeError, match="Counting keeps state of all parameters together"):
            stepper.backward(loss_of(model, batch))


def test_a_second_gradient_after_the_first_was_used_is_an_error() -> None:
    from torch.utils.checkpoint import checkpoint

    model = nn.Linear(3, 3).double()
    stepper = Stepper(model, torch.optim.SGD(model.parameters(), lr=0.1), free_gradients=True)
    for x, _ in stepper(data(3)):
        hidden = checkpoint(model, x.requires_grad_(), use_reentrant=True)
        loss = checkpoint(model, hidden, use_reentrant=True).mean()
        with pytest.raises(RuntimeError, match="use_reentrant=False"):
            stepper.backward(loss)


# What is told


def test_a_step_tells_what_became_of_its_window() -> None:
    training = Training(accumulate=2, clip_norm=10.0)
    training.run(data(3, 1, 7))
    first, last = training.stepper.history
    assert training.stepper.last_step is last
    assert isinstance(first, Step)
    assert (first.index, first.stepped, first.length, first.weight) == (0, True, 2, 4.0)
    assert (last.index, last.stepped, last.length, last.weight) == (1, True, 1, 7.0)
    gradient = torch.cat([grad.flatten() for grad in training.seen.gradients[0]])
    assert first.norm == pytest.approx(float(gradient.norm()))
    assert first.scale is None
    assert "stepped, length=2, weight=4, norm=" in repr(first)
    assert "lr=(0.1,)" in repr(first)


def test_a_progress_bar_can_ask_for_the_length() -> None:
    training = Training()
    assert len(training.stepper(data(1, 1))) == 2
    with pytest.raises(TypeError):
        len(training.stepper(iter(data(1, 1))))
    assert len(list(training.stepper(iter(range(3))))) == 3


# Checkpoints


@pytest.mark.parametrize("optimizer", ["SGD", "AdamW"])
@pytest.mark.parametrize("stop", range(1, 8))
@pytest.mark.parametrize("dtype", [None, torch.float64])
def test_resuming_in_the_middle_of_a_window_changes_no_bit(
    optimizer: str, stop: int, dtype: torch.dtype | None, tmp_path: Any
) -> None:
    batches = data(3, 1, 7, 2, 2, 5, 4)

    def options() -> dict[str, Any]:
        if dtype is not None:
            return {"accumulate": 3, "accumulate_dtype": dtype}
        return {"accumulate": 3, "scaler": torch.amp.GradScaler("cpu", growth_interval=1)}

    through = Training(optimizer, **options())
    through.run(batches)

    begun = Training(optimizer, **options())
    for number, batch in enumerate(begun.stepper(batches), start=1):
        begun.stepper.backward(loss_of(begun.model, batch), weight=len(batch[0]))
        if number == stop:
            saved = {
                "model": begun.model.state_dict(),
                "optimizer": begun.optimizer.state_dict(),
                "stepper": begun.stepper.state_dict(),
                "scaler": begun.stepper._scaler and begun.stepper._scaler.state_dict(),
            }
            torch.save(saved, tmp_path / "saved.pt")
            break

    saved = torch.load(tmp_path / "saved.pt")  # weights only: plain tensors and numbers
    resumed = Training(optimizer, **options())
    resumed.model.load_state_dict(saved["model"])
    resumed.optimizer.load_state_dict(saved["optimizer"])
    if resumed.stepper._scaler is not None:
        resumed.stepper._scaler.load_state_dict(saved["scaler"])
    resumed.stepper.load_state_dict(saved["stepper"])
    resumed.run(batches[stop:])
    assert same(resumed.weights(), through.weights())
    assert resumed.stepper.steps == through.stepper.steps == 3


def test_a_loaded_window_can_be_flushed() -> None:
    batches = data(3, 1, 7)
    training = Training(accumulate=4)
    for number, batch in enumerate(training.stepper(batches)):
        training.stepper.backward(loss_of(training.model, batch), weight=len(batch[0]))
        if number == 1:
            state = training.stepper.state_dict()
            break
    training.stepper.load_state_dict(state)
    training.stepper.flush()
    expect(training.seen, [batches[:2]])


def test_a_state_of_something_else_is_refused() -> None:
    training = Training(accumulate=4)
    with pytest.raises(ValueError, match="not the state of a Stepper"):
        training.stepper.load_state_dict({})
    for batch in training.stepper(data(2)):
        training.stepper.backward(loss_of(training.model, batch))
        state = training.stepper.state_dict()
        with pytest.raises(RuntimeError, match="before the loop"):
            training.stepper.load_state_dict(state)
    other = nn.Linear(2, 2)
    stepper = Stepper(other, torch.optim.SGD(other.parameters(), lr=0.1))
    with pytest.raises(ValueError, match="gradients of other parameters"):
        stepper.load_state_dict(state)


# What is refused


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


def test_a_scheduler_that_must_be_told_something_is_refused() -> None:
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
