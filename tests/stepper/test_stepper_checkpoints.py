"""A `Stepper` can be saved and loaded, also in the middle of a window."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

from support.big_batch import data, expect, loss_of
from support.stepper_training import Training, same
from zerograd.stepper import Stepper


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

    saved = torch.load(tmp_path / "saved.pt", weights_only=True)  # plain tensors and numbers
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
