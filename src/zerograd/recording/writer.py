"""The events of a run as JSON lines, so that it can be judged and shown again: `run --record`.

    {"zerograd": "0.1.0", "format": 3, "program": "a.py"}
    {"subject": "SGD#1", "title": "SGD over 2 parameters", "parameters": 2}
    {"source": "a.py", "text": "import torch …"}
    {"define": 0, "subject": "SGD#1", "event": {"kind": "backward", "site": {"path": "a.py", "line": 7}}}
    0                                              event 0 happened
    {"cycle": [0, 1, 2], "events":       299997}   these, over and over, so many events altogether
    {"norms": "SGD#1", "first": 1, "each": 1, "used": [5, 8], "right": [null, 5]}
    {"watched": {"steps": 100001}}                 what the run was watched for
    {"end": true}                                  the run ended by itself

An event is written before `write` returns: a crash loses at most the last one. What repeats itself
is counted in place, in its line, so that the events of a long run are no longer than those of a short
one. Norms come in batches, and behind the events they belong to; from THIN steps on, one is for
several. A file never grows beyond MOST_BYTES; what comes after `{"cut": …}` was not kept.

An event has the fields of its kind. In format 2 all kinds had all fields; it is converted on reading.
"""

from __future__ import annotations

import contextlib
import errno
import json
import linecache
import math
import os
import threading
from collections.abc import Iterator, Sequence

from zerograd import __version__
from zerograd.core.events import Event
from zerograd.core.finding import Watched
from zerograd.recording.json_codec import event_data, plain

FORMAT = 3
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
THIN = 100_000
"""From this step on a norm stands for two steps, from twice as many on for four, and so on."""
MOST_SOURCES = 64
_SHORT = 6
"""Digits of a norm."""


class Recorder:
    """Writes a run to a file. Trouble with the file ends the recording, never the run."""

    def __init__(
        self,
        path: str,
        *,
        program: str = "",
        rank: int | None = None,
        most_bytes: int = MOST_BYTES,
    ) -> None:
        """Open the file; `OSError` where it cannot be written."""
        self.path = path
        self._home = os.getcwd()
        self._sources: set[str] = set()
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
            about = {"program": program} if program else {}
            ranked = {} if rank is None else {"rank": rank}
            header = {"zerograd": __version__, "format": FORMAT, **about, **ranked}
            self._append(json.dumps(header))
            self.began = os.fstat(self._file.fileno()).st_mtime
            """When, by the clock of the file system."""
        except OSError:
            self._file.close()
            raise

    def write(self, subject: str, event: Event) -> None:
        """Keep one event."""
        with self._kept() as open_:
            if not open_:
                return
            number = self._numbers.get((subject, event))
            if number is None:
                number = self._define(subject, event)
            if not self._goes_on(number):
                self._begin(number)

    def title(self, subject: str, title: str, parameters: int) -> None:
        """Keep what a subject is called."""
        self._line({"subject": subject, "title": title, "parameters": parameters})

    def norms(
        self, subject: str, first: int, used: Sequence[float], right: Sequence[float | None]
    ) -> None:
        """Keep the norms that steps used, from a subject's first of them on.

        Beside them what they should have been, None where that is what was used.
        """
        each = thinning(first)
        groups = range(0, len(used), each)
        tallest = [max(range(at, min(at + each, len(used))), key=used.__getitem__) for at in groups]
        line: dict[str, object] = {"norms": subject, "first": first, "each": each}
        line["used"] = [_short(used[at]) for at in tallest]
        if any(right[at] is not None for at in tallest):
            line["right"] = [_short(right[at]) for at in tallest]
        self._line(line)

    def watched(self, watched: Watched) -> None:
        """Keep what the run was watched for."""
        self._line({"watched": plain(watched)})

    def _line(self, line: object) -> None:
        with self._kept() as open_:
            if open_:
                self._append(json.dumps(line))

    @contextlib.contextmanager
    def _kept(self) -> Iterator[bool]:
        """Whether there is a file to write to; trouble in here ends the recording."""
        # A forked child has the parent's file, and must leave it alone.
        if self._file.closed or os.getpid() != self._pid:
            yield False
            return
        with self._lock:
            try:
                yield True
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
        self._keep_source(event.site.path)
        if len(self._numbers) >= MOST_EVENTS:
            self._numbers.clear()
            self._past.clear()
        number = len(self._numbers)
        line = {"define": number, "subject": subject, "event": event_data(event)}
        self._append(json.dumps(line))
        self._numbers[subject, event] = number
        return number

    def _keep_source(self, path: str) -> None:
        """Keep the file that a call stands in: allow comments hold, wherever it is judged again."""
        if path in self._sources or not path or len(self._sources) >= MOST_SOURCES:
            return
        self._sources.add(path)
        file = os.path.join(self._home, path)
        if os.path.isfile(file) and os.path.getsize(file) < LONGEST_LINE:
            line = json.dumps({"source": path, "text": "".join(linecache.getlines(file))})
            if len(line) < LONGEST_LINE:
                self._append(line)

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


def thinning(step: int) -> int:
    """For how many steps one norm stands, from that step on: a power of two."""
    return 1 if step <= THIN else 1 << math.ceil(math.log2(step / THIN))


def _short(norm: float | None) -> float | str | None:
    """A norm as JSON has it: with few digits, in words where it is no number."""
    if norm is None:
        return None
    return float(f"{norm:.{_SHORT}g}") if math.isfinite(norm) else str(norm)


class _Full(Exception):
    """The file has reached its size."""


def _cycle(past: list[int], number: int) -> list[int]:
    """The shortest cycle that the past has just gone through twice, and that the number begins."""
    for length in range(1, min(LONGEST_CYCLE, len(past) // 2) + 1):
        if past[-length] == number and past[-length:] == past[-2 * length : -length]:
            return past[-length:]
    return []
