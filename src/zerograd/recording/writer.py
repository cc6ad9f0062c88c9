"""Writes the events of a run as JSON lines, to judge and show the run again: `run --record`.

    {"zerograd": "0.1.0", "format": 3, "program": "a.py"}
    {"subject": "SGD#1", "title": "SGD, 2 parameters", "parameters": 2}
    {"source": "a.py", "text": "import torch …"}
    {"define": 0, "subject": "SGD#1", "event": {"kind": "backward", "site": {"path": "a.py", "line": 7}}}
    0                                              event 0 happened
    {"cycle": [0, 1, 2], "events":       299997}   these events repeat; the total number of events
    {"norms": "SGD#1", "first": 1, "each": 1, "used": [5, 8], "right": [null, 5]}
    {"watched": {"steps": 100001}}                 what was watched
    {"end": true}                                  the run ended normally

An event is written before `write` returns, so a crash loses at most the last one. Repetitions are
counted in place, in their line, so the events of a long run take no more space than those of a short
run. Norms come in batches, after the events that they belong to; from THIN steps on, one norm is that of
several steps. A file never grows beyond MOST_BYTES; events after `{"cut": …}` are not kept.

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
from zerograd.core.interruptions import interrupts
from zerograd.recording.json_codec import event_data, plain

FORMAT = 3
MOST_BYTES = 64 * 1024 * 1024
MOST_EVENTS = 4096
"""The number of different events that have a number at a time. Then numbering starts again."""
LONGEST_CYCLE = 128
LONGEST_LINE = 1024 * 1024
_WIDTH = 12
"""The width of a count, which is overwritten in place."""
_RESERVE = 128
"""Bytes reserved for the last line."""
_ASIDE = 100
"""The first file descriptor that zerograd uses."""
THIN = 100_000
"""From this step on a norm is that of two steps, from twice this step on of four, and so on."""
MOST_SOURCES = 64
_SHORT = 6
"""The number of digits of a norm."""


class Recorder:
    """Writes a run to a file. An error of the file ends the recording, never the run."""

    def __init__(
        self,
        path: str,
        *,
        program: str = "",
        rank: int | None = None,
        most_bytes: int = MOST_BYTES,
    ) -> None:
        """Open the file. Raises `OSError` if it cannot be written."""
        self.path = path
        self._home = os.getcwd()
        self._sources: set[str] = set()
        self.problem = ""
        """Why the recording is incomplete."""
        self._file = open(path, "wb", 0, opener=open_aside)  # noqa: SIM115  # see `close`
        self._most = most_bytes - _RESERVE
        self._pid = os.getpid()
        self._lock = threading.RLock()
        self._numbers: dict[tuple[str, Event], int] = {}
        self._past: list[int] = []
        """The latest event numbers, enough to see the longest cycle twice."""
        self._cycle: list[int] = []
        self._count = 0
        """The number of events of the open cycle, and its position in the file."""
        self._count_at = 0
        try:
            if not self._file.seekable():
                raise OSError(errno.ESPIPE, "the recording must be a regular file")
            about = {"program": program} if program else {}
            ranked = {} if rank is None else {"rank": rank}
            header = {"zerograd": __version__, "format": FORMAT, **about, **ranked}
            self._append(json.dumps(header))
            self.began = os.fstat(self._file.fileno()).st_mtime
            """The start time, by the clock of the file system."""
        except OSError:
            self._file.close()
            raise

    def write(self, subject: str, event: Event) -> None:
        """Write one event."""
        with self._kept() as open_:
            if not open_:
                return
            number = self._numbers.get((subject, event))
            if number is None:
                number = self._define(subject, event)
            if not self._goes_on(number):
                self._begin(number)

    def title(self, subject: str, title: str, parameters: int, called: str = "") -> None:
        """Write the title of a subject, and what findings call it. The last title counts."""
        about = {"subject": subject, "title": title, "parameters": parameters, "called": called}
        self._line(about)

    def norms(
        self, subject: str, first: int, used: Sequence[float], right: Sequence[float | None]
    ) -> None:
        """Write the norms that the steps of a subject used, beginning with step `first`.

        `right` has the correct norms; None where the used norm is correct.
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
        """Write what was watched."""
        self._line({"watched": plain(watched)})

    def _line(self, line: object) -> None:
        with self._kept() as open_:
            if open_:
                self._append(json.dumps(line))

    @contextlib.contextmanager
    def _kept(self) -> Iterator[bool]:
        """Whether the file is open. An error inside this block ends the recording."""
        # A forked child shares the file of its parent and must not write to it.
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
                if interrupts(error):
                    raise
                self.problem = f"{error.strerror or error}; the rest was not kept"
                self._file.close()

    def close(self, *, clean: bool = False) -> None:
        """End the recording; `clean` if the run ended normally. A second call does nothing."""
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
        """Write the source file of a call, so that its allow comments apply when it is judged again."""
        if path in self._sources or not path or len(self._sources) >= MOST_SOURCES:
            return
        self._sources.add(path)
        file = os.path.join(self._home, path)
        if os.path.isfile(file) and os.path.getsize(file) < LONGEST_LINE:
            line = json.dumps({"source": path, "text": "".join(linecache.getlines(file))})
            if len(line) < LONGEST_LINE:
                self._append(line)

    def _goes_on(self, number: int) -> bool:
        """Whether the event is the next one of the open cycle. If so, count it."""
        if not self._cycle or self._cycle[self._count % len(self._cycle)] != number:
            return False
        self._count += 1
        self._put(f"{self._count:>{_WIDTH}}", self._count_at)
        return True

    def _begin(self, number: int) -> None:
        """Write the event as a separate line, or as the first of a cycle."""
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
        """Close the open cycle, and update the past, which was not kept meanwhile."""
        if self._cycle:
            missing = range(max(1, self._count - 2 * LONGEST_CYCLE), self._count)
            self._past += [self._cycle[at % len(self._cycle)] for at in missing]
            self._cycle = []

    def _append(self, line: str) -> int:
        """Write a line. Returns its position in the file."""
        at = self._file.seek(0, os.SEEK_END)
        if at + len(line) >= self._most:
            raise _Full
        return self._put(f"{line}\n")

    def _put(self, text: str, at: int | None = None) -> int:
        """Write at a position, or at the end, with one system call: all of it or nothing."""
        at = self._file.seek(0, os.SEEK_END) if at is None else self._file.seek(at)
        data = text.encode("ascii")
        if self._file.write(data) != len(data):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return at


def open_aside(path: str, flags: int) -> int:
    """Open a file with a descriptor that no program will use."""
    fd = os.open(path, flags, 0o666)
    try:
        return aside(fd)
    finally:
        os.close(fd)


def aside(fd: int) -> int:
    """A copy of a file descriptor, with a number that no program will get for its own files."""
    try:
        import fcntl

        return fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, _ASIDE)
    except (ImportError, OSError):
        return os.dup(fd)


def thinning(step: int) -> int:
    """The number of steps per norm, from this step on: a power of two."""
    return 1 if step <= THIN else 1 << math.ceil(math.log2(step / THIN))


def _short(norm: float | None) -> float | str | None:
    """A norm as JSON: few digits, and text for inf and nan."""
    if norm is None:
        return None
    return float(f"{norm:.{_SHORT}g}") if math.isfinite(norm) else str(norm)


class _Full(Exception):
    """The file has reached its maximum size."""


def _cycle(past: list[int], number: int) -> list[int]:
    """The shortest cycle that has just happened twice and that begins with this number."""
    for length in range(1, min(LONGEST_CYCLE, len(past) // 2) + 1):
        if past[-length] == number and past[-length:] == past[-2 * length : -length]:
            return past[-length:]
    return []
