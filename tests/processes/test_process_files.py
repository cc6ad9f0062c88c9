"""The files in which the processes of a run keep what they found, and how they are merged."""

from __future__ import annotations

import json
from pathlib import Path

from support.command import zerograd
from zerograd.processes.process_files import read
from zerograd.processes.run_process import StepCounter


def test_the_number_of_steps_is_overwritten_in_place(tmp_path: Path) -> None:
    header = {"rank": 1, "world": 2, "pid": 1, "host": "h", "program": "train.py"}
    with (tmp_path / "rank.jsonl").open("x+b", 0) as file:
        file.write(f"{json.dumps(header)}\n".encode())
        count = StepCounter(file)
        for steps in (1, 9, 10, 11, 1299, 1300, 7):
            count.set(steps)
            assert [part.steps for part in read(str(tmp_path))] == [steps]


def test_a_merge_of_nothing(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    done = zerograd("merge", "nowhere", cwd=tmp_path)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == "zerograd: nowhere cannot be read: No such file or directory\n"
    done = zerograd("merge", "empty", cwd=tmp_path)
    assert done.returncode == 2
    assert done.stderr.startswith("zerograd: empty contains no findings: ")


def test_a_damaged_file_costs_what_follows_and_a_torn_line_nothing(tmp_path: Path) -> None:
    left = tmp_path / "left"
    left.mkdir()
    header = {"rank": 0, "world": 2, "pid": 1, "host": "h", "program": "train.py"}
    (left / "a.jsonl").write_text(f'{json.dumps(header)}\n{{"finding": {{"co')
    done = zerograd("merge", "left", cwd=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    (left / "b.jsonl").write_text(f"{json.dumps(header | {'rank': 1})}\nnonsense\n")
    done = zerograd("merge", "left", cwd=tmp_path)
    assert done.returncode == 2
    assert "b.jsonl:2" in done.stdout
