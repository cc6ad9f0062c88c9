"""accelerate's launcher starts two ranks: both are watched, and a finding names the rank that it is about."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from support.library_programs import ENVIRONMENT

pytest.importorskip("accelerate")

TRAINING = """\
import torch
from accelerate import Accelerator

accelerator = Accelerator(gradient_accumulation_steps=2, cpu=True)
torch.manual_seed(0)
model = torch.nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
loader = torch.utils.data.DataLoader(torch.randn(32, 4), batch_size=2)
model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
for number, x in enumerate(loader, start=1):
    with accelerator.accumulate(model):
        accelerator.backward(model(x).square().mean())
        optimizer.step()
        if (accelerator.process_index, number) != (1, FORGOTTEN):
            optimizer.zero_grad()
"""
LAUNCH = (
    "accelerate.commands.launch", "--multi_gpu", "--num_processes=2", "--num_machines=1",
    "--mixed_precision=no", "--dynamo_backend=no",
)  # fmt: skip
"""So named, it starts its ranks by torchrun; on the CPU, because the script says so."""


@pytest.mark.parametrize(("forgotten", "found"), [(4, [("ZG101", 1)]), (0, [])])
def test_the_ranks_of_accelerate_are_watched(
    forgotten: int, found: list[tuple[str, int]], tmp_path: Path
) -> None:
    (tmp_path / "train.py").write_text(TRAINING.replace("FORGOTTEN", str(forgotten)))
    report = tmp_path / "report.json"
    words = ["-m", "zerograd", "run", "--format", "json", "--output", str(report), "-m", *LAUNCH]
    done = subprocess.run(
        [sys.executable, *words, "train.py"],
        cwd=tmp_path,
        env={**os.environ, **ENVIRONMENT},
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert done.returncode == int(bool(found)), done.stderr
    reported = json.loads(report.read_text(encoding="utf-8"))["findings"]
    assert [(one["code"], one["rank"]) for one in reported] == found
    assert "watched 4 steps on 2 ranks" in done.stderr
