"""Keeps the results of a check, so that the next check reads only changed files.

Of 9,442 files that have not changed, the next check takes 0.24 s instead of 3.7 s (`bench/check_speed.py`).

A result is valid as long as its file, the files that were read for it, and zerograd itself have not
changed. A cache that is missing, broken or of another version is ignored: it never fails a check.
"""

from __future__ import annotations

import contextlib
import marshal
import os
import sys
import time
import zlib
from collections.abc import Sequence
from enum import Enum
from typing import Any

from zerograd import __version__
from zerograd.check.settings import Settings, load
from zerograd.core.events import Measured, Site
from zerograd.core.finding import Edit, Finding, Fix, Note, Problem
from zerograd.core.records import fields
from zerograd.core.training_loop import Found, Gap, LoopStep, NotFollowed, TrainingLoop
from zerograd.static.check_file import CLEAN, FileResult

MAGIC = b"zerograd cache\n"
RACY_NS = 100_000_000
"""A file that changed this shortly before it was read may change again and keep its time stamp."""
FORGOTTEN_S = 30 * 24 * 3600
"""A cache file that no check has used for this long is removed."""

Stamp = tuple[int, int]
"""The time of the last change and the size of a file; (0, 0) for a missing file."""

_PACKED: tuple[type[Any], ...] = (
    Site,
    Note,
    Edit,
    Fix,
    Measured,
    Finding,
    Problem,
    NotFollowed,
    LoopStep,
    Found,
    Gap,
    TrainingLoop,
    FileResult,
)
_KIND = {kind: number for number, kind in enumerate(_PACKED)}
_FIELDS = tuple(
    ("value",) if issubclass(kind, Enum) else tuple(one.name for one in fields(kind))
    for kind in _PACKED
)


def pack(value: object) -> object:
    """Findings and their parts as plain tuples, which `marshal` can write."""
    number = _KIND.get(type(value))
    if number is not None:
        return {number: tuple(pack(getattr(value, name)) for name in _FIELDS[number])}
    return tuple(map(pack, value)) if isinstance(value, tuple) else value


def unpack(value: object) -> object:
    """The opposite of `pack`."""
    if isinstance(value, dict):
        ((number, fields),) = value.items()
        return _PACKED[number](*map(unpack, fields))
    return tuple(map(unpack, value)) if isinstance(value, tuple) else value


def stamp(path: str) -> Stamp:
    """The stamp of a file as it is now."""
    try:
        status = os.stat(path)
    except (OSError, ValueError):
        return 0, 0
    return status.st_mtime_ns, status.st_size


def directory() -> str:
    """The directory of caches: ZEROGRAD_CACHE_DIR, or the user's cache directory."""
    if own := os.environ.get("ZEROGRAD_CACHE_DIR"):
        return own
    home = os.path.expanduser("~")
    if sys.platform == "win32":
        base = os.environ.get("LOCALAPPDATA") or os.path.join(home, "AppData", "Local")
    elif sys.platform == "darwin":
        base = os.path.join(home, "Library", "Caches")
    else:
        base = os.environ.get("XDG_CACHE_HOME") or os.path.join(home, ".cache")
    return os.path.join(base, "zerograd")


Entry = (
    tuple[int, int]
    | tuple[int, int, bytes]
    | tuple[int, int, object, tuple[tuple[str, int, int], ...]]
)
"""Only a stamp for a clean file, or also its imports; else the packed result and the files read for it."""


