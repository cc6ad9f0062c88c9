"""The events of a run as JSON lines, so that it can be judged again: `run --record`, `replay`.

    {"zerograd": "0.1.0", "format": 1}
    {"define": 0, "subject": "SGD", "event": {"kind": "backward", "site": {"path": "a.py", "line": 7}}}
    0                                              event 0 happened
    {"cycle": [0, 1, 2], "events":       299997}   these, over and over, so many events altogether
    {"end": true}                                  the run ended by itself

An event is written before `write` returns: a crash loses at most the last one. What repeats itself
is counted in place, in its line, so that a long run is no longer than a short one. A file never
grows beyond MOST_BYTES; what comes after `{"cut": …}` was not kept.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import threading
import types
from collections.abc import Callable
from dataclasses import MISSING, fields, is_dataclass
from enum import Enum
from functools import cache
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

from zerograd import __version__
from zerograd.events import Event
from zerograd.finding import Problem

FORMAT = 1
MOST_BYTES = 64 * 1024 * 1024
MOST_EVENTS = 4096
"""So many different events have a number at a time; then numbers are given anew."""
LONGEST_CYCLE = 128
LONGEST_LINE = 1024 * 1024
_WIDTH = 12
"""Of a count: it is written over."""
_RESERVE = 128
"""Bytes kept for the last line."""
_ASIDE = 100
"""File descriptors from here on are ours."""
_NO_RECORDING = "this is no recording: zerograd run --record makes one"
_NO_LINE = "this is no line of a recording"

Post = Callable[[str, Event], None]


class Recorder:
    """Writes events to a file. Trouble with the file ends the recording, never the run."""

    def __init__(self, path: str, *, most_bytes: int = MOST_BYTES) -> None:
        """Open the file; `OSError` where it cannot be written."""
        self.path = path
        self.problem = ""
        """Why the recording is not whole."""
        self._file = open(path, "wb", 0, opener=open_aside)  # noqa: SIM115  # see `close`
        self._most = most_bytes - _RESERVE
        self._pid = os.getpid()
        self._lock = threading.RLock()
        self._numbers: dict[tuple[str, Event], int] = {}
        self._past: list[int] = []
        """The latest numbers, enough to see the longest cycle twice."""
        self._cycle: list[int] = []
        self._count = 0
        """How many events the open cycle has, and where in the file that stands."""
        self._count_at = 0
        try:
            if not self._file.seekable():
                raise OSError(errno.ESPIPE, "it has to be a file that can be written in place")
            self._append(json.dumps({"zerograd": __version__, "format": FORMAT}))
        except OSError:
            self._file.close()
            raise

    def write(self, subject: str, event: Event) -> None:
        """Keep one event."""
        # A forked child has the parent's file, and must leave it alone.
        if self._file.closed or os.getpid() != self._pid:
            return
        with self._lock:
            try:
                number = self._numbers.get((subject, event))
                if number is None:
                    number = self._define(subject, event)
                if not self._goes_on(number):
                    self._begin(number)
            except _Full:
                self._end({"cut": f"at {self._most + _RESERVE} bytes"})
                self.problem = f"it reached {self._most + _RESERVE} bytes; the rest was not kept"
            except OSError as error:
                self.problem = f"{error.strerror or error}; the rest was not kept"
                self._file.close()

    def close(self, *, clean: bool = False) -> None:
        """No more events; clean, if the run ended by itself. A second time does nothing."""
        if not self._file.closed and os.getpid() == self._pid:
            with self._lock:
                self._end({"end": clean})

    def _end(self, last: object) -> None:
        with contextlib.suppress(OSError):
            self._put(f"{json.dumps(last)}\n")
        self._file.close()

    def _define(self, subject: str, event: Event) -> int:
        self._leave()
        if len(self._numbers) >= MOST_EVENTS:
            self._numbers.clear()
            self._past.clear()
        number = len(self._numbers)
        line = {"define": number, "subject": subject, "event": plain(event)}
        self._append(json.dumps(line))
        self._numbers[subject, event] = number
        return number

    def _goes_on(self, number: int) -> bool:
        """Whether the event is the next one of the open cycle; then it is counted."""
        if not self._cycle or self._cycle[self._count % len(self._cycle)] != number:
            return False
        self._count += 1
        self._put(f"{self._count:>{_WIDTH}}", self._count_at)
        return True

    def _begin(self, number: int) -> None:
        """Write the event as a line of its own, or as the first of a cycle."""
        self._leave()
        if len(self._past) > 4 * LONGEST_CYCLE:
            del self._past[: -2 * LONGEST_CYCLE]
        cycle = _cycle(self._past, number)
        self._past.append(number)
        if not cycle:
            self._append(str(number))
            return
        start = f'{{"cycle": {json.dumps(cycle)}, "events": '
        self._count_at = self._append(f"{start}{1:>{_WIDTH}}}}") + len(start)
        self._cycle, self._count = cycle, 1

    def _leave(self) -> None:
        """Close the open cycle; while it was counted, the past was not kept up to date."""
        if self._cycle:
            missing = range(max(1, self._count - 2 * LONGEST_CYCLE), self._count)
            self._past += [self._cycle[at % len(self._cycle)] for at in missing]
            self._cycle = []

    def _append(self, line: str) -> int:
        """Write a line; where in the file it begins."""
        at = self._file.seek(0, os.SEEK_END)
        if at + len(line) >= self._most:
            raise _Full
        return self._put(f"{line}\n")

    def _put(self, text: str, at: int | None = None) -> int:
        """Write at a place, or at the end, in one call to the system: it is there, or it is not."""
        at = self._file.seek(0, os.SEEK_END) if at is None else self._file.seek(at)
        data = text.encode("ascii")
        if self._file.write(data) != len(data):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return at


def open_aside(path: str, flags: int) -> int:
    """Open a file where no program will come upon it."""
    fd = os.open(path, flags, 0o666)
    try:
        return aside(fd)
    finally:
        os.close(fd)


def aside(fd: int) -> int:
    """A copy of a file descriptor whose number no program will get that opens and closes its own."""
    try:
        import fcntl

        return fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, _ASIDE)
    except (ImportError, OSError):
        return os.dup(fd)


class _Full(Exception):
    """The file has reached its size."""


def _cycle(past: list[int], number: int) -> list[int]:
    """The shortest cycle that the past has just gone through twice, and that the number begins."""
    for length in range(1, min(LONGEST_CYCLE, len(past) // 2) + 1):
        if past[-length] == number and past[-length:] == past[-2 * length : -length]:
            return past[-length:]
    return []


class Damaged(ValueError):
    """A line that no recorder wrote."""


def replay(path: str, post: Post) -> tuple[bool, list[Problem]]:
    """Post the events of a recording; whether its run ended by itself, and what is wrong with it.

    All that stands before a damaged line is posted. `OSError` where the file cannot be read.
    """
    reader = _Reader(post)
    number = 0
    with open(path, "rb") as stream:
        while line := stream.readline(LONGEST_LINE):
            number += 1
            if number > 1 and not line.endswith(b"\n") and not stream.read(1):
                break  # the last line, cut by a crash
            try:
                reader.take(line)
            except Damaged as error:
                return False, [Problem(path, f"{error}; nothing from there on is judged", number)]
    if not number:
        return False, [Problem(path, "is empty, and no recording")]
    if reader.cut:
        whole = "was cut when it grew too large: the rest of the run is not judged"
        return False, [Problem(path, whole)]
    return reader.clean, []


class _Reader:
    """Takes the lines of a recording one by one."""

    def __init__(self, post: Post) -> None:
        self.clean = self.cut = False
        self._post = post
        self._known: dict[int, tuple[str, Event]] = {}
        self._begun = False

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
        elif "cut" in data:
            self.cut = True
        elif "end" in data:
            self.clean = data["end"] is True
        else:
            raise Damaged(_NO_LINE)

    def _header(self, data: object) -> None:
        if not isinstance(data, dict) or "format" not in data:
            raise Damaged(_NO_RECORDING)
        if data["format"] != FORMAT:
            by = data.get("zerograd", "another version")
            raise Damaged(
                f"the recording has format {data['format']!r}, written by zerograd {by}; "
                f"this is {__version__}, which reads format {FORMAT}: replay it with that version"
            )
        self._begun = True

    def _define(self, data: dict[str, object]) -> None:
        number, subject = data["define"], data.get("subject")
        if type(number) is not int or not isinstance(subject, str):
            raise Damaged("an event needs a number and a subject")
        event = parsed(Event, data.get("event"))
        assert isinstance(event, Event)
        self._known[number] = (subject, event)

    def _cycle(self, data: dict[str, object]) -> None:
        cycle, events = data["cycle"], data.get("events")
        if not isinstance(cycle, list) or not cycle or type(events) is not int or events < 1:
            raise Damaged("a cycle needs the numbers of its events, and how many they are")
        known = [self._find(number) for number in cycle]
        for at in range(events):
            self._post(*known[at % len(known)])

    def _find(self, number: object) -> tuple[str, Event]:
        if type(number) is not int:
            raise Damaged(_NO_LINE)
        if number not in self._known:
            raise Damaged(f"event {number} is not defined")
        return self._known[number]


def plain(value: object) -> object:
    """A value as JSON can hold it; of a dataclass the fields that are not what they always are."""
    if isinstance(value, Enum):
        return value.value
    if is_dataclass(value):
        held = ((field, getattr(value, field.name)) for field in fields(value))
        return {field.name: plain(one) for field, one in held if one != field.default}
    if isinstance(value, (tuple, list)):
        return [plain(one) for one in value]
    if isinstance(value, dict):
        return [[plain(key), plain(one)] for key, one in value.items()]
    return value


def parsed(kind: Any, data: object) -> object:
    """The value of a type that `plain` made into data; `Damaged` if it is no such thing."""
    origin = get_origin(kind)
    if origin in (Union, types.UnionType):
        return _parsed_union(get_args(kind), data)
    if origin is tuple and isinstance(data, list):
        return tuple(parsed(get_args(kind)[0], one) for one in data)
    if origin is dict and isinstance(data, list):
        return _parsed_dict(get_args(kind), data)
    if origin is Literal and data in get_args(kind):
        return data
    if is_dataclass(kind):
        return _parsed_dataclass(kind, data)
    if isinstance(kind, type) and issubclass(kind, Enum):
        try:
            return kind(data)
        except ValueError:
            raise Damaged(f"{data!r} is no {kind.__name__.lower()}") from None
    if kind is float and type(data) is int:
        return float(data)
    if type(data) is not kind and not (kind is type(None) and data is None):
        raise Damaged(f"{data!r} is not of the kind that belongs there")
    return data


def _parsed_union(kinds: tuple[Any, ...], data: object) -> object:
    for kind in kinds:
        with contextlib.suppress(Damaged):
            return parsed(kind, data)
    raise Damaged(f"{data!r} is not of the kind that belongs there")


def _parsed_dict(kinds: tuple[Any, ...], data: list[Any]) -> object:
    if not all(isinstance(pair, list) and len(pair) == 2 for pair in data):
        raise Damaged("this is no table")
    return {parsed(kinds[0], key): parsed(kinds[1], one) for key, one in data}


def _parsed_dataclass(kind: Any, data: object) -> object:
    hints, needed = _hints(kind)
    if not isinstance(data, dict):
        raise Damaged(f"this is no {kind.__name__.lower()}")
    name = kind.__name__.lower()
    for unknown in data.keys() - hints.keys():
        raise Damaged(f"no {name} has a {unknown!r}: a newer zerograd may have written it")
    for missing in needed - data.keys():
        raise Damaged(f"the {name} has no {missing!r}")
    made: object = kind(**{name: parsed(hints[name], one) for name, one in data.items()})
    return made


@cache
def _hints(kind: Any) -> tuple[dict[str, Any], frozenset[str]]:
    """The types of a dataclass's fields, and the fields without which there is none."""
    needed = [
        field.name
        for field in fields(kind)
        if field.default is MISSING and field.default_factory is MISSING
    ]
    return get_type_hints(kind), frozenset(needed)
