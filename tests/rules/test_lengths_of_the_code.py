"""Advice about guards says the N that the code has, and "N" where the code does not say it."""

from __future__ import annotations

import pytest

import zerograd

LOOP = """
import torch
from torch import nn

{before}
model = nn.Linear(2, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for i, x in enumerate(torch.randn(18, 4, 2)):
    (model(x).pow(2).mean() / {n}).backward()
    if i % {n} == 0:
        optimizer.step()
        optimizer.zero_grad()
"""


@pytest.mark.parametrize(
    ("before", "n", "said"),
    [
        ("", "4", "4"),
        ("STEPS = 8", "STEPS", "8"),
        ("import sys\nsteps = int(sys.argv[1])", "steps", "N"),
        ("import sys\nsteps = 4 if sys.argv[1:] else 8", "steps", "N"),
        ("import sys\nsteps = 4\nif sys.argv[1:]:\n    steps = 2", "steps", "N"),
    ],
)
def test_the_length_is_that_of_the_code(before: str, n: str, said: str) -> None:
    (finding,) = zerograd.check_source(LOOP.format(before=before, n=n), "train.py").findings
    assert finding.code == "ZG302"
    assert finding.message == f"the guard closes a window of fewer than {said} micro-batches"
    assert finding.help == f"count micro-batches from 1: (i + 1) % {said} == 0"
