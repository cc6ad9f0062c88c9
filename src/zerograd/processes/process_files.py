"""Reads the files of the processes of a run.

Each process has one file (`identity` writes it):

    {"rank": 1, "world": 4, "pid": 4711, "host": "node7", "program": "train.py"}
    {"steps":         1357}                     overwritten at every step
    {"finding": {"code": "ZG101", …}}           again when it has happened 2, 4, 8 … times, and at the end
    {"end": true, "watched": {…}, "errors": []}
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from zerograd.core.finding import Finding, Place, Problem, Watched
from zerograd.recording.json_codec import Damaged, parsed

SUFFIX = ".jsonl"


@dataclass
class ProcessFile:
    """The contents of the file of one process."""

    path: str
    rank: int | None = None
    pid: int = 0
    host: str = ""
    findings: dict[Place, Finding] = field(default_factory=dict)
    watched: Watched | None = None
    errors: list[Problem] = field(default_factory=list)
    ended: bool = False
    steps: int = 0
    """The number of steps, if the process has not ended."""


def read(directory: str) -> list[ProcessFile]:
    """Read the files of all processes, in the order of ranks. Raises `OSError` if there are none."""
    parts = [part for path in files(directory) if (part := _part(path)) is not None]
    return sorted(parts, key=lambda one: (one.rank is None, one.rank or 0, one.path))


def files(directory: str) -> Iterator[str]:
    """The paths of the files."""
    for entry in sorted(os.listdir(directory)):
        if entry.endswith(SUFFIX):
            yield os.path.join(directory, entry)


def _part(path: str) -> ProcessFile | None:
    part = ProcessFile(path)
    try:
        with open(path, "rb") as stream:
            lines = stream.read().split(b"\n")
    except OSError as error:
        part.errors.append(Problem(path, f"cannot be read: {error.strerror}"))
        return part
    for number, line in enumerate(lines[:-1], start=1):  # the rest was cut off
        try:
            _take(part, json.loads(line))
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
            message = "zerograd did not write this line; what follows is not read"
            part.errors.append(Problem(path, message, number))
            return part
    return part


def _take(part: ProcessFile, data: dict[str, Any]) -> None:
    if "finding" in data:
        finding = parsed(Finding, data["finding"])
        part.findings[finding.place] = finding
    elif "end" in data:
        part.ended = True
        if data["watched"] is not None:
            part.watched = parsed(Watched, data["watched"])
        part.errors += [parsed(Problem, one) for one in data["errors"]]
    elif "steps" in data:
        part.steps = int(data["steps"])
    elif "pid" in data:
        part.rank, part.pid, part.host = data["rank"], int(data["pid"]), str(data["host"])
    else:
        raise Damaged("no such line")
