"""The record of a step describes its window."""

from __future__ import annotations

import pytest
import torch

from support.big_batch import data
from support.stepper_training import Training
from zerograd.stepper import Step


def test_a_step_says_what_became_of_its_window() -> None:
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
