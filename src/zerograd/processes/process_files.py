"""What the processes of a run have left in its directory, read.

A file for each, line by line (`ranks` writes them):

    {"rank": 1, "world": 4, "pid": 4711, "host": "node7", "program": "train.py"}
    {"steps":         1357}                     written over at every step
    {"finding": {"code": "ZG101", …}}           again when it was seen 2, 4, 8 … times
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
class Part:
    """What one process of a run has left."""

    path: str
    rank: int | None = None
    world: int = 1
    pid: int = 0
    host: str = ""
    program: str = ""
    findings: dict[Place, Finding] = field(default_factory=dict)
    watched: Watched | None = None
    errors: list[Problem] = field(default_factory=list)
    ended: bool = False
    steps: int = 0
    """How many it had taken, if it has not come to its end."""


def read(directory: str) -> list[Part]:
    """What the processes of a run have left, the ranks in their order; `OSError` without one."""
    parts = [part for path in files(directory) if (part := _part(path)) is not None]
    return sorted(parts, key=lambda one: (one.rank is None, one.rank or 0, one.path))


def files(directory: str) -> Iterator[str]:
    """Where they are."""
    for entry in sorted(os.listdir(directory)):
        if entry.endswith(SUFFIX):
            yield os.path.join(directory, entry)


def _part(path: str) -> Part | None:
    part = Part(path)
    try:
        with open(path, "rb") as stream:
            lines = stream.read().split(b"\n")
    except OSError as error:
        part.errors.append(Problem(path, f"cannot be read: {error.strerror}"))
        return part
    for number, line in enumerate(lines[:-1], start=1):  # after the last newline: cut by a crash
        try:
            _take(part, json.loads(line))
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
            message = "this is no line that zerograd has left there"
            part.errors.append(Problem(path, message, number))
            return part
    return part


def _take(part: Part, data: dict[str, Any]) -> None:
    if "finding" in data:
        finding = parsed(Finding, data["finding"])
        assert isinstance(finding, Finding)
        part.findings[finding.place] = finding
    elif "end" in data:
        part.ended = True
        watched = data["watched"]
        if watched is not None:
            known = parsed(Watched, watched)
            assert isinstance(known, Watched)
            part.watched = known
        for one in data["errors"]:
            problem = parsed(Problem, one)
            assert isinstance(problem, Problem)
            part.errors.append(problem)
    elif "steps" in data:
        part.steps = int(data["steps"])
    elif "pid" in data:
        part.rank, part.world = data["rank"], int(data["world"])
        part.pid, part.host = int(data["pid"]), str(data["host"])
        part.program = str(data["program"])
    else:
        raise Damaged("no such line")
