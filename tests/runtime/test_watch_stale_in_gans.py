"""A discriminator that is not cleared: the finding is at its own backward, with the numbers of its step."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn.utils import clip_grad_norm_

import zerograd
from support.training import assert_found, batches, net, sgd
from zerograd.recording.reader import replay
from zerograd.recording.writer import Recorder
from zerograd.runtime.watch import Watch


def norm_of(tensors: Any) -> float:
    return math.sqrt(sum(float(one.norm()) ** 2 for one in tensors))


class Right:
    """Recomputes what each step of a module uses, and what it should use."""

    def __init__(self, module: nn.Module) -> None:
        self.params = list(module.parameters())
        self.steps: list[tuple[float, float]] = []
        self.before: list[Any] = []

    def begin(self) -> None:
        self.before = [0 if one.grad is None else one.grad.clone() for one in self.params]

    def own(self) -> float:
        pairs = zip(self.params, self.before, strict=True)
        return norm_of(one.grad - before for one, before in pairs if one.grad is not None)

    def used(self) -> float:
        return norm_of(one.grad for one in self.params)


@pytest.mark.parametrize("detached", [True, False])
@pytest.mark.parametrize("way", ["plain", "clip", "scaler", "scaler and clip"])
@pytest.mark.parametrize("only", [None, 17])
def test_the_numbers_are_those_of_the_discriminators_step(
    only: int | None, way: str, detached: bool
) -> None:
    generator, judge = net(), nn.Linear(2, 1)
    opt_g, opt_d = sgd(generator), sgd(judge, lr=0.001)
    scaler = torch.amp.GradScaler("cpu", init_scale=64.0, enabled="scaler" in way)
    right, steps = Right(judge), []
    with zerograd.watch(on="collect") as report:
        for number, x in enumerate(batches(20)):
            fake = generator(x).detach() if detached else generator(x)
            if only is not None and number != only:
                opt_d.zero_grad()
            right.begin()
            scaler.scale((judge(fake) - 1).pow(2).mean()).backward()  # ZG101
            scaler.scale(judge(torch.ones(5, 2)).pow(2).mean()).backward()
            own = right.own() / scaler.get_scale()
            if "clip" in way:
                scaler.unscale_(opt_d)
                clip_grad_norm_(judge.parameters(), 0.7)
                own = min(own, 0.7)
            scaler.step(opt_d)
            steps.append((own, right.used()))
            opt_g.zero_grad()
            scaler.scale(judge(generator(x)).pow(2).mean()).backward()
            scaler.step(opt_g)
            scaler.update()
    assert_found(report, seen=19 if only is None else 1)
    (finding,) = report.findings
    assert (
        finding.help == "clear this optimizer right before its own backward: optimizer.zero_grad()"
    )
    assert finding.site.iteration is not None
    expected, used = steps[finding.site.iteration - 1]
    assert finding.measured is not None
    assert finding.measured.expected == pytest.approx(expected, rel=1e-4)
    assert finding.measured.got == pytest.approx(used, rel=1e-4)


def test_a_recording_has_the_numbers_of_the_finding(tmp_path: Path) -> None:
    recorder = Recorder(str(tmp_path / "run.jsonl"))
    with Watch("collect", record=recorder) as report:
        generator, judge = net(), nn.Linear(2, 1)
        opt_g, opt_d = sgd(generator), sgd(judge)
        for x in batches(9):
            (judge(generator(x).detach()) - 1).pow(2).mean().backward()  # ZG101
            judge(torch.ones(5, 2)).pow(2).mean().backward()
            opt_d.step()
            opt_g.zero_grad()
            judge(generator(x)).pow(2).mean().backward()
            opt_g.step()
    recorder.close(clean=True)
    assert_found(report)
    pairs: list[tuple[float | None, float]] = []

    def take(name: str, first: int, each: int, used: list[float], rights: list[Any]) -> None:
        pairs.extend(zip(rights, used, strict=True))

    replay(str(tmp_path / "run.jsonl"), lambda *_: None, take)
    shown = [(round(right, 4), round(used, 4)) for right, used in pairs if right is not None]
    assert len(shown) == 8
    (finding,) = report.findings
    assert finding.measured is not None
    assert (round(finding.measured.expected, 4), round(finding.measured.got, 4)) == shown[0]


def test_a_trunk_of_two_heads_that_is_not_cleared_is_found_at_the_first_of_its_backward_calls() -> (
    None
):
    trunk, left, right = net(), nn.Linear(2, 1), nn.Linear(2, 1)
    opt, opt_l, opt_r = sgd(trunk), sgd(left), sgd(right)
    with zerograd.watch(on="collect") as report:
        for x in batches(10):
            opt_l.zero_grad()
            opt_r.zero_grad()
            left(trunk(x)).pow(2).mean().backward()  # ZG101
            opt_l.step()
            (right(trunk(x)) - 1).pow(2).mean().backward()
            opt_r.step()
            opt.step()
    assert_found(report, seen=9)
