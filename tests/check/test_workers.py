"""Every file gets its verdict, whatever happens to the process that checks it.

Each test runs in a process of its own: the pool forks, which a process with threads should not.
"""

from __future__ import annotations

import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path

from support.command import FORGOTTEN_ZERO, environment, write

SCRIPT = """
import os, signal, sys, time
from zerograd.check import workers
from zerograd.core.finding import Problem
from zerograd.static import check_file, time_limit
from zerograd.static.check_file import CLEAN, FileResult

workers.MOMENT = 0.0
time_limit.LIMIT = workers.LIMIT = 0.4
workers.GRACE = 0.3
workers.PATIENCE = 1.5

def result(source, explain=False, memory=None):
    name = os.path.basename(source.path)
    if name.startswith("die"):
        os._exit(3)
    if name.startswith("spin"):
        while True:
            pass
    if name.startswith("deaf"):
        signal.signal(signal.SIGPROF, signal.SIG_IGN)
        time.sleep(60)
    if name.startswith("bug"):
        raise KeyError("oops")
    return FileResult(problems=(Problem(source.path, "checked"),))

check_file._result = result
"""

TRAINS = "loss.backward()\nopt.step()\n"


def run(folder: Path, body: str, timeout: float = 120) -> str:
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT + textwrap.dedent(body)],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=timeout,
        check=False,
        env=environment(folder / ".cache"),
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


CHECK = """
jobs = [workers.Job(name, False) for name in sorted(os.listdir(".")) if name.endswith(".py")]
progress = []
verdicts = list(workers.check_all(jobs.__getitem__, len(jobs), {processes}, lambda done, total: progress.append(done)))
assert progress == sorted(progress) and progress[-1] == len(jobs), progress
for job, verdict in zip(jobs, verdicts, strict=True):
    print(job.path, verdict.problems[0].message if verdict.problems else "clean")
"""


def verdicts(folder: Path, processes: int = 2) -> dict[str, str]:
    lines = run(folder, CHECK.format(processes=processes)).splitlines()
    return dict(line.split(" ", 1) for line in lines)


def test_verdicts_come_in_order_from_any_number_of_processes(tmp_path: Path) -> None:
    names = [f"a{number:03}.py" for number in range(200)]
    for number, name in enumerate(names):
        write(tmp_path, {name: TRAINS if number % 3 else "x = 1\n"})
    expected = {name: "checked" if number % 3 else "clean" for number, name in enumerate(names)}
    for processes in (1, 2, 5):
        assert verdicts(tmp_path, processes) == expected


def test_a_process_that_dies_costs_one_file(tmp_path: Path) -> None:
    names = [f"{name}{number}.py" for number in range(10) for name in ("a", "die", "z")]
    write(tmp_path, dict.fromkeys(names, TRAINS))
    printed = verdicts(tmp_path)
    assert set(printed) == set(names)
    for name, message in printed.items():
        assert ("ended the process" in message) == name.startswith("die")


def test_a_file_that_takes_too_long_is_given_up(tmp_path: Path) -> None:
    write(tmp_path, dict.fromkeys(["a.py", "spin1.py", "spin2.py", "z.py"], TRAINS))
    for processes in (1, 2):
        printed = verdicts(tmp_path, processes)
        assert printed["a.py"] == printed["z.py"] == "checked"
        assert "longer than 2 s" in printed["spin1.py"]
        assert "longer than 2 s" in printed["spin2.py"]


def test_a_process_that_hears_no_alarm_is_ended(tmp_path: Path) -> None:
    write(tmp_path, dict.fromkeys(["a.py", "deaf.py", "y.py", "z.py"], TRAINS))
    printed = verdicts(tmp_path)
    assert "longer than 2 s" in printed.pop("deaf.py")
    assert set(printed.values()) == {"checked"}


def test_a_bug_of_our_own_costs_one_file_and_says_where_it_is(tmp_path: Path) -> None:
    write(tmp_path, dict.fromkeys(["a.py", "bug.py", "z.py"], TRAINS))
    for processes in (1, 2):
        printed = verdicts(tmp_path, processes)
        assert "KeyError('oops')" in printed["bug.py"]
        assert "report this as a bug" in printed["bug.py"]
        assert printed["a.py"] == printed["z.py"] == "checked"


def test_what_vanishes_meanwhile_is_said(tmp_path: Path) -> None:
    body = """
    jobs = [workers.Job(f"gone{number}.py") for number in range(9)]
    for verdict in workers.check_all(jobs.__getitem__, 9, 2, lambda done, total: None):
        print(verdict.problems[0].message, verdict.lasting)
    """
    assert set(run(tmp_path, body).splitlines()) == {"does not exist False"}


def test_an_interrupt_ends_everything_quietly(tmp_path: Path) -> None:
    write(tmp_path, {f"a{number}.py": FORGOTTEN_ZERO for number in range(3000)})
    running = subprocess.Popen(
        [sys.executable, "-m", "zerograd", "check", ".", "--no-cache", "--jobs", "3"],
        cwd=tmp_path,
        env=environment(tmp_path / ".cache"),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        # Whoever runs the tests may ignore interrupts, and children inherit that.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),  # noqa: PLW1509
    )
    # Not before it has begun: Python itself cannot bear an interrupt while it starts.
    children = Path(f"/proc/{running.pid}/task/{running.pid}/children")
    deadline = time.monotonic() + 20
    while children.exists() and not children.read_text() and time.monotonic() < deadline:
        time.sleep(0.05)
    time.sleep(0.5)
    running.send_signal(signal.SIGINT)
    out, err = running.communicate(timeout=20)
    assert running.returncode == 130, err
    assert (out, err) == ("", "zerograd: interrupted\n")
