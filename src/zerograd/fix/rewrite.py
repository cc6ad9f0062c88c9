"""Writes repaired files, each replaced as a whole, or shows a diff of what would change."""

from __future__ import annotations

import contextlib
import difflib
import os
import tempfile
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Literal

from zerograd.core.finding import Finding, Problem
from zerograd.core.records import replace
from zerograd.fix.document import Document
from zerograd.fix.repair import repair, with_fixes
from zerograd.static.check_file import FileResult
from zerograd.static.read.load import read_bytes
from zerograd.static.read.source import Unreadable

Mode = Literal["show", "diff", "fix"]
"""Report what could be fixed; show what would change; change it."""

Wanted = Callable[[Finding], bool]


class NotWritten(Exception):
    """A file was not written; the message says why."""


@dataclass
class Rewriter:
    """Repairs one file after the other, and counts what it has done."""

    mode: Mode
    unsafe: bool = False
    fixed: int = 0
    diff: bytes = b""
    changed: set[str] = field(default_factory=set)
    repaired: dict[str, bytes] = field(default_factory=dict)
    """The files as they are, or would be, after the repair."""

    def file(
        self, path: str, result: FileResult, wanted: Wanted, reported: Wanted | None = None
    ) -> FileResult:
        """Repair those findings of a file on disk that are reported; the result for what is left."""
        try:
            document = Document(path, read_bytes(path))
        except Unreadable as error:
            return replace(result, problems=(*result.problems, error.problem))
        after, left, fixed = self._treated(document, result, wanted, reported)
        if after.data == document.data:
            return left
        if self.mode == "diff":
            self.diff += difference(document, after)
        else:
            try:
                exchange(path, document.data, after.data)
            except NotWritten as error:
                problem = Problem(path, f"was not repaired: {error}")
                return replace(result, problems=(*result.problems, problem))
            self.changed.add(os.path.abspath(path))
        self.repaired[path] = after.data
        self.fixed += fixed
        return left

    def text(
        self,
        path: str,
        data: bytes,
        result: FileResult,
        wanted: Wanted,
        reported: Wanted | None = None,
    ) -> tuple[bytes, FileResult]:
        """Repair what was read from standard input."""
        document = Document(path, data)
        after, left, fixed = self._treated(document, result, wanted, reported)
        self.fixed += fixed
        if self.mode == "diff":
            self.diff += difference(document, after)
        return after.data, left

    def _treated(
        self, document: Document, result: FileResult, wanted: Wanted, reported: Wanted | None
    ) -> tuple[Document, FileResult, int]:
        if self.mode == "show":
            return document, with_fixes(document, result, wanted), 0
        done = repair(document, wanted, unsafe=self.unsafe, reported=reported)
        return done.document, done.result, len(done.fixed)


def difference(before: Document, after: Document) -> bytes:
    """A unified diff, byte for byte, so that `git apply -p0` and `patch` take it."""
    name = os.fsencode(before.path)
    old, new = (one.data.splitlines(keepends=True) for one in (before, after))
    # `splitlines` of bytes also ends a line at \r, which a diff does not.
    old, new = _joined(old), _joined(new)
    lines = []
    for line in difflib.diff_bytes(difflib.unified_diff, old, new, name, name, lineterm=b"\n"):
        whole = line.endswith(b"\n")
        lines.append(line if whole else line + b"\n\\ No newline at end of file\n")
    return b"".join(lines)


def _joined(lines: list[bytes]) -> list[bytes]:
    found: list[bytes] = []
    for line in lines:
        if found and not found[-1].endswith(b"\n"):
            found[-1] += line
        else:
            found.append(line)
    return found


def exchange(path: str, old: bytes, new: bytes) -> None:
    """Replace the bytes of a file at once, or raise `NotWritten`.

    The mode is kept, a link stays a link, and a file that has changed since it was read is not touched.
    """
    target = os.path.realpath(path)
    try:
        if read_bytes(target) != old:
            raise NotWritten("it was changed after it was read; check it again")
        status = os.stat(target)
        if not status.st_mode & 0o222 or not os.access(target, os.W_OK):
            raise NotWritten("it is read-only; change its mode")
        handle, temporary = tempfile.mkstemp(dir=os.path.dirname(target), prefix=".zerograd-")
        try:
            with open(handle, "wb") as stream:
                stream.write(new)
                stream.flush()
                os.fsync(stream.fileno())
            with contextlib.suppress(OSError, AttributeError):
                os.chown(temporary, status.st_uid, status.st_gid)
            os.chmod(temporary, status.st_mode & 0o7777)
            if read_bytes(target) != old:
                raise NotWritten("it was changed after it was read; check it again")
            os.replace(temporary, target)
        except BaseException:
            with contextlib.suppress(OSError):
                os.unlink(temporary)
            raise
    except Unreadable as error:
        raise NotWritten(f"it cannot be read again ({error.problem.message})") from None
    except OSError as error:
        raise NotWritten(f"it cannot be written: {error.strerror}") from None
