"""A `Source`: the text of one file or notebook, which is parsed and never run.

Whatever is wrong with a file ends in one exception, `Unreadable`. It carries a message that says what is
wrong and what the user can do.
"""

from __future__ import annotations

import ast
import re
import sys
import warnings

from zerograd.core.finding import Problem
from zerograd.core.late_pattern import pattern
from zerograd.core.records import dataclass

MAX_BYTES = 2_000_000
"""A larger file is not parsed: it was generated, not written."""
MAX_TOKENS = 200_000
"""`ast` takes up to 6 µs and 2 kB for a token, so this many stay near a second."""
_ALWAYS_SMALL = 2 * MAX_TOKENS
"""A file of fewer bytes than this cannot hold MAX_TOKENS tokens and line ends."""

_TOKEN = pattern(r"\w+|[^\w\s]|\n")

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
"""The parser's message, the look of the line, and the syntax of Python 2 that they mean."""


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
    """The cells that were left out of the text because of their syntax."""

    @property
    def lines(self) -> list[str]:
        """The lines as `ast` counts them: a form feed does not end a line."""
        return self.text.split("\n")

    def place(self, line: int) -> tuple[int | None, int]:
        """The cell that a line of the text is in, and its line there; no cell in a plain file."""
        if self.cells is None:
            return None, line
        for cell in reversed(self.cells):
            if line >= cell.start:
                return cell.number, line - cell.start + 1
        return None, line


def refuse_size(text: str, path: str) -> None:
    """`Unreadable` for a text that `ast` would not parse in time."""
    if len(text) <= _ALWAYS_SMALL:
        return
    if len(text) > MAX_BYTES or sum(1 for _ in _TOKEN.finditer(text)) > MAX_TOKENS:
        raise Unreadable(Problem(path, too_big(len(text))))


def too_big(size: int) -> str:
    """The message for a file of this many bytes."""
    return (
        f"is too big to be checked within 2 s ({size / 1e6:.1f} MB) and was not parsed; "
        "split it, or exclude it"
    )


def parse(source: Source) -> ast.Module:
    """The tree of a source; `Unreadable` with the line and the reason where it has none."""
    try:
        return parse_text(source.text)
    except SyntaxError as error:
        newer = _newer_python(error, source.text)
        message = f"needs Python {newer} to read" if newer else why_broken(error, source.text)
        skippable = bool(newer) or "torch" not in source.text
        problem = Problem(source.path, message, error.lineno, skippable=skippable)
        raise Unreadable(problem) from None
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
            older = OLD_ASYNC.sub("azync", text)
            if older == text:
                raise
            return ast.parse(older)


OLD_ASYNC = pattern(r"\basync(?=\s*=[^=])")
"""`x.cuda(async=True)` was valid until Python 3.7; it is read with a name of the same length."""


_NEWER = (
    ((3, 11), r"^\s*except\s*\*"),
    ((3, 12), r"^\s*type\s+\w+\s*(\[.*\])?\s*=[^=]"),
    ((3, 12), r"^\s*(async\s+)?def\s+\w+\s*\["),
    ((3, 12), r"^\s*class\s+\w+\s*\["),
    ((3, 12), r"""\b[rR]?[fF][rR]?(["']).*\{[^{}]*\1.*\1"""),
    ((3, 14), r"^\s*except\s+[\w.]+(\s*,\s*[\w.]*[A-Z]\w*)+\s*:"),
    ((3, 14), r"""(^|[^\w.])[rR]?[tT][rR]?["']"""),
)
"""The look of a line, and the first Python that reads it."""


def _newer_python(error: SyntaxError, text: str) -> str:
    """The Python that can read a text which this one cannot; nothing if it is just broken."""
    lines = text.split("\n")
    line = lines[error.lineno - 1] if error.lineno and error.lineno <= len(lines) else ""
    for version, looks in _NEWER:
        if version > sys.version_info[:2] and re.search(looks, line):
            return f"{version[0]}.{version[1]}"
    return ""


def why_broken(error: SyntaxError, text: str) -> str:
    """The message for source that does not parse; Python 2 is recognised."""
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
