"""What a command says: a report in the format that was asked for, messages of its own, exit codes."""

from __future__ import annotations

import argparse
import os
import sys
import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from zerograd.core.finding import Report

INTERRUPTED = 130
COULD_NOT = 2


def say(message: str) -> None:
    """A word of zerograd's own, on standard error."""
    print(f"zerograd: {message}", file=sys.stderr)


def silent(kind: object, error: object, trace: object) -> None:
    """Say nothing of an exception."""


def render(report: Report, arguments: argparse.Namespace) -> str:
    """The report as the words ask for it."""
    if arguments.statistics:
        from zerograd.report import text

        return text.statistics(report)
    from zerograd.report import formats

    return formats.render(report, arguments.format, color=colored(arguments))


def colored(arguments: argparse.Namespace) -> bool:
    """Whether what goes to standard output is coloured."""
    if arguments.color != "auto":
        return bool(arguments.color == "always")
    if (
        os.environ.get("NO_COLOR")
        or os.environ.get("TERM") == "dumb"
        or vars(arguments).get("output")
    ):
        return False
    return sys.stdout.isatty()


def write(text: str, path: str | None) -> bool:
    """Write to a file, or to standard output; whether that was possible."""
    if path is None:
        sys.stdout.write(text)
        return True
    try:
        with open(path, "w", encoding="utf-8", errors="backslashreplace") as stream:
            stream.write(text)
    except OSError as error:
        say(f"{path} cannot be written: {error.strerror}")
        return False
    return True


def write_bytes(data: bytes, path: str | None) -> bool:
    """The same for what must come out as it is."""
    if path is None:
        sys.stdout.flush()
        sys.stdout.buffer.write(data)
        sys.stdout.buffer.flush()
        return True
    try:
        with open(path, "wb") as stream:
            stream.write(data)
    except OSError as error:
        say(f"{path} cannot be written: {error.strerror}")
        return False
    return True


class Progress:
    """A line on the terminal, once something takes longer than one likes to wait in the dark."""

    AFTER = 2.0
    EVERY = 0.1

    def __init__(self, words: str) -> None:
        self._words = words
        self._next = time.monotonic() + self.AFTER
        self._shown = False
        self._terminal = sys.stderr.isatty()

    def tell(self, done: int, total: int) -> None:
        """So much is done, of so much."""
        if self._terminal and time.monotonic() >= self._next:
            self._next = time.monotonic() + self.EVERY
            self._shown = True
            share = 100 * done // max(total, 1)
            words = self._words.format(done=done, total=total, share=share)
            print(f"\r\x1b[K{words}", end="", file=sys.stderr, flush=True)

    def end(self) -> None:
        """Leave the terminal as it was."""
        if self._shown:
            print("\r\x1b[K", end="", file=sys.stderr, flush=True)
