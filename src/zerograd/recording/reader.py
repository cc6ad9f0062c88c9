"""Reads a recording line by line, of any length, even if the writing was interrupted."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from zerograd import __version__
from zerograd.core.events import Event
from zerograd.core.finding import Problem, SourceKey, Watched
from zerograd.recording import format_2
from zerograd.recording.json_codec import Damaged, parsed, parsed_event
from zerograd.recording.writer import FORMAT, LONGEST_LINE, MOST_EVENTS, MOST_SOURCES

Post = Callable[[str, Event], None]
Norms = Callable[[str, int, int, list[float], list[float | None]], None]
"""Takes a subject, its first step, the number of steps per norm, the used and the right norms."""

_NO_RECORDING = "this is not a recording: zerograd run --record writes one"
_NO_LINE = "this is not a line of a recording"


@dataclass
class Played:
    """The contents of a recording besides its events."""

    clean: bool = False
    """Whether the run ended normally."""
    cut: bool = False
    problems: list[Problem] = field(default_factory=list)
    program: str = ""
    rank: int | None = None
    titles: dict[str, tuple[str, int]] = field(default_factory=dict)
    """The title of each subject and its number of parameters."""
    called: dict[str, str] = field(default_factory=dict)
    """What findings call the optimizer of each subject."""
    sources: dict[SourceKey, list[str]] = field(default_factory=dict)
    watched: Watched | None = None


Progress = Callable[[int, int], object]
"""Takes the number of bytes read so far and in total."""
LINES = 100_000
"""Lines between two calls of `Progress`."""


def replay(
    path: str, post: Post, norms: Norms | None = None, progress: Progress | None = None
) -> Played:
    """Post the events of a recording, and return its other contents.

    Events before a damaged line are posted. Raises `OSError` if the file cannot be read.
    """
    reader = _Reader(post, norms)
    played = reader.played
    number = 0
    with open(path, "rb") as stream:
        while line := stream.readline(LONGEST_LINE):
            number += 1
            if number % LINES == 0 and progress is not None:
                progress(stream.tell(), os.fstat(stream.fileno()).st_size)
            known = reader.events.get(line)
            if known is not None:
                post(*known)
                continue
            if number > 1 and not line.endswith(b"\n") and not stream.read(1):
                break  # the last line, cut off by a crash
            try:
                reader.take(line)
            except Damaged as error:
                played.clean = False
                message = f"{error}; the rest of the recording is not judged"
                played.problems.append(Problem(path, message, number))
                return played
    if not number:
        played.problems.append(Problem(path, "is empty, so it is not a recording"))
    elif played.cut:
        whole = "was cut when it grew too large: the rest of the run is not judged"
        played.clean = False
        played.problems.append(Problem(path, whole))
    return played


class _Reader:
    """Processes the lines of a recording one by one."""

    def __init__(self, post: Post, norms: Norms | None) -> None:
        self.played = Played()
        self._post = post
        self._norms = norms
        self.events: dict[bytes, tuple[str, Event]] = {}
        """By the line that repeats them: most lines of a long recording are repetitions."""
        self._known: dict[int, tuple[str, Event]] = {}
        self._begun = self._is_format_2 = False

    def take(self, line: bytes) -> None:
        try:
            data = json.loads(line)
        except (ValueError, RecursionError):
            raise Damaged("this is not JSON" if self._begun else _NO_RECORDING) from None
        if not self._begun:
            self._header(data)
        elif not isinstance(data, dict):
            self._post(*self._find(data))
        elif "define" in data:
            self._define(data)
        elif "cycle" in data:
            self._cycle(data)
        else:
            self._fact(data)

    def _fact(self, data: dict[str, object]) -> None:
        """Process a line that is not an event."""
        played = self.played
        if "norms" in data:
            self._take_norms(data)
        elif "subject" in data:
            kinds = {"subject": str, "title": str, "parameters": int, "called": str}
            name, title, number, called = _typed({"called": "", **data}, **kinds)
            if len(played.titles) < MOST_EVENTS or name in played.titles:
                played.titles[name] = (title, number)
                played.called[name] = called or title
        elif "source" in data:
            path, text = _typed(data, source=str, text=str)
            if len(played.sources) < MOST_SOURCES:
                played.sources[path] = text.split("\n")
        elif "watched" in data:
            played.watched = parsed(Watched, data["watched"])
        elif "cut" in data:
            played.cut = True
        elif "end" in data:
            played.clean = data["end"] is True
        else:
            raise Damaged(_NO_LINE)

    def _header(self, data: object) -> None:
        if not isinstance(data, dict) or "format" not in data:
            raise Damaged(_NO_RECORDING)
        if data["format"] not in (format_2.FORMAT, FORMAT):
            by = data.get("zerograd", "another version")
            raise Damaged(
                f"the recording has format {data['format']!r}, written by zerograd {by}; "
                f"this is {__version__}, which reads format {FORMAT}: replay it with that version"
            )
        self._begun = True
        self._is_format_2 = data["format"] == format_2.FORMAT
        (self.played.program,) = _typed({"program": "", **data}, program=str)
        if data.get("rank") is not None:
            (self.played.rank,) = _typed(data, rank=int)

    def _define(self, data: dict[str, object]) -> None:
        number, subject = data["define"], data.get("subject")
        if type(number) is not int or not isinstance(subject, str):
            raise Damaged("an event needs a number and a subject")
        if not 0 <= number < MOST_EVENTS:
            raise Damaged(f"no event has the number {number}")
        about = data.get("event")
        event = parsed_event(format_2.converted(about) if self._is_format_2 else about)
        self._known[number] = self.events[b"%d\n" % number] = (subject, event)

    def _cycle(self, data: dict[str, object]) -> None:
        cycle, events = data["cycle"], data.get("events")
        if not isinstance(cycle, list) or not cycle or type(events) is not int or events < 1:
            raise Damaged("a cycle needs the numbers of its events and their count")
        known = [self._find(number) for number in cycle]
        for at in range(events):
            self._post(*known[at % len(known)])

    def _find(self, number: object) -> tuple[str, Event]:
        if type(number) is not int:
            raise Damaged(_NO_LINE)
        if number not in self._known:
            raise Damaged(f"event {number} is not defined")
        return self._known[number]

    def _take_norms(self, data: dict[str, object]) -> None:
        subject, first, each, used = _typed(data, norms=str, first=int, each=int, used=list)
        right = data.get("right")
        if right is None:
            right = [None] * len(used)
        if first < 1 or each < 1 or not isinstance(right, list) or len(right) != len(used):
            raise Damaged("norms need a first step, and a right norm for each used norm")
        numbers = [_norm(one) for one in used]
        others = [None if one is None else _norm(one) for one in right]
        if self._norms is not None:
            self._norms(subject, first, each, numbers, others)


def _typed(data: dict[str, object], **kinds: type) -> list[Any]:
    """The values of some keys. Raises `Damaged` if one is missing or has the wrong type."""
    for key, kind in kinds.items():
        if type(data.get(key)) is not kind:
            raise Damaged(f"{key!r} is missing, or is not of type {kind.__name__}")
    return [data[key] for key in kinds]


def _norm(value: object) -> float:
    if type(value) in (int, float) or value in ("inf", "nan"):
        return float(value)  # type: ignore[arg-type]
    raise Damaged(f"{value!r} is not a norm")
