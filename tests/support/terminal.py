"""A command in a pseudo-terminal, and what a person sees there."""

from __future__ import annotations

import fcntl
import os
import pty
import select
import struct
import termios
import time
from collections.abc import Callable
from pathlib import Path

import pyte

from support.command import environment
from support.warm_python import with_torch

PATIENCE = 60.0


class Terminal:
    """Runs `zerograd WORDS…`, and shows what is on the screen."""

    def __init__(self, *words: str, cwd: Path, columns: int = 100, rows: int = 30) -> None:
        self._screen = pyte.Screen(columns, rows)
        self._stream = pyte.ByteStream(self._screen)
        self._fd, theirs = pty.openpty()
        size = struct.pack("HHHH", rows, columns, 0, 0)
        fcntl.ioctl(self._fd, termios.TIOCSWINSZ, size)
        self._process = with_torch().start(
            ["-m", "zerograd", *words],
            cwd=cwd,
            env=environment(cwd.with_name(f"{cwd.name}.cache"), TERM="xterm"),
            streams=(theirs, theirs, theirs),
            terminal=True,
        )
        self.pid = self._process.pid
        os.close(theirs)

    @property
    def lines(self) -> list[str]:
        """What the screen shows."""
        return [line.rstrip() for line in self._screen.display]

    def scrolls(self) -> tuple[int, int] | None:
        """The rows that scroll; None is all of them."""
        margins: tuple[int, int] | None = self._screen.margins
        return margins

    def until(self, seen: Callable[[list[str]], object]) -> list[str]:
        """Wait for something to be seen; the screen as it is then."""
        end = time.monotonic() + PATIENCE
        while not seen(self.lines):
            assert time.monotonic() < end, "\n".join(self.lines)
            assert self._read(), "\n".join(self.lines)
        return self.lines

    def close(self) -> int:
        """Wait for its end; its exit code."""
        end = time.monotonic() + PATIENCE
        while self._read():
            assert time.monotonic() < end, "\n".join(self.lines)
        os.close(self._fd)
        return self._process.wait()

    def _read(self) -> bool:
        """Take in what there is; False at the end."""
        if select.select([self._fd], [], [], 0.2)[0]:
            try:
                data = os.read(self._fd, 65536)
            except OSError:  # whoever wrote has gone
                return False
            self._stream.feed(data)
            return bool(data)
        return True
