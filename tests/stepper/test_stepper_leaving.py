"""However a loop is left, nothing of its window reaches the next window."""

from __future__ import annotations

import copy
import gc
from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from support.big_batch import TOLERANCE, Batch, Seen, big_batch, data, error, expect, loss_of, net
from support.stepper_training import Training, split
from zerograd.stepper import Stepper


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
            # the last layer already has its gradient when the first one fails
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


def test_adding_up_in_another_dtype_leaves_nothing_behind_either() -> None:
    batches = data(3, 1, 7, 2, 2)
    training = Training(accumulate=2, accumulate_dtype=torch.float64, clip_norm=1e9)
    gone(training, batches, _raise)
    torch.autograd.backward(loss_of(training.model, batches[0]))
    training.run(batches)
    expect(training.seen, [batches[:2], *split(batches, 2)])
