"""`zerograd run --live` on a terminal: what is seen while it runs, and what is left afterwards."""

from __future__ import annotations

import os
import re
import signal
from pathlib import Path

import pytest

from support import tiers
from support.command import write, zerograd
from support.terminal import Terminal
from zerograd.core.events import Site
from zerograd.core.finding import Finding
from zerograd.core.lifecycle import Grads
from zerograd.terminal.status_line import Glance, Live

BORDER = "── zerograd ──"
SCRIPT = """\
import os, time, torch
model = torch.nn.Linear(2, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for step in range(100_000):
    if step != 2:
        optimizer.zero_grad()
    for _ in range(2):
        model(torch.ones(4, 2)).square().mean().backward()
    optimizer.step()
    print(f"the script says {step}", flush=True)
    time.sleep(0.02)
    if os.path.exists("stop"):
        break
    if os.path.exists("crash"):
        raise RuntimeError("the script has crashed")
print("the last words of the script")
"""


@pytest.fixture
def here(tmp_path: Path) -> Path:
    return write(tmp_path / "project", {"train.py": SCRIPT})


def status(lines: list[str]) -> str:
    """The status lines at the end of the screen, if there are any."""
    at = next((number for number, line in enumerate(lines) if line.startswith(BORDER)), len(lines))
    return "\n".join(lines[at:])


def test_the_status_lines_show_the_run_and_leave_the_script_its_lines(here: Path) -> None:
    terminal = Terminal("run", "--live", "train.py", cwd=here)
    lines = terminal.until(lambda lines: "ZG101" in status(lines) and "says 40" in "\n".join(lines))
    shown = status(lines)
    assert re.search(r"[\d,]+ steps ── [\d.]+ steps/s ── 1 error", shown)
    assert re.search(r"SGD, 2 parameters  . (empty|live|spent|stale) +window \d", shown)
    assert re.search(r"windows \d+ of 2", shown)
    assert "ZG101 stale-gradient  train.py:8  once" in shown
    said = [int(line.rsplit(" ", 1)[1]) for line in lines if line.startswith("the script says")]
    assert said == list(range(said[0], said[-1] + 1)), "no line of the script is lost or torn"
    write(here, {"stop": ""})
    assert terminal.close() == 1
    screen = "\n".join(terminal.lines)
    assert terminal.scrolls() is None
    assert BORDER not in screen
    assert "the last words of the script" in screen
    assert screen.rstrip().endswith("1 error")


@pytest.mark.parametrize("way", tiers.sample(["interrupt", "crash", "terminate", "kill"]))
def test_nothing_is_left_broken(here: Path, way: str) -> None:
    terminal = Terminal("run", "--live", "train.py", cwd=here)
    terminal.until(lambda lines: "steps/s" in status(lines) and "says 9" in "\n".join(lines))
    assert terminal.scrolls() is not None
    if way == "crash":
        write(here, {"crash": ""})
    else:
        signals = {"interrupt": signal.SIGINT, "terminate": signal.SIGTERM, "kill": signal.SIGKILL}
        os.kill(terminal.pid, signals[way])
    terminal.close()
    assert terminal.scrolls() is None
    assert BORDER not in "\n".join(terminal.lines)
    if way == "crash":
        assert "the script has crashed" in "\n".join(terminal.lines)


@tiers.long
def test_there_are_no_status_lines_without_a_terminal(here: Path) -> None:
    write(here, {"stop": ""})
    done = zerograd("run", "--live", "train.py", cwd=here)
    assert done.returncode == 0
    assert BORDER not in done.stderr
    assert "\x1b" not in done.stderr + done.stdout


@pytest.mark.parametrize("columns", [1, 10, 40, 200])
def test_the_status_lines_fit_whatever_they_show(columns: int) -> None:
    nasty = "\x1b[2J\nSGD" * 30
    finding = Finding("ZG101", "stale-gradient", "error", "", Site(nasty, 1), seen=9)
    subjects = [Glance(nasty, 10**9, grads, 3, {1: 10**6, 2: 5}) for grads in Grads] * 2
    live = Live(2, lambda _: None, lambda: subjects, lambda: [finding] * 9, color=False)
    lines = live.lines(columns)
    assert len(lines) == 1 + 6 + 1 + 3
    for line in lines:
        assert len(line) <= columns
        assert line.isprintable()
