"""What open watches share: what is hidden from torch's compiler, and what the program allows."""

from __future__ import annotations

import sys
from types import CodeType, FrameType

import zerograd
from support.training import batches, loss_of, net, sgd
from zerograd.runtime.call_sites import OURS
from zerograd.runtime.engine import Engine, code_below_torch
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
    hidden = set(code_below_torch())
    assert [finding.code for finding in report.findings] == ["ZG101"]
    assert len(ran) > 40
    assert [name for code, name in ran.items() if code not in hidden] == []


def test_a_stepper_finds_the_watch_and_allows_what_it_does_on_purpose() -> None:
    """It asks for the module by its name, as a string that no rename would follow."""
    with zerograd.watch(on="collect"), stepper._intended():
        allowed = Engine.allowed
    assert {"ZG301", "ZG103"} <= allowed
    assert Engine.allowed == frozenset()
