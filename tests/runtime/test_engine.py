"""What open watches share: what is hidden from torch's compiler, and what the program allows."""

from __future__ import annotations

import sys
from types import CodeType, FrameType

import torch
from torch import nn

import zerograd
from support.training import batches, either_way, loss_of, net, sgd
from zerograd.core.lifecycle import Grads
from zerograd.runtime.call_sites import OURS
from zerograd.runtime.engine import Engine, code_below_torch
from zerograd.runtime.watch import Watch
from zerograd.stepper import stepper


def test_whatever_runs_in_a_step_is_hidden_from_the_compiler() -> None:
    ran: dict[CodeType, str] = {}

    def note(frame: FrameType, what: str, _: object) -> None:
        code = frame.f_code
        if what == "call" and code.co_filename.startswith(OURS):
            ran[code] = f"{code.co_filename.removeprefix(OURS)}:{code.co_name}"

    with zerograd.watch(on="collect") as report:
        model = net()
        optimizer = sgd(model)
        sys.setprofile(note)
        try:
            for number, x in enumerate(batches(9)):
                if number != 6:
                    optimizer.zero_grad()
                loss_of(model, x).backward()
                optimizer.step()
        finally:
            sys.setprofile(None)
    hidden = set(
        code_below_torch.__wrapped__()
    )  # another test may have replaced a method when it was kept
    assert [finding.code for finding in report.findings] == ["ZG101"]
    assert len(ran) > 40
    assert [name for code, name in ran.items() if code not in hidden] == []


def test_a_stepper_finds_the_watch_and_allows_what_it_does_on_purpose() -> None:
    """It asks for the module by its name, as a string that no rename would follow."""
    with zerograd.watch(on="collect"), stepper._intended():
        allowed = Engine.allowed
    assert {"ZG301", "ZG103"} <= allowed
    assert Engine.allowed == frozenset()


@either_way
def test_a_glance_calls_gradients_stale_only_if_a_step_has_used_a_sum(right: bool) -> None:
    """What the generator's backward leaves in the discriminator is cleared before its own."""
    generator, judge = net(), nn.Linear(2, 1)
    opt_g, opt_d = torch.optim.SGD(generator.parameters(), lr=0.01), sgd(judge)
    seen: set[Grads] = set()
    with Watch("collect") as report:
        watch = Engine.running
        assert watch is not None
        for x in batches(8):
            if right:
                opt_d.zero_grad()
            (judge(generator(x).detach()).mean() - judge(x[:, :2]).mean()).backward()
            opt_d.step()
            seen |= {one.grads for one in watch.glance()}
            opt_g.zero_grad()
            (-judge(generator(x)).mean()).backward()
            seen |= {one.grads for one in watch.glance()}
            opt_g.step()
            seen |= {one.grads for one in watch.glance()}
    assert bool(report.findings) != right
    assert (Grads.STALE in seen) != right
