"""One report of what several processes found."""

from __future__ import annotations

from zerograd.core.finding import Problem
from zerograd.processes.merge import merged
from zerograd.processes.process_files import ProcessFile


def test_a_problem_of_some_ranks_names_them_once() -> None:
    common, own = Problem("a.py", "is broken"), Problem("b.py", "is odd")
    named = Problem("zerograd", "rank 1 runs torch 1, rank 0 torch 2", names_rank=True)
    misleading = Problem("c.py", "rank was meant")
    parts = [
        ProcessFile("0", 0, errors=[common]),
        ProcessFile("1", 1, errors=[common, own, named, misleading]),
        ProcessFile("2", 2, errors=[common, own]),
    ]
    assert [one.message for one in merged(parts).errors] == [
        "is broken",
        "rank 1: is odd",
        named.message,
        "rank 1: rank was meant",
        "rank 2: is odd",
    ]
