"""Right programs that drive the training loops of real libraries: zerograd changes and says nothing.

Set ZEROGRAD_PROGRAMS to a folder with more of them, named p_*.py.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from support.library_programs import HERE, bare, watched

OURS = sorted((HERE / "programs").glob("*.py"))
MORE = sorted(Path(os.environ.get("ZEROGRAD_PROGRAMS", os.devnull)).absolute().glob("p_*.py"))


def test_there_are_programs() -> None:
    assert OURS


@pytest.mark.parametrize("program", [*OURS, *MORE], ids=lambda program: program.stem)
def test_a_watched_library_computes_the_same_and_has_no_error(
    program: Path, tmp_path: Path
) -> None:
    alone = bare(program, tmp_path)
    assert alone.code == 0, alone.log
    assert alone.result, alone.log

    seen = watched(program, tmp_path)
    assert seen.ran.code == 0, seen.ran.log
    assert seen.ran.result == alone.result
    assert seen.codes("error") == set(), seen.findings
