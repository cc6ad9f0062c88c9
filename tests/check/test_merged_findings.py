"""Several files lead to one place: what is found there is reported once."""

from __future__ import annotations

from pathlib import Path

from support.command import write
from zerograd.check import check_session
from zerograd.check.check_session import CheckOptions

FINISH = """\
import torch
def finish(model, optimizer, scaler):
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    scaler.step(optimizer)
    scaler.update()
"""
PLAIN = """\
from ending import finish
def fit(model, loader, optimizer, scaler):
    for x in loader:
        optimizer.zero_grad()
        scaler.scale(model(x).mean()).backward()
        finish(model, optimizer, scaler)
"""
UNSCALES = """\
        if rare(x):
            scaler.unscale_(optimizer)
        elif odd(x):
            scaler.unscale_(optimizer)
"""


def test_what_two_files_lead_to_is_certain_if_it_is_for_one_of_them(tmp_path: Path) -> None:
    unsure = PLAIN.replace("        finish(", UNSCALES + "        finish(")
    write(tmp_path, {"ending.py": FINISH, "first.py": unsure, "second.py": PLAIN})
    options = CheckOptions(paths=(str(tmp_path),), pedantic=True, jobs=1, cache=False)
    found = check_session.run(options, lambda *_: None).report.findings
    assert [(one.code, one.certain) for one in found] == [("ZG201", True)]
