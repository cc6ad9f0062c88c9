"""Tiny training runs to be watched, and a way to say on which line a watch must find what.

In a test, `# ZG101` at the end of a line announces that finding there.
"""

from __future__ import annotations

import inspect
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from zerograd.core.finding import Finding, Report

torch.set_num_threads(1)

ANNOUNCED = re.compile(r"# (ZG\d{3}(?:, ZG\d{3})*)$")

either_way = pytest.mark.parametrize("right", [True, False], ids=["right", "wrong"])
"""The same program twice: as it should be, and with the mistake whose finding it announces."""


def net(*, seed: int = 0) -> Any:
    """Two layers whose gradients are never zero everywhere."""
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 2))


def batches(count: int = 6) -> Iterator[Tensor]:
    """Inputs that differ from one to the next."""
    source = torch.Generator().manual_seed(1)
    for _ in range(count):
        yield torch.randn(5, 3, generator=source)


def loss_of(model: Any, x: Tensor) -> Any:
    """A loss far from its minimum."""
    return ((model(x) - 10) ** 2).mean()


def sgd(model: Any, lr: float = 0.01) -> torch.optim.SGD:
    return torch.optim.SGD(model.parameters(), lr=lr)


def assert_found(report: Report, *, right: bool = False, seen: int | None = None) -> None:
    """The findings are those that the calling test announces, each `seen` times; none if right."""
    caller = sys._getframe(1)
    lines, first = inspect.getsourcelines(caller.f_code)
    announced = [
        (code, caller.f_code.co_filename, number)
        for number, line in enumerate(lines, first)
        if (mark := ANNOUNCED.search(line.rstrip()))
        for code in mark[1].split(", ")
    ]
    assert announced or right, "the test announces nothing"
    assert report.errors == []
    found, wanted = sorted(map(place, report.findings)), [] if right else sorted(announced)
    assert found == wanted, f"{report.findings}, and announced is {wanted}"
    if seen is not None and not right:
        assert {finding.seen for finding in report.findings} == {seen}


def place(finding: Finding) -> tuple[str, str, int]:
    """What was found, and where."""
    path = finding.site.path
    return (finding.code, str(Path(path).resolve()), finding.site.line)


def weights(*modules: Any) -> list[Tensor]:
    """A copy of what was learned."""
    return [p.detach().clone() for module in modules for p in module.parameters()]
