"""Steps that use gradients that are inf or nan: reported if the run ends with them, and only then."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode

import zerograd
from support.training import assert_found, batches, loss_of, net, sgd
from zerograd.core.finding import Report
from zerograd.launch.replay import judged
from zerograd.recording.writer import Recorder

OPTIMIZERS: dict[str, Any] = {
    "SGD": sgd,
    "Adam": lambda model: torch.optim.Adam(model.parameters(), lr=0.01),
    "fused": lambda model: torch.optim.AdamW(model.parameters(), lr=0.01, fused=True),
    "RMSprop": lambda model: torch.optim.RMSprop(model.parameters(), lr=0.01),
}


def remarks(report: Report) -> tuple[str, ...]:
    assert report.watched is not None
    return report.watched.remarks


@pytest.mark.parametrize("bad", [float("inf"), float("nan")])
@pytest.mark.parametrize("kind", OPTIMIZERS)
def test_a_run_whose_gradients_are_not_finite_from_step_11_on_is_reported(
    kind: str, bad: float
) -> None:
    model = net()
    optimizer = OPTIMIZERS[kind](model)
    with zerograd.watch(on="collect") as report:
        for number, x in enumerate(batches(40)):
            optimizer.zero_grad()
            (loss_of(model, x) * (1 if number < 10 else bad)).backward()
            optimizer.step()  # ZG110
    assert_found(report)
    first = report.findings[0].site.iteration
    assert first is not None
    assert 11 <= first <= 16
    assert report.findings[0].seen == 41 - first
    assert remarks(report) == ()


def test_a_long_run_is_reported_soon_after_its_gradients_are_not_finite() -> None:
    model = net()
    optimizer = sgd(model)
    with zerograd.watch(on="collect") as report:
        for number, x in enumerate(batches(1050)):
            optimizer.zero_grad()
            (loss_of(model, x) * (1 if number < 1000 else float("inf"))).backward()
            optimizer.step()  # ZG110
    assert_found(report)


def test_one_parameter_that_is_not_finite_is_seen() -> None:
    model = net()
    optimizer = sgd(model)
    with zerograd.watch(on="collect") as report:
        for x in batches(60):
            optimizer.zero_grad()
            loss_of(model, x).backward()
            model[0].bias.grad[1] = float("inf")
            optimizer.step()  # ZG110
    assert_found(report)


def test_a_function_whose_optimizer_is_gone_when_the_run_ends_is_reported() -> None:
    def train() -> None:
        model = net()
        optimizer = sgd(model, lr=1e30)
        for x in batches(40):
            optimizer.zero_grad()
            loss_of(model, x).backward()
            optimizer.step()

    with zerograd.watch(on="collect") as report:
        train()
    assert [finding.code for finding in report.findings] == ["ZG110"]


def test_both_networks_of_a_gan_are_reported_where_they_step() -> None:
    generator, judge = net(), nn.Linear(2, 1)
    opt_g, opt_d = sgd(generator), sgd(judge)
    with zerograd.watch(on="collect") as report:
        for number, x in enumerate(batches(60)):
            opt_d.zero_grad()
            fake = generator(x)
            bad = 1 if number < 10 else float("nan")
            (judge(fake.detach()).mean() * bad).backward()
            opt_d.step()  # ZG110
            opt_g.zero_grad()
            (-judge(fake).mean()).backward()
            opt_g.step()  # ZG110
    assert_found(report)


@pytest.mark.parametrize("steps", [9, 19])
def test_few_steps_at_the_end_are_a_remark(steps: int) -> None:
    model = net()
    optimizer = sgd(model)
    with zerograd.watch(on="collect") as report:
        for number, x in enumerate(batches(40 + steps)):
            optimizer.zero_grad()
            (loss_of(model, x) * (1 if number < 40 else float("nan"))).backward()
            optimizer.step()  # ZG110
    assert_found(report, right=steps < 10)
    if steps < 10:
        (remark,) = remarks(report)
        assert "used gradients that are inf or nan" in remark


def test_a_program_that_puts_the_parameters_back_is_right() -> None:
    model = net()
    optimizer = sgd(model)
    start = copy.deepcopy(model.state_dict())
    with zerograd.watch(on="collect") as report:
        for number, x in enumerate(batches(80)):
            optimizer.zero_grad()
            (loss_of(model, x) * (float("nan") if 10 < number < 40 else 1)).backward()
            optimizer.step()
            if number == 40:
                model.load_state_dict(start)
    assert_found(report, right=True)
    assert len(remarks(report)) == 1


@pytest.mark.parametrize("trains", [True, False], ids=["trains", "only searches"])
@pytest.mark.parametrize("own", [True, False], ids=["own optimizer", "same optimizer"])
def test_a_search_for_a_learning_rate_is_right(trains: bool, own: bool) -> None:
    model = net()
    optimizer = sgd(model)
    start = copy.deepcopy(model.state_dict())
    with zerograd.watch(on="collect") as report:
        searching = sgd(model) if own else optimizer
        for number, x in enumerate(batches(60)):
            searching.param_groups[0]["lr"] = 1e-6 * 10 ** (number / 2)
            searching.zero_grad()
            loss_of(model, x).backward()
            searching.step()
        model.load_state_dict(start)
        optimizer.param_groups[0]["lr"] = 0.01
        for x in batches(20 if trains else 0):
            optimizer.zero_grad()
            loss_of(model, x).backward()
            optimizer.step()
    assert_found(report, right=True)
    assert len(remarks(report)) == 1


@pytest.mark.parametrize("way", ["skip", "nan_to_num", "clear"])
def test_a_program_that_keeps_such_gradients_from_its_steps_is_right(way: str) -> None:
    model = net()
    optimizer = torch.optim.Adam(model.parameters())
    with zerograd.watch(on="collect") as report:
        for number, x in enumerate(batches(60)):
            optimizer.zero_grad()
            loss = loss_of(model, x) * (float("nan") if number > 20 else 1)
            if way == "skip" and not torch.isfinite(loss):
                continue
            loss.backward()
            for param in model.parameters():
                if way == "nan_to_num":
                    param.grad.nan_to_num_(0.0)
                elif way == "clear" and number > 20:
                    param.grad.zero_()
            optimizer.step()
    assert_found(report, right=True)
    assert remarks(report) == ()


def test_steps_that_a_scaler_skips_are_a_remark() -> None:
    model = net()
    optimizer = sgd(model)
    scaler = torch.amp.GradScaler("cpu", init_scale=4.0)
    with zerograd.watch(on="collect") as report:
        for number, x in enumerate(batches(40)):
            optimizer.zero_grad()
            scaler.scale(loss_of(model, x) * (float("inf") if number > 25 else 1)).backward()
            scaler.step(optimizer)
            scaler.update()
    assert_found(report, right=True)
    assert remarks(report) == (
        "14 steps skipped by a gradient scaler, because of gradients that are inf or nan",
    )


def test_a_parameter_that_holds_inf_on_purpose_is_right() -> None:
    model = net()
    mask = nn.Parameter(torch.tensor([0.0, -float("inf")]))
    optimizer = torch.optim.SGD([*model.parameters(), mask], lr=0.01)
    with zerograd.watch(on="collect") as report:
        for x in batches(100):
            optimizer.zero_grad()
            (loss_of(model, x) + torch.softmax(mask, 0)[0]).backward()
            optimizer.step()
    assert_found(report, right=True)
    assert remarks(report) == ()


def test_what_is_allowed_is_silent() -> None:
    model = net()
    optimizer = sgd(model, lr=1e30)
    with zerograd.watch(on="collect") as report, zerograd.allow("nonfinite-gradient"):
        for x in batches(40):
            optimizer.zero_grad()
            loss_of(model, x).backward()
            optimizer.step()
    assert report.findings == []
    assert remarks(report) == ()


def test_a_recording_is_judged_as_the_run_was(tmp_path: Path) -> None:
    path = str(tmp_path / "run.jsonl")
    model = net()
    optimizer = sgd(model)
    recorder = Recorder(path)
    with zerograd.watch(on="collect") as early:
        pass
    watch = zerograd.watch(on="collect", record=recorder)
    with watch as report:
        for number, x in enumerate(batches(40)):
            optimizer.zero_grad()
            (loss_of(model, x) * (float("nan") if number in (5, *range(15, 40)) else 1)).backward()
            optimizer.step()
            if number == 5:
                model.load_state_dict(net().state_dict())
    recorder.close(clean=True)
    again = judged(path, None, ()).report
    assert early.findings == []
    assert [(one.code, one.seen) for one in report.findings] == [("ZG110", 25)]
    assert [(one.code, one.seen, one.site.iteration) for one in again.findings] == [
        ("ZG110", 25, report.findings[0].site.iteration)
    ]
    assert remarks(again) == remarks(report)


def test_a_mode_of_the_program_hears_no_operation_of_ours() -> None:
    class Listens(TorchDispatchMode):  # type: ignore[no-untyped-call]
        heard: list[str] = []  # noqa: RUF012

        def __torch_dispatch__(
            self, func: Any, types: Any, args: Any = (), kwargs: Any = None
        ) -> Any:
            self.heard.append(str(func))
            return func(*args, **(kwargs or {}))

    def train() -> list[str]:
        model = net()
        optimizer = sgd(model)
        Listens.heard = []
        with Listens():  # type: ignore[no-untyped-call]
            for x in list(batches(12)):
                optimizer.zero_grad()
                loss_of(model, x).backward()
                optimizer.step()
        return Listens.heard

    bare = train()
    with zerograd.watch(on="collect"):
        watched = train()
    assert watched == bare
