"""Inside the loop of a stepper, calls by hand on its gradients are refused where they are made."""

from __future__ import annotations

import contextlib
import copy
import pickle
import traceback
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch import nn

from support.big_batch import Batch, data, expect, loss_of, net
from support.stepper_training import Training, split
from zerograd.stepper import Stepper

Call = Callable[[Training, Batch], Any]


def plain_backward(training: Training, batch: Batch) -> None:
    torch.autograd.backward(loss_of(training.model, batch))


def step(training: Training, batch: Batch) -> None:
    training.optimizer.step()


def scaled_step(training: Training, batch: Batch) -> None:
    scaler = torch.amp.GradScaler("cpu")
    scaler.scale(torch.ones(()))
    for param in training.model.parameters():
        param.grad = torch.zeros_like(param)
    scaler.step(training.optimizer)


def zero_grad(training: Training, batch: Batch) -> None:
    training.optimizer.zero_grad()


def zero_in_place(training: Training, batch: Batch) -> None:
    training.optimizer.zero_grad(set_to_none=False)


BY_HAND: dict[str, tuple[Call, str]] = {
    "backward": (plain_backward, r"Call stepper\.backward\(loss\)"),
    "step": (step, r"call stepper\.flush\(\)"),
    "scaler.step": (scaled_step, r"call stepper\.flush\(\)"),
    "zero_grad": (zero_grad, "Remove the call: the stepper clears"),
    "zero_grad in place": (zero_in_place, "Remove the call: the stepper clears"),
}


@pytest.mark.parametrize("accumulate", [1, 2])
@pytest.mark.parametrize("when", ["before", "after", "instead"])
@pytest.mark.parametrize("name", BY_HAND)
def test_a_call_by_hand_is_refused_at_its_line(name: str, when: str, accumulate: int) -> None:
    call, way_out = BY_HAND[name]
    training = Training(accumulate=accumulate)

    def train() -> None:
        for batch in training.stepper(data(3, 3)):
            if when == "after":
                training.stepper.backward(loss_of(training.model, batch))
            call(training, batch)
            if when == "before":
                training.stepper.backward(loss_of(training.model, batch))

    with pytest.raises(RuntimeError, match=way_out) as raised:
        train()
    assert call.__name__ in [frame.name for frame in traceback.extract_tb(raised.tb)]


@pytest.mark.parametrize("options", [{"free_gradients": True}, {"accumulate_dtype": torch.float64}])
@pytest.mark.parametrize("name", BY_HAND)
def test_no_option_lets_a_call_by_hand_pass(name: str, options: dict[str, Any]) -> None:
    call, way_out = BY_HAND[name]
    training = Training(**options)
    (batch,) = data(3)
    loop = iter(training.stepper([batch]))
    next(loop)
    with pytest.raises(RuntimeError, match=way_out):
        call(training, batch)


@pytest.mark.parametrize("name", BY_HAND)
def test_outside_of_the_loop_the_same_calls_are_free(name: str) -> None:
    call, _ = BY_HAND[name]
    training = Training(accumulate=2)
    batches = data(3, 1, 7)
    call(training, batches[0])
    training.run(batches)
    call(training, batches[0])
    assert "zero_grad" not in vars(training.optimizer)
    assert all(not param._post_accumulate_grad_hooks for param in training.model.parameters())


@pytest.mark.parametrize("leave", ["break", "error"])
def test_a_loop_that_was_left_refuses_nothing(leave: str) -> None:
    training = Training(accumulate=2)
    batches = data(3, 1, 7)

    def train() -> None:
        for batch in training.stepper(batches):
            training.stepper.backward(loss_of(training.model, batch))
            if leave == "break":
                break
            raise ZeroDivisionError

    with contextlib.suppress(ZeroDivisionError):
        train()
    plain_backward(training, batches[0])
    step(training, batches[0])
    expect(training.seen, [batches[:1]])
    assert all(grad is not None for grad in training.gradients())
    zero_grad(training, batches[0])
    assert training.gradients() == [None] * 4


@pytest.mark.parametrize("bar", [iter, lambda loop: (batch for batch in loop), enumerate])
def test_a_loop_that_only_a_traceback_holds_refuses_nothing(bar: Callable[..., Any]) -> None:
    training = Training()
    (batch,) = data(3)

    def train(refused: bool) -> None:
        for _ in bar(training.stepper([batch])):
            if refused:
                step(training, batch)
            raise ZeroDivisionError

    with pytest.raises(RuntimeError, match="inside the loop of a stepper"):
        train(refused=True)
    with pytest.raises(ZeroDivisionError) as held:
        train(refused=False)
    plain_backward(training, batch)
    step(training, batch)
    zero_grad(training, batch)
    assert held.value.__traceback__ is not None
    assert training.gradients() == [None] * 4


