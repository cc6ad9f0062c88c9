"""The files of a recording: one, or one for each rank beside the path that the user named."""

from __future__ import annotations

import contextlib
import glob
import json
import os


def of_rank(path: str, rank: int | str) -> str:
    """The path of a rank's recording, given the path for the whole run."""
    stem, suffix = os.path.splitext(path)
    return f"{stem}.rank{rank}{suffix}"


def files(path: str, began: float) -> list[str]:
    """The files of a run that started at this time, by the clock of the file system.

    If there are files for ranks, those of an earlier run with more ranks are removed.
    """
    found = sorted(glob.glob(of_rank(glob.escape(path), "*")))
    mine = [one for one in found if _written(one) >= began]
    for one in found if mine else ():
        if one not in mine and _is_of_a_rank(one, path):
            with contextlib.suppress(OSError):
                os.remove(one)
    return mine or [path]


def _written(path: str) -> float:
    try:
        return os.stat(path).st_mtime
    except OSError:
        return 0.0


def _is_of_a_rank(path: str, whole: str) -> bool:
    """Whether a file is zerograd's recording of a rank."""
    try:
        with open(path, "rb") as stream:
            header = json.loads(stream.readline(1024))
        return "zerograd" in header and of_rank(whole, header["rank"]) == path
    except (OSError, ValueError, KeyError, TypeError):
        return False
