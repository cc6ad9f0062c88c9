"""Properties of all uses of a stepper: every step is exact, and `watch` finds nothing."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule

import zerograd
from support import tiers
from support.big_batch import Batch, Seen, data, expect, loss_of, net
from zerograd.stepper import Stepper

usual = tiers.random(60)

sizes = st.lists(st.integers(0, 9), min_size=1, max_size=12)
"""Numbers of samples; 0 is a batch that is completely masked."""


def weigh(stepper: Stepper, model: torch.nn.Module, batch: Batch, size: int, summed: bool) -> None:
    loss = loss_of(model, batch)
    stepper.backward(loss * size if summed else loss, weight=size)


@usual
@given(
    sizes=sizes,
    n=st.integers(1, 6),
    optimizer=st.sampled_from(["SGD", "AdamW"]),
    summed=st.booleans(),
    scale=st.sampled_from([1.0, 1e-6, 1e6]),
)
def test_any_split_into_batches_and_windows_is_exact(
    sizes: list[int], n: int, optimizer: str, summed: bool, scale: float
) -> None:
    model = net()
    made = getattr(torch.optim, optimizer)(model.parameters(), lr=0.05)
    seen = Seen(made)
    stepper = Stepper(model, made, accumulate=n, reduction="sum" if summed else "mean")
    pairs = list(zip(data(*sizes), sizes, strict=True))
    for batch, size in stepper(pairs):
        loss = loss_of(model, batch)
        stepper.backward(loss * (size * scale) if summed else loss, weight=size * scale)
    windows = [pairs[start : start + n] for start in range(0, len(pairs), n)]
    kept = [[batch for batch, size in window if size] for window in windows]
    expect(seen, [window for window in kept if window])
    assert [step.stepped for step in stepper.history] == [bool(window) for window in kept]


@usual
@given(sizes=sizes, enough=st.floats(0.5, 20))
def test_windows_by_weight_close_at_the_first_batch_that_is_enough(
    sizes: list[int], enough: float
) -> None:
    model = net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    seen = Seen(optimizer)
    stepper = Stepper(model, optimizer, accumulate_weight=enough)
    windows: list[list[Batch]] = [[]]
    held = 0
    for batch, size in stepper(zip(data(*sizes), sizes, strict=True)):
        stepper.backward(loss_of(model, batch), weight=size)
        held += size
        if size:
            windows[-1].append(batch)
        if held >= enough:
            assert stepper.last_step is not None
            assert stepper.last_step.weight == held
            windows.append([])
            held = 0
    expect(seen, [window for window in windows if window])


def fail(gradient: torch.Tensor) -> None:
    raise MemoryError


class Uses(RuleBasedStateMachine):
    """Batches, exceptions, flushes, skips and resumes in any order; an oracle keeps the windows.

    Everything runs under `watch`, which must find nothing.
    """

    @initialize(
        n=st.integers(1, 4),
        optimizer=st.sampled_from(["SGD", "AdamW"]),
        scaled=st.booleans(),
        clip=st.booleans(),
        by_weight=st.booleans(),
    )
    def begin(self, n: int, optimizer: str, scaled: bool, clip: bool, by_weight: bool) -> None:
        self.watching = zerograd.watch(on="collect")
        self.report = self.watching.__enter__()
        self.n = n
        self.scaled = scaled
        self.by_weight = by_weight
        self.options: dict[str, Any] = {"skip_nonfinite": True}
        self.options["accumulate_weight" if by_weight else "accumulate"] = n
        if clip:
            self.options["clip_norm"] = 1e9
        self.kind = getattr(torch.optim, optimizer)
        self.made = 0
        self.resumed = False
        self.open: list[Batch] = []
        self.weight = 0
        self.count = self.weight = 0
        self.poisoned = False
        self.make()

    def make(self) -> None:
        self.model = net()
        self.optimizer = self.kind(self.model.parameters(), lr=0.05)
        self.scaler = torch.amp.GradScaler("cpu", init_scale=4.0) if self.scaled else None
        self.stepper = Stepper(self.model, self.optimizer, scaler=self.scaler, **self.options)
        self.seen = Seen(self.optimizer)
        self.loop: Any = None
        self.expected: list[list[Batch]] = []

    def closed(self) -> None:
        if self.open and not self.poisoned:
            self.expected.append(self.open)
        self.dropped()

    def dropped(self) -> None:
        self.open = []
        self.count = self.weight = 0
        self.poisoned = False

    def check(self) -> None:
        expect(self.seen, self.expected, tolerance=1e-6 if self.scaled else 1e-12)

    def forward(self, size: int) -> tuple[Batch, torch.Tensor]:
        if self.loop is None:
            if not self.resumed:
                self.dropped()
            self.resumed = False
            self.loop = iter(self.stepper(iter(int, 1)))
        next(self.loop)
        self.made += 1
        (batch,) = data(size, seed=self.made)
        return batch, loss_of(self.model, batch)

    def took(self, weight: int) -> None:
        self.count += 1
        self.weight += weight
        if (self.weight if self.by_weight else self.count) >= self.n:
            self.closed()

    @rule(size=st.integers(0, 5))
    def a_batch(self, size: int) -> None:
        batch, loss = self.forward(size)
        self.stepper.backward(loss, weight=size)
        if size:
            self.open.append(batch)
        self.took(size)

    @rule()
    def a_batch_with_nan(self) -> None:
        _, loss = self.forward(1)
        self.stepper.backward(loss * math.nan)
        self.poisoned = True
        self.took(1)

    @rule()
    def a_batch_left_out(self) -> None:
        self.forward(1)

    @rule()
    def a_refused_call(self) -> None:
        _, loss = self.forward(1)
        try:
            self.stepper.backward(loss, weight=-1)
        except ValueError:
            return
        raise AssertionError

    @rule()
    def a_backward_that_fails(self) -> None:
        batch, _ = self.forward(2)
        hidden = self.model[0](batch[0])
        hidden.register_hook(fail)
        try:
            self.stepper.backward(self.model[2](hidden).mean())
        except MemoryError:
            self.dropped()
            return
        raise AssertionError

    @rule()
    def flush(self) -> None:
        self.stepper.flush()
        if self.count:
            self.closed()

    @precondition(lambda self: self.loop is not None)
    @rule(held=st.booleans())
    def leave(self, held: bool) -> None:
        """A loop that something still holds ends when the next loop begins, not before."""
        self.held = self.loop if held else None
        self.loop = None
        if not held:
            self.dropped()

    @precondition(lambda self: self.loop is not None)
    @rule()
    def evaluate(self) -> None:
        with torch.no_grad():
            self.model(torch.zeros(1, 3, dtype=torch.float64))

    @rule()
    def resume(self) -> None:
        self.check()
        parts = self.model, self.optimizer, self.stepper, self.scaler
        states: list[Any] = [None if one is None else one.state_dict() for one in parts]
        states[0] = {name: value.clone() for name, value in states[0].items()}
        self.make()
        self.resumed = True
        again = self.model, self.optimizer, self.stepper, self.scaler
        for one, state in zip(again, states, strict=True):
            if one is not None:
                one.load_state_dict(state)

    def teardown(self) -> None:
        if hasattr(self, "watching"):
            try:
                self.check()
                assert [finding.code for finding in self.report.findings] == []
            finally:
                self.loop = self.held = None
                self.watching.__exit__(None, None, None)


Uses.TestCase.settings = tiers.size(50, stateful_step_count=25)
TestUses = pytest.mark.sampled(Uses.TestCase)


def test_interleaved_windows_of_two_steppers_have_no_finding() -> None:
    with zerograd.watch(on="collect") as report:
        for n, m in ((1, 1), (2, 3), (3, 2), (1, 4)):
            torch.manual_seed(0)
            g = torch.nn.Linear(2, 3)
            d = torch.nn.Linear(3, 1)
            g_stepper = Stepper(g, torch.optim.Adam(g.parameters()), accumulate=n)
            d_stepper = Stepper(d, torch.optim.Adam(d.parameters()), accumulate=m)
            for real in d_stepper(g_stepper(torch.randn(12, 4, 3))):
                fake = g(torch.randn(4, 2))
                d_stepper.backward(d(real).mean() - d(fake.detach()).mean())
                g_stepper.backward(d(fake).mean())
    assert [finding.code for finding in report.findings] == []


def test_every_option_has_no_finding() -> None:
    every: list[dict[str, Any]] = [
        {"accumulate": 3, "clip_norm": 0.1},
        {"accumulate": 3, "clip_value": 0.1},
        {"accumulate_weight": 5},
        {"free_gradients": True},
        {"accumulate": 3, "accumulate_dtype": torch.float64},
        {"accumulate": 2, "scaler": torch.amp.GradScaler("cpu", init_scale=4.0)},
    ]
    with zerograd.watch(on="collect") as report:
        for options in every:
            model = net()
            stepper = Stepper(model, torch.optim.AdamW(model.parameters()), **options)
            for _ in range(2):
                for batch in stepper(data(3, 1, 7, 2, 2, 4, 4)):
                    stepper.backward(loss_of(model, batch), weight=len(batch[0]))
    assert [finding.code for finding in report.findings] == []
