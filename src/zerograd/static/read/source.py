"""From bytes to Python source: decoding, notebooks, and a clear word on what cannot be read.

A `Source` is text that was read and never run. Whatever is wrong with a file ends in one exception,
`Unreadable`, that carries the message for the user and the way out.
"""

from __future__ import annotations

import ast
import codecs
import os
import re
import warnings
from dataclasses import dataclass

from zerograd.core.finding import Problem

MAX_BYTES = 2_000_000
"""More than this is not read as Python: nobody writes so much into a file, generators do."""
MAX_NOTEBOOK_BYTES = 32_000_000
"""A notebook carries its outputs, which are skipped fast but must fit in memory."""
MAX_TOKENS = 200_000
"""`ast` takes up to 6 µs and 2 kB for a token, so this many stay near a second."""
_ALWAYS_SMALL = 2 * MAX_TOKENS
"""A file of fewer bytes than this cannot hold MAX_TOKENS tokens and line ends."""

_READ = os.O_RDONLY | getattr(os, "O_BINARY", 0)
_COOKIE = re.compile(rb"^[ \t\f]*#.*?coding[:=][ \t]*([-\w.]+)")
_BLANK = re.compile(rb"^[ \t\f]*(?:#.*)?$")
_TOKEN = re.compile(r"\w+|[^\w\s]|\n")

_PYTHON_2 = (
    ("Missing parentheses in call to 'print'", "", "a print statement"),
    ("Missing parentheses in call to 'exec'", "", "an exec statement"),
    ("multiple exception types", "", "`except E, e`"),
    ("leading zeros", "", "an old octal literal"),
    ("invalid decimal literal", r"\b\d+[lL]\b", "a long literal"),
    ("syntax", r"^\s*raise\s+[\w.]+\s*,", "`raise E, value`"),
    ("syntax", r"[\w)]\s*<>\s*[\w(]", "the `<>` operator"),
    ("syntax", r"[=(]\s*`[^`]+`", "backquotes"),
    ("syntax", r"\b[uU][rR]['\"]", "a `ur` string"),
    ("", r"^\s*def\s+\w+\s*\((.*,)?\s*\(\w+,", "a tuple parameter"),
    ("tabs and spaces", "", "tabs mixed with spaces"),
)
"""What the parser says, what the line looks like, and what of Python 2 that is."""


class Unreadable(Exception):
    """A file that cannot be checked; `problem` says why and what to do."""

    def __init__(self, problem: Problem) -> None:
        super().__init__(problem.message)
        self.problem = problem

    def __reduce__(self) -> tuple[type[Unreadable], tuple[Problem]]:
        return (Unreadable, (self.problem,))


@dataclass(frozen=True)
class Cell:
    """One code cell: its number (from 1, every cell counts), and where it begins in the text."""

    number: int
    start: int
    lines: tuple[str, ...]
    """As the user wrote them, magics included."""


@dataclass(frozen=True)
class Source:
    """The text of one file, with plain line ends; `cells` is None but for notebooks."""

    path: str
    text: str
    cells: tuple[Cell, ...] | None = None
    problems: tuple[Problem, ...] = ()
    """What had to be left out of the text: cells with broken syntax."""

    @property
    def lines(self) -> list[str]:
        """The lines as `ast` counts them: form feeds and the like end no line."""
        return self.text.split("\n")

    def place(self, line: int) -> tuple[int | None, int]:
        """The cell and the line in it that a line of the text is; no cell in a plain file."""
        if self.cells is None:
            return None, line
        for cell in reversed(self.cells):
            if line >= cell.start:
                return cell.number, line - cell.start + 1
        return None, line


def read_bytes(path: str) -> bytes:
    """The bytes of a file, or `Unreadable`."""
    try:
        # A file object would take three times as long for a small file, and most are small.
        descriptor = os.open(path, _READ)
        try:
            size = os.fstat(descriptor).st_size
            if size > MAX_NOTEBOOK_BYTES:
                raise Unreadable(Problem(path, _too_big(size)))
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
        return "no such file or directory"
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
    if path.endswith(".ipynb"):
        from zerograd.static.read.notebooks import from_notebook

        return from_notebook(decode(data, path, cookie=False), path)
    return from_text(decode(data, path), path)


def from_text(text: str, path: str) -> Source:
    """The source that a text holds: a module, or a notebook's JSON when the path says so."""
    if path.endswith(".ipynb"):
        from zerograd.static.read.notebooks import from_notebook

        return from_notebook(text, path)
    text = text.removeprefix("\ufeff")
    if "\r" in text:
        text = text.replace("\r\n", "\n").replace("\r", "\n")
    _refuse_nulls(text, path)
    refuse_size(text, path)
    return Source(path, text)


def decode(data: bytes, path: str, *, cookie: bool = True) -> str:
    """Bytes to text by the rules of PEP 263: a BOM, a declared encoding, else UTF-8."""
    if len(data) > (MAX_BYTES if cookie else MAX_NOTEBOOK_BYTES):
        raise Unreadable(Problem(path, _too_big(len(data))))
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


def _refuse_nulls(text: str, path: str) -> None:
    at = text.find("\0")
    if at >= 0:
        message = "holds a null byte, so it is not Python source; restore it or exclude it"
        raise Unreadable(Problem(path, message, text.count("\n", 0, at) + 1))


def refuse_size(text: str, path: str) -> None:
    """`Unreadable` for a text that `ast` would not parse in time."""
    if len(text) <= _ALWAYS_SMALL:
        return
    if len(text) > MAX_BYTES or sum(1 for _ in _TOKEN.finditer(text)) > MAX_TOKENS:
        raise Unreadable(Problem(path, _too_big(len(text))))


def _too_big(size: int) -> str:
    return (
        f"is too big to be checked within 2 s ({size / 1e6:.1f} MB) and was not parsed; "
        "split it, or exclude it"
    )


def parse(source: Source) -> ast.Module:
    """The tree of a source; `Unreadable` with the line and the reason where it has none."""
    try:
        return parse_text(source.text)
    except SyntaxError as error:
        message = why_broken(error, source.text)
        raise Unreadable(Problem(source.path, message, error.lineno)) from None
    except (RecursionError, MemoryError):
        raise Unreadable(Problem(source.path, _TOO_DEEP)) from None
    except ValueError as error:
        raise Unreadable(Problem(source.path, f"does not parse: {error}")) from None


_TOO_DEEP = "is nested too deeply to be parsed; split the expression, or exclude the file"


def parse_text(text: str) -> ast.Module:
    """`ast.parse`, without the warnings about the user's escapes and comparisons."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            return ast.parse(text)
        except SyntaxError:
            older = _ASYNC.sub("azync", text)
            if older == text:
                raise
            return ast.parse(older)


_ASYNC = re.compile(r"\basync(?=\s*=[^=])")
"""`x.cuda(async=True)`: a name like any other until Python 3.7, read as one of the same length."""


def why_broken(error: SyntaxError, text: str) -> str:
    """What to tell about source that does not parse; Python 2 is recognised."""
    lines = text.split("\n")
    line = lines[error.lineno - 1] if error.lineno and error.lineno <= len(lines) else ""
    reason = error.msg or "invalid syntax"
    if "nested parentheses" in reason:
        return _TOO_DEEP
    for said, looks, what in _PYTHON_2:
        if said in reason and re.search(looks, line):
            return (
                f"is Python 2 ({what}), which is not checked; convert it to Python 3 or exclude it"
            )
    return f"does not parse: {reason}"
