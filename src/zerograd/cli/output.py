"""The output of commands: reports in the chosen format, messages, exit codes."""

from __future__ import annotations

import argparse
import os
import signal
import sys
import time
from importlib import import_module
from typing import TYPE_CHECKING, TextIO

from zerograd.core.usage_error import UsageError

if TYPE_CHECKING:
    from zerograd.core.finding import Report

INTERRUPTED = 130
COULD_NOT = 2


def say(message: str) -> None:
    """Print a message of zerograd on standard error."""
    print(f"zerograd: {message}", file=sys.stderr)


def say_problems(report: Report) -> None:
    """Print why files could not be checked."""
    for problem in report.errors:
        say(f"{problem.path} {problem.message}")


def inform(message: str, arguments: argparse.Namespace) -> None:
    """Print a message that `-q` leaves out."""
    if not arguments.quiet:
        say(message)


def detail(message: str, arguments: argparse.Namespace) -> None:
    """Print a message that only `-v` prints."""
    if arguments.verbose:
        say(message)


def silent(kind: object, error: object, trace: object) -> None:
    """Print nothing about an exception."""


def render(report: Report, arguments: argparse.Namespace) -> str:
    """The report in the format that the arguments name."""
    if arguments.statistics:
        from zerograd.report import text

        return text.statistics(report)
    options = {"color": wants_color(arguments)}
    if arguments.quiet and arguments.format == "text":
        options["summed"] = False
    text_of_report: str = import_module(f"zerograd.report.{arguments.format}").render(
        report, **options
    )
    return text_of_report


def wants_color(arguments: argparse.Namespace, stream: TextIO | None = None) -> bool:
    """Whether a stream gets colours; without one, the report on standard output or in a file."""
    if arguments.color != "auto":
        return bool(arguments.color == "always")
    if os.environ.get("NO_COLOR") or os.environ.get("TERM") == "dumb":
        return False
    if stream is None and vars(arguments).get("output"):
        return False
    return bool(os.environ.get("FORCE_COLOR")) or (stream or sys.stdout).isatty()


def write(text: str, path: str | None) -> bool:
    """Write to a file, or to standard output; False if that failed."""
    if path is None:
        sys.stdout.write(text)
        return True
    return write_bytes(text.encode("utf-8", "backslashreplace"), path)


def write_bytes(data: bytes, path: str | None) -> bool:
    """Write bytes, unchanged; False if that failed."""
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


def await_client(client: str) -> None:
    """Prepare to serve a client on standard input: on a terminal say so, and let Ctrl-C end the process.

    A thread reads from the client. It cannot be interrupted, and Python waits for it on exit.
    """
    if sys.stdin is None:
        raise UsageError(f"{client} speaks to this command on standard input, which is closed")

    def end(*_: object) -> None:
        say("interrupted")
        os._exit(INTERRUPTED)

    signal.signal(signal.SIGINT, end)
    if sys.stdin.isatty():
        say(f"{client} starts this command and speaks to it on standard input; Ctrl-C ends it")


class Progress:
    """A progress line on the terminal, shown when something takes longer than two seconds."""

    AFTER = 2.0
    EVERY = 0.1

    def __init__(self, template: str) -> None:
        self._template = template
        self._next = time.monotonic() + self.AFTER
        self._shown = False
        self._terminal = sys.stderr.isatty()

    def show(self, done: int, total: int) -> None:
        """Show how much is done."""
        if self._terminal and time.monotonic() >= self._next:
            self._next = time.monotonic() + self.EVERY
            self._shown = True
            share = 100 * done // max(total, 1)
            line = self._template.format(done=done, total=total, share=share)
            print(f"\r\x1b[K{line}", end="", file=sys.stderr, flush=True)

    def end(self) -> None:
        """Erase the line."""
        if self._shown:
            print("\r\x1b[K", end="", file=sys.stderr, flush=True)
