"""The source of a running program is read only where it is the program's."""

from __future__ import annotations

from pathlib import Path

import torch

import zerograd

EARLY = """\
for i in range(32):
    model(torch.ones(2, 3)).mean().div(4).backward()
    if i % 4 == 0:
        optimizer.step()
        optimizer.zero_grad()
"""


def codes(source: str, path: Path) -> list[str]:
    model = torch.nn.Linear(3, 1)
    names = {
        "torch": torch,
        "model": model,
        "optimizer": torch.optim.SGD(model.parameters(), lr=0.1),
    }
    with zerograd.watch(on="collect") as report:
        exec(compile(source, str(path), "exec"), names)
    assert report.errors == []
    return [finding.code for finding in report.findings]


def test_a_file_that_holds_another_text_says_nothing_about_a_program(tmp_path: Path) -> None:
    path = tmp_path / "train.py"
    path.write_text(EARLY)
    expected = codes(EARLY, path)
    assert "ZG302" in expected
    other = tmp_path / "other.py"
    other.write_text("x = 1\nif torch.rand(1) > 0.5:\n" + "    print(x, x, x, x, x, x)\n" * 9)
    assert "ZG302" in codes(EARLY, other)
