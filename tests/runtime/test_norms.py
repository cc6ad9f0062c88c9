"""Measured norms: those that each step used, and what it should have used, against torch itself."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from support.training import batches, loss_of, net, sgd
from zerograd.recording.reader import Played, replay
from zerograd.recording.writer import Recorder
from zerograd.runtime import gradient_values
from zerograd.runtime.watch import Watch


def norm(grads: Any) -> float:
    return float(torch.cat([grad.flatten() for grad in grads]).norm())


def recorded(path: Path, train: Callable[[], None]) -> tuple[list[float], list[Any], Played]:
    """What a run used and should have used, as its recording has it."""
    recorder = Recorder(str(path))
    with Watch("collect", record=recorder):
        train()
    recorder.close(clean=True)
    used: list[float] = []
    right: list[Any] = []

    def take(name: str, first: int, each: int, some: list[float], others: list[Any]) -> None:
        assert (first, each) == (len(used) + 1, 1)
        used.extend(some)
        right.extend(others)

    return used, right, replay(str(path), lambda *_: None, take)


class Oracle:
    """Trains, and recomputes by itself what every step uses and should use."""

    def __init__(self, missing: set[int], windows: int = 1, clip: float = 0.0) -> None:
        self.used: list[float] = []
        self.right: list[float | None] = []
        self._missing = missing
        self._windows = windows
        self._clip = clip

    def train(self) -> None:
        model = net()
        optimizer = sgd(model)
        params = list(model.parameters())
        inputs = iter(batches(400))
        for step in range(300 // self._windows):
            stale = step in self._missing and step > 0
            if not stale:
                optimizer.zero_grad()
            window = [torch.zeros_like(param) for param in params]
            for _ in range(self._windows):
                loss = loss_of(model, next(inputs))
                brought = torch.autograd.grad(loss, params, retain_graph=True)
                window = [a + b for a, b in zip(window, brought, strict=True)]
                loss.backward()
            right = norm(window)
            if self._clip:
                right = min(right, self._clip)
                torch.nn.utils.clip_grad_norm_(params, self._clip)
            self.used.append(norm(param.grad for param in params))
            self.right.append(right if stale else None)
            optimizer.step()


@pytest.mark.parametrize(
    ("missing", "windows", "clip"),
    [
        (set(), 1, 0.0),
        ({50}, 1, 0.0),
        (set(range(1, 300)), 1, 0.0),
        ({3, 4, 9, 200}, 1, 0.0),
        ({7, 8}, 3, 0.0),
        ({7, 8, 30}, 2, 1.0),
        ({7, 8, 30}, 1, 1e9),
    ],
)
def test_norms_are_those_that_torch_computes(
    tmp_path: Path, missing: set[int], windows: int, clip: float
) -> None:
    oracle = Oracle(missing, windows, clip)
    used, right, _ = recorded(tmp_path / "run.jsonl", oracle.train)
    assert used == pytest.approx(oracle.used, rel=1e-4)
    assert [one is None for one in right] == [one is None for one in oracle.right]
    for one, other in zip(right, oracle.right, strict=True):
        assert one == (other if other is None else pytest.approx(other, rel=1e-3))


def test_a_recorded_run_is_bit_identical(tmp_path: Path) -> None:
    def train() -> list[Any]:
        torch.manual_seed(3)
        model = net()
        optimizer = torch.optim.Adam(model.parameters())
        for number, x in enumerate(batches(40)):
            if number % 3:
                optimizer.zero_grad()
            loss_of(model, x + torch.randn(())).backward()
            optimizer.step()
        return [param.detach().clone() for param in model.parameters()]

    bare = train()
    state = torch.get_rng_state()
    watched: list[Any] = []
    recorded(tmp_path / "run.jsonl", lambda: watched.extend(train()))
    assert all(torch.equal(one, other) for one, other in zip(bare, watched, strict=True))
    assert torch.equal(state, torch.get_rng_state())


@pytest.mark.parametrize("windows", [1, 2])
def test_of_gradients_too_large_to_copy_one_backward_has_numbers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, windows: int
) -> None:
    monkeypatch.setattr(gradient_values, "MOST_BYTES", 3)
    oracle = Oracle({5}, windows)
    _, right, _ = recorded(tmp_path / "run.jsonl", oracle.train)
    assert right[5] == (pytest.approx(oracle.right[5], rel=1e-3) if windows == 1 else None)
    assert [one for one in right if one is not None] == right[5:6] * (windows == 1)


def test_half_precision_does_not_overflow(tmp_path: Path) -> None:
    def train() -> None:
        weight = torch.nn.Parameter(torch.ones(1000, dtype=torch.float16))
        optimizer = torch.optim.SGD([weight], lr=0.0)
        loss: Any = (weight * 30_000).sum()
        loss.backward()
        optimizer.step()

    used, _, _ = recorded(tmp_path / "run.jsonl", train)
    assert used == pytest.approx([30_000 * 1000**0.5], rel=1e-3)


def test_what_is_not_finite_is_reported(tmp_path: Path) -> None:
    def train() -> None:
        weight = torch.nn.Parameter(torch.ones(2))
        optimizer = torch.optim.SGD([weight], lr=0.0)
        for factor in (1.0, float("inf"), float("nan")):
            optimizer.zero_grad()
            loss: Any = (weight * factor).sum()
            loss.backward()
            optimizer.step()

    used, _, _ = recorded(tmp_path / "run.jsonl", train)
    assert [str(one) for one in used[1:]] == ["inf", "nan"]


def test_a_model_that_the_program_drops_is_gone(tmp_path: Path) -> None:
    gone: list[Any] = []

    def train() -> None:
        model = net()
        optimizer = sgd(model)
        for x in batches(3):
            loss_of(model, x).backward()
            optimizer.step()
        gone.append(weakref.ref(next(iter(model.parameters()))))
        del model, optimizer
        gc.collect()
        assert gone[0]() is None

    used, _, played = recorded(tmp_path / "run.jsonl", train)
    assert len(used) == 3, "what waited is written when its optimizer goes"
    assert [title for title, _ in played.titles.values()] == ["optimizer: SGD, 4 parameters"]


def test_a_recording_holds_what_was_watched(tmp_path: Path) -> None:
    _, _, played = recorded(tmp_path / "run.jsonl", Oracle(set()).train)
    assert played.watched is not None
    assert (played.watched.steps, played.watched.windows) == (300, {1: 300})
    assert "ZG106" in played.watched.could_not
    assert list(played.titles.values()) == [("optimizer: SGD, 4 parameters", 4)]
    assert any(str(path).endswith("test_norms.py") for path in played.sources)