def test_an_open_window_that_was_cleared_is_not_continued() -> None:
    training = Training(accumulate=3)

    def clearing() -> Iterator[Batch]:
        for batch in data(3, 3, 3):
            training.model.zero_grad()
            yield batch

    with pytest.raises(RuntimeError, match=r"were cleared since its last batch \(model.zero_grad"):
        training.run(clearing())
    assert training.stepper.steps == 0


def test_an_open_window_that_was_cleared_is_not_flushed() -> None:
    training = Training(accumulate=3)
    for batch in training.stepper(data(3)):
        training.stepper.backward(loss_of(training.model, batch))
        training.model.zero_grad()
        with pytest.raises(RuntimeError, match="were cleared since its last batch"):
            training.stepper.flush()
    assert training.stepper.steps == 0


def test_a_layer_that_is_unfrozen_in_the_loop_is_no_way_around() -> None:
    training = Training()
    training.model[0].requires_grad_(False)
    for batch in training.stepper(data(3, 3)):
        training.model[0].requires_grad_(True)
        training.stepper.backward(loss_of(training.model, batch))
        training.model[2].requires_grad_(False)
        with pytest.raises(RuntimeError, match="a plain backward"):
            plain_backward(training, batch)
        training.model.requires_grad_(True)


@pytest.mark.parametrize("accumulate", [1, 2])
def test_a_batch_may_be_left_out(accumulate: int) -> None:
    training = Training(accumulate=accumulate)
    batches = data(3, 1, 7, 2, 2)
    for number, batch in enumerate(training.stepper(batches)):
        loss = loss_of(training.model, batch)
        if number == 1:
            continue
        training.stepper.backward(loss, weight=len(batch[0]))
    expect(training.seen, split([batches[0], *batches[2:]], accumulate))


def test_other_models_and_other_gradients_are_free_in_the_loop() -> None:
    training = Training(accumulate=2)
    batches = data(3, 1, 7, 2)
    other = net(1)
    optimizer = torch.optim.SGD(other.parameters(), lr=0.1)
    for x, y in training.stepper(batches):
        optimizer.zero_grad()
        torch.autograd.backward(loss_of(other, (x, y)))
        optimizer.step()
        seen = x.clone().requires_grad_()
        torch.autograd.grad(loss_of(training.model, (seen, y)), seen)
        frozen = copy.deepcopy(training.model).requires_grad_(False)
        torch.autograd.backward(loss_of(frozen, (seen, y)))
        training.stepper.backward(loss_of(training.model, (x, y)), weight=len(x))
    expect(training.seen, split(batches, 2))


def test_copies_made_in_the_loop_are_free() -> None:
    training = Training(accumulate=2)
    batches = data(3, 1)
    for batch in training.stepper(batches):
        made = training.model, training.optimizer
        for model, optimizer in (copy.deepcopy(made), pickle.loads(pickle.dumps(made))):
            optimizer.zero_grad()
            torch.autograd.backward(loss_of(model, batch))
            optimizer.step()
        training.stepper.backward(loss_of(training.model, batch), weight=len(batch[0]))
    assert training.stepper.steps == 1


def test_two_steppers_may_share_an_optimizer() -> None:
    training = Training()
    other = Stepper(training.model, training.optimizer)
    batches = data(3, 1)
    for batch in training.stepper(other(batches)):
        training.stepper.backward(loss_of(training.model, batch), weight=len(batch[0]))
        other.backward(loss_of(training.model, batch), weight=len(batch[0]))
    expect(training.seen, [[batches[0]], [batches[0]], [batches[1]], [batches[1]]])


@pytest.mark.parametrize("name", BY_HAND)
def test_of_two_steppers_each_refuses(name: str) -> None:
    call, way_out = BY_HAND[name]
    inner, outer = Training(), Training()
    (batch,) = data(3)
    for _ in outer.stepper(inner.stepper([batch])):
        for training in (inner, outer):
            with pytest.raises(RuntimeError, match=way_out):
                call(training, batch)


def test_swapped_arguments_are_named() -> None:
    model = net()
    optimizer: Any = torch.optim.SGD(model.parameters(), lr=0.1)
    swapped: Any = Stepper
    for modules, optimizers in ((optimizer, model), ([optimizer], [model])):
        with pytest.raises(TypeError, match=r"the modules come first: Stepper\(model, optimizer\)"):
            swapped(modules, optimizers)
    with pytest.raises(TypeError, match="optimizers must be one Optimizer or several, not Linear"):
        swapped(model, nn.Linear(1, 1))
    with pytest.raises(TypeError, match="modules must be one Module or several, not NoneType"):
        swapped(None, optimizer)


@pytest.mark.parametrize("weight", [3, torch.tensor(3.0)])
def test_a_weight_before_the_loss_is_named(weight: Any) -> None:
    training = Training()
    for batch in training.stepper(data(3)):
        loss = loss_of(training.model, batch)
        with pytest.raises(TypeError, match=r"the loss comes first, backward\(loss, weight\)"):
            training.stepper.backward(weight, loss)
        training.stepper.backward(loss, weight)
    assert training.stepper.steps == 1
