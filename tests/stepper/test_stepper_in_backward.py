"""A `Stepper` that steps inside backward and frees each gradient at once."""

from __future__ import annotations

import gc
from typing import Any

import pytest
import torch
from torch import nn

from support.big_batch import data, loss_of, net
from support.stepper_training import Training, constant, same
from zerograd.stepper import Stepper


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
