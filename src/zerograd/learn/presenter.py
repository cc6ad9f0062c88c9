"""Shows the course on a terminal, or without stopping in a pipe.

On a terminal, Enter continues, q leaves, and questions ask for yes or no. In a pipe everything is
printed at once.
"""

from __future__ import annotations

import re
import shutil
import textwrap
from collections.abc import Iterable, Iterator, Sequence
from typing import TextIO

from zerograd.learn import drawing
from zerograd.learn.content import (
    MARKED,
    Bars,
    Buckets,
    Code,
    CommandReport,
    Curves,
    Lab,
    Part,
    Pause,
    Question,
    Say,
    Table,
    TryOut,
)
from zerograd.learn.contents import Lesson
from zerograd.report import text
from zerograd.report.excerpt import Paint

WIDEST = 88
_KEYS = {"b": "backward", "z": "zero", "s": "step"}
_PLAIN = str.maketrans("│└┘┌┐─█▏▎▍▌▋▊▉▁▂▃▄▅▆▇●○×…–", "|++++-#|||####__==###*ox.-")
"""Replacements for terminals that can only show ASCII."""


_GLUE = "\N{NO-BREAK SPACE}"


class Left(Exception):
    """The reader has left the course."""


class Terminal:
    """Shows lessons on a stream, and asks the reader if there is one."""

    def __init__(
        self, out: TextIO, reader: TextIO | None, *, color: bool, answer: bool | None = None
    ) -> None:
        self._out = out
        self._reader = reader if answer is None else None
        self._answer = answer
        self._paint: Paint = text.colored if color else text.plain
        self._color = color
        self._width = min(WIDEST, max(40, shutil.get_terminal_size((WIDEST, 24)).columns - 2))
        self._ascii = not _can_draw(out)
        self.asked = 0
        self.right = 0

    def contents(self, lessons: Sequence[Lesson]) -> None:
        """Print the table of contents."""
        wide = max(len(lesson.title) for lesson in lessons)
        for lesson in lessons:
            title = self._paint("bold", f"{lesson.title:<{wide}}")
            self._line(f"{lesson.number:>3}  {title}  {lesson.about}")

    def course(self, lessons: Sequence[Lesson]) -> None:
        """Show the lessons one after another."""
        for place, lesson in enumerate(lessons):
            try:
                self.lesson(lesson)
                if place + 1 < len(lessons):
                    self._wait(f"Enter: lesson {lessons[place + 1].number}")
            except (Left, KeyboardInterrupt) as left:
                self._line("" if isinstance(left, Left) else "\n")
                self._line(f"Continue any time: zerograd learn --lesson {lesson.number}")
                if isinstance(left, KeyboardInterrupt):
                    raise
                return
        if self.asked:
            self._line(f"{self.right} of your {self.asked} answers were right.")

    def title(self, title: str) -> None:
        """Print a title."""
        self._line(self._paint("bold", title))
        self._line()

    def lesson(self, lesson: Lesson) -> None:
        """Show one lesson."""
        title = f" {lesson.number}  {lesson.title} "
        self.title(f"──{title}{'─' * max(2, self._width - len(title) - 2)}")
        for part in lesson.parts():
            self.show(part)

    def show(self, part: Part) -> None:
        """Show one part. A reader is asked for Enter or for an answer."""
        if isinstance(part, Pause):
            self._wait("Enter")
        elif isinstance(part, Question):
            self._ask(part)
        elif isinstance(part, TryOut):
            self._play(part.lab)
        else:
            self._lines(self._drawn(part))
            self._line()

    def _drawn(
        self, part: Say | Code | Table | Bars | Curves | Buckets | CommandReport
    ) -> Iterable[str]:
        if isinstance(part, Say):
            return self._paragraph(part.text)
        if isinstance(part, Code):
            return self._code(part)
        if isinstance(part, Table):
            return drawing.table(part, self._width, self._paint)
        if isinstance(part, Bars):
            return drawing.bars(part, self._width, self._paint)
        if isinstance(part, Curves):
            return drawing.curves(part, self._width, self._paint)
        if isinstance(part, Buckets):
            return drawing.buckets(part, self._width, self._paint)
        return self._command_report(part)

    def _paragraph(self, paragraph: str) -> Iterator[str]:
        # Lines are painted after wrapping, so code and emphasis must stay on one line.
        glued = MARKED.sub(lambda found: found[0].replace(" ", _GLUE), paragraph)
        for line in textwrap.wrap(
            glued, self._width, break_long_words=False, break_on_hyphens=False
        ):
            yield MARKED.sub(self._marked, line).replace(_GLUE, " ")

    def _marked(self, found: re.Match[str]) -> str:
        return self._paint("label", found[1]) if found[1] else self._paint("bold", found[2])

    def _code(self, part: Code) -> Iterator[str]:
        lines = part.text.rstrip("\n").split("\n")
        wide = max(len(part.title) + 2, *(len(line) for line in lines)) + 2
        title = f" {part.title} " if part.title else ""
        yield f"┌─{title}{'─' * (wide - len(title) - 1)}┐"
        for line in lines:
            yield f"│ {self._paint('label', line)}{' ' * (wide - len(line) - 1)}│"
        yield f"└{'─' * wide}┘"

    def _command_report(self, part: CommandReport) -> Iterator[str]:
        yield self._paint("dim", f"$ {part.command}")
        yield from text.render(part.report, color=self._color).rstrip("\n").split("\n")

    def _ask(self, question: Question) -> None:
        self._lines(self._paragraph(question.text))
        given = self._answer if self._reader is None else self._read_answer()
        truth = "yes" if question.truth else "no"
        if given is None:
            result = f"The answer is {truth}."
        else:
            self.asked += 1
            self.right += given == question.truth
            outcome = "Right" if given == question.truth else "Wrong"
            if self._reader is None:
                self._line(f"yes or no? {'yes' if given else 'no'}")
            result = f"{outcome}: the answer is {truth}."
        self._line(self._paint("bold", result))
        self._line()
        for part in question.because:
            self.show(part)

    def _read_answer(self) -> bool:
        """Ask until the reader answers yes or no."""
        while True:
            answer = self._read("yes or no? ")
            if answer in ("y", "yes", "n", "no"):
                return answer[0] == "y"

    def _play(self, lab: Lab) -> None:
        if self._reader is None:
            return
        full = sum(lab.gradients)  # as in the buckets of the lesson: all gradients, and no clear
        self._line(self._paint("bold", "Your turn: b backward, z zero, s step; Enter continues."))
        while True:
            keys = self._read("b, z, s or Enter: ")
            if not keys:
                return
            moments = tuple(lab.press(_KEYS[key]) for key in keys if key in _KEYS)
            if moments:
                self._lines(drawing.buckets(Buckets(moments, full), self._width, self._paint))

    def _wait(self, prompt: str) -> None:
        if self._reader is not None:
            self._read(f"[{prompt}, or q] ")

    def _read(self, prompt: str) -> str:
        """A line from the reader. Raises `Left` for q or the end of the input."""
        assert self._reader is not None
        self._out.write(self._paint("dim", prompt))
        self._out.flush()
        line = self._reader.readline()
        typed = line.strip().lower()
        if not line:
            self._line()
        if not line or typed in ("q", "quit", "exit"):
            raise Left
        return typed

    def _lines(self, lines: Iterable[str]) -> None:
        for line in lines:
            self._line(line)

    def _line(self, line: str = "") -> None:
        if self._ascii:
            line = line.translate(_PLAIN)
        self._out.write(line + "\n")
        self._out.flush()


def _can_draw(out: TextIO) -> bool:
    try:
        "│█●…".encode(out.encoding or "utf-8")
    except (LookupError, UnicodeEncodeError):
        return False
    return True
