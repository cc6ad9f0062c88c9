"""A file that is written as a whole, or not at all."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from zerograd.core.atomic_write import atomic_write


def test_a_reader_sees_the_old_file_until_the_new_one_is_complete(tmp_path: Path) -> None:
    path = tmp_path / "report.json"
    path.write_text("old")
    with atomic_write(str(path)) as stream:
        stream.write(b"new")
        stream.flush()
        assert path.read_text() == "old"
        # Two processes write to two files, which nobody takes for a report.
        assert sorted(tmp_path.iterdir()) == [path, tmp_path / f"report.json.{os.getpid()}.tmp"]
    assert path.read_text() == "new"
    assert list(tmp_path.iterdir()) == [path]


def test_an_error_leaves_the_old_file_and_nothing_else(tmp_path: Path) -> None:
    path = tmp_path / "report.json"
    path.write_text("old")
    with pytest.raises(TypeError), atomic_write(str(path)) as stream:
        stream.writelines([b"new", 1])  # type: ignore[list-item]
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]
