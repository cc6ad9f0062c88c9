"""The files in which the processes of a run keep what they found, and how they are merged."""

from __future__ import annotations

import errno
import json
import mmap
from pathlib import Path
from typing import TYPE_CHECKING

from support.command import zerograd
from zerograd.processes.process_files import read
from zerograd.processes.run_process import StepCounter

if TYPE_CHECKING:
    import pytest


def test_steps_are_counted_also_where_a_file_cannot_be_mapped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuses(*_: object) -> None:
        raise OSError(errno.ENODEV, "No such device")

    header = {"rank": 1, "world": 2, "pid": 1, "host": "h", "program": "train.py"}
    for name in ("mapped", "not"):
        if name == "not":
            monkeypatch.setattr(mmap, "mmap", refuses)
        with (tmp_path / f"{name}.jsonl").open("x+b", 0) as file:
            file.write(f"{json.dumps(header)}\n".encode())
            count = StepCounter(file)
            for steps in (1, 2, 9, 10, 11, 99, 100, 1299, 1300, 1307, 1357, 1359, 7):
                count.set(steps)
                assert {part.steps for part in read(str(tmp_path))} <= {steps, 7}
    assert [part.steps for part in read(str(tmp_path))] == [7, 7]


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