class Cache:
    """The results of earlier checks of the same paths from the same directory."""

    def __init__(self, roots: Sequence[str]) -> None:
        self._key = repr((__version__, sys.version_info[:3], _code(), os.getcwd(), *roots))
        # The hash is only a file name: the file contains the whole key.
        name = f"{zlib.crc32(self._key.encode('utf-8', 'backslashreplace')):08x}.cache"
        self._path = os.path.join(directory(), name)
        self._start = time.time_ns()
        self._old: dict[str, Entry] = {}
        self._old_quiet: dict[str, Stamp] = {}
        self._load()
        self._new: dict[str, Entry] = {}
        self._quiet: dict[str, Stamp] = {}
        self._stamps: dict[str, Stamp] = {}
        """Time and size of the files that results depend on, as they were when the first result was asked for."""

    def _load(self) -> None:
        try:
            with open(self._path, "rb") as stream:
                if not _ours(os.fstat(stream.fileno())):
                    return
                data = stream.read()
        except OSError:
            return
        head = len(MAGIC) + 4
        if data[: len(MAGIC)] != MAGIC or data[len(MAGIC) : head] != _sum(data[head:]):
            return
        with contextlib.suppress(ValueError, EOFError, TypeError):
            key, old, quiet = marshal.loads(data[head:])  # noqa: S302 (only this user can write it)
            if key == self._key:
                self._old, self._old_quiet = old, quiet

    def knows(self, path: str, mtime: int, size: int) -> bool:
        """Whether a file has not changed since it was checked."""
        entry = self._old.get(path)
        return entry is not None and (entry[0], entry[1]) == (mtime, size)

    def get(self, path: str, mtime: int, size: int) -> FileResult | None:
        """The result for a file, if it is still valid."""
        entry = self._old.get(path)
        if entry is None or entry[0] != mtime or entry[1] != size:
            return None
        if len(entry) == 2:
            self._new[path] = entry
            return CLEAN
        if len(entry) == 3:
            self._new[path] = entry
            return FileResult(unparsed=entry[2])
        if any(self._stamp(other) != (time, size) for other, time, size in entry[3]):
            return None
        self._new[path] = entry
        result = unpack(entry[2])
        assert isinstance(result, FileResult)
        return result

    def put(self, path: str, mtime: int, size: int, result: FileResult) -> None:
        """Remember the result for a file that had this stamp before it was read."""
        # Many results depend on the same files: an interned path is written once.
        depends = tuple((sys.intern(other), *self._stamp(other)) for other in result.depends)
        latest = max((mtime, *(time for _, time, _ in depends)))
        if latest > self._start - RACY_NS or not result.lasting:
            return
        if result == CLEAN:
            self._new[path] = (mtime, size)
        elif result.unparsed:
            self._new[path] = (mtime, size, result.unparsed)
        else:
            self._new[path] = (mtime, size, pack(result), depends)

    def _stamp(self, path: str) -> Stamp:
        known = self._stamps.get(path)
        if known is None:
            known = self._stamps[path] = stamp(path)
        return known

    def load_settings(self, path: str) -> tuple[Settings | None, list[Problem]]:
        """`settings.load`, without reading a file again that is known to have no settings."""
        now = stamp(path)
        if self._old_quiet.get(path) == now:
            self._quiet[path] = now
            return None, []
        found, problems = load(path)
        if found is None and not problems and now[0] <= self._start - RACY_NS:
            self._quiet[path] = now
        return found, problems

    def save(self) -> None:
        """Write the cache in one step, so that another process reads all of it or none."""
        if (self._new, self._quiet) == (self._old, self._old_quiet):
            self._touch()
            return
        payload = marshal.dumps((self._key, self._new, self._quiet))
        temporary = f"{self._path}.{os.getpid()}"
        try:
            os.makedirs(os.path.dirname(self._path), mode=0o700, exist_ok=True)
            with open(temporary, "xb", opener=_private) as stream:
                stream.write(MAGIC + _sum(payload) + payload)
            os.replace(temporary, self._path)
            _forget(os.path.dirname(self._path))
        except OSError:
            with contextlib.suppress(OSError):
                os.unlink(temporary)

    def _touch(self) -> None:
        """Mark the file as used, at most once a day."""
        with contextlib.suppress(OSError):
            if time.time() - os.stat(self._path).st_mtime > 24 * 3600:
                os.utime(self._path)


def _private(path: str, flags: int) -> int:
    """Open a new file that only this user can read and write."""
    return os.open(path, flags, 0o600)


def _ours(status: os.stat_result) -> bool:
    """Whether a file belongs to this user, and no other user can write it. Windows has neither property."""
    if sys.platform == "win32":
        return True
    return status.st_uid == os.geteuid() and not status.st_mode & 0o022


def _sum(data: bytes) -> bytes:
    return zlib.crc32(data).to_bytes(4, "big")


def _code() -> tuple[tuple[str, int, int], ...]:
    """The stamps of zerograd's own modules: a changed checker invalidates every result."""
    found = []
    todo = [os.path.dirname(os.path.dirname(os.path.abspath(__file__)))]
    while todo:
        with os.scandir(todo.pop()) as entries:
            for entry in entries:
                if entry.is_dir() and entry.name != "__pycache__":
                    todo.append(entry.path)
                elif entry.name.endswith(".py"):
                    found.append((entry.path, *stamp(entry.path)))
    return tuple(sorted(found))


def _forget(folder: str) -> None:
    """Remove cache files that were not used for a long time."""
    now = time.time()
    with os.scandir(folder) as entries:
        for entry in entries:
            if ".cache" in entry.name and now - entry.stat().st_mtime > FORGOTTEN_S:
                with contextlib.suppress(OSError):
                    os.unlink(entry.path)
