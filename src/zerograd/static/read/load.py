"""From the bytes of a file to a `Source`: reading, decoding, notebooks."""

from __future__ import annotations

import codecs
import os
import stat

from zerograd.core.finding import Problem
from zerograd.core.late_pattern import pattern
from zerograd.static.read.source import MAX_BYTES, Source, Unreadable, refuse_size, too_big

MAX_NOTEBOOK_BYTES = 32_000_000
"""A notebook carries its outputs, which are skipped fast but must fit in memory."""

_READ = os.O_RDONLY | getattr(os, "O_BINARY", 0) | getattr(os, "O_NONBLOCK", 0)
"""Opening a pipe must not wait for a writer: only an open file shows what it is."""
_COOKIE = pattern(rb"^[ \t\f]*#.*?coding[:=][ \t]*([-\w.]+)")
_BLANK = pattern(rb"^[ \t\f]*(?:#.*)?$")


def read_bytes(path: str) -> bytes:
    """The bytes of a file, or `Unreadable`."""
    try:
        # A file object would take three times as long for a small file, and most are small.
        descriptor = os.open(path, _READ)
        try:
            status = os.fstat(descriptor)
            if not (stat.S_ISREG(status.st_mode) or stat.S_ISDIR(status.st_mode)):
                raise Unreadable(Problem(path, "is not a regular file"))
            size = status.st_size
            if size > MAX_NOTEBOOK_BYTES:
                raise Unreadable(Problem(path, too_big(size)))
            data = os.read(descriptor, size + 1)
            while len(data) < size and (more := os.read(descriptor, size)):
                data += more
            return data
        finally:
            os.close(descriptor)
    except (OSError, ValueError) as error:
        raise Unreadable(Problem(path, cannot_read(error))) from None


def cannot_read(error: OSError | ValueError) -> str:
    """The message for a path that the system will not give."""
    if isinstance(error, FileNotFoundError):
        return "does not exist"
    if isinstance(error, PermissionError):
        return "cannot be read: permission denied; change its mode or exclude it"
    if isinstance(error, IsADirectoryError):
        return "is a directory, not a file"
    reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
    return f"cannot be read: {reason}"


def read(path: str | os.PathLike[str]) -> Source:
    """Read a Python file or a notebook; `Unreadable` if that cannot be done."""
    name = os.fspath(path)
    return from_bytes(read_bytes(name), name)


def from_bytes(data: bytes, path: str) -> Source:
    """The source that the bytes of a file hold."""
    return from_text(decode(data, path, cookie=not path.endswith(".ipynb")), path)


def from_text(text: str, path: str) -> Source:
    """The source that a text holds: a module, or a notebook's JSON when the path says so."""
    if path.endswith(".ipynb"):
        from zerograd.static.read.notebooks import from_notebook

        return from_notebook(text, path)
    text = text.removeprefix("\ufeff")
    if "\r" in text:
        text = text.replace("\r\n", "\n").replace("\r", "\n")
    null = text.find("\0")
    if null >= 0:
        message = "holds a null byte, so it is not Python source; restore it or exclude it"
        raise Unreadable(Problem(path, message, text.count("\n", 0, null) + 1))
    refuse_size(text, path)
    return Source(path, text)


def decode(data: bytes, path: str, *, cookie: bool = True) -> str:
    """Bytes to text by the rules of PEP 263: a BOM, a declared encoding, else UTF-8."""
    if len(data) > (MAX_BYTES if cookie else MAX_NOTEBOOK_BYTES):
        raise Unreadable(Problem(path, too_big(len(data))))
    if data.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        raise Unreadable(Problem(path, "is UTF-16, which Python does not read; save it as UTF-8"))
    encoding = "utf-8"
    if data.startswith(codecs.BOM_UTF8):
        data = data[3:]
    elif cookie:
        encoding = declared(data) or encoding
    try:
        return data.decode(encoding)
    except LookupError:
        message = (
            f"declares the unknown encoding {encoding!r}; declare a real one or save it as UTF-8"
        )
        raise Unreadable(Problem(path, message, 1)) from None
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        message = (
            f"byte 0x{data[error.start]:02x} is not valid {encoding.upper()}; "
            "save the file as UTF-8 or declare its encoding on the first line: "
            "# -*- coding: latin-1 -*-"
        )
        raise Unreadable(Problem(path, message, line)) from None
    except (UnicodeError, ValueError) as error:
        message = f"does not decode as {encoding}: {error}; save it as UTF-8"
        raise Unreadable(Problem(path, message)) from None


def declared(data: bytes) -> str | None:
    """The encoding that the first two lines declare."""
    for line in data.split(b"\n", 2)[:2]:
        if match := _COOKIE.match(line):
            return match[1].decode("ascii", "replace")
        if not _BLANK.match(line.rstrip(b"\r")):
            return None
    return None
