"""`zerograd run --live`: what the gradients do, at the foot of the terminal, while training runs.

The foot is kept out of the part of the terminal that scrolls, so whatever the program writes, by
whichever way, stays whole. Nothing waits for the drawing: a thread looks a few times per second. If
the process dies without a word, a guard, which only waits for that, gives the terminal back.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from typing import NamedTuple

from zerograd.core.finding import Finding
from zerograd.core.lifecycle import Grads

EVERY = 0.2
"""Seconds between two looks."""
RATE_OVER = 25
"""So many looks a rate is taken over."""
MOST_SUBJECTS = 6
MOST_FINDINGS = 3
LEAST_ROWS = 12
"""A terminal that has fewer is left alone."""

_SIGNS = {
    Grads.NONE: ("·", "empty", "2"),
    Grads.ZERO: ("·", "empty", "2"),
    Grads.LIVE: ("●", "live", "34"),
    Grads.SPENT: ("◐", "spent", "2"),
    Grads.STALE: ("✕", "stale", "1;31"),
    Grads.UNKNOWN: ("?", "unknown", "2"),
}
_SAVE, _BACK = "\x1b7", "\x1b8"
_FREE = f"{_SAVE}\x1b[r{_BACK}\x1b[J"
"""The whole terminal scrolls again, and what stands below the cursor is gone."""
_GUARD = (
    r"""exec 3<&0; { read -r said <&3; [ "$said" ] || printf '\0337\033[r\0338\033[J\n' >&2; } &"""
)


class Glance(NamedTuple):
    """A subject as it is now."""

    title: str
    steps: int
    grads: Grads
    window: int
    windows: dict[int, int]


class Live:
    """Draws until it is told to stop."""

    def __init__(
        self,
        fd: int,
        write: Callable[[str], None],
        look: Callable[[], Sequence[Glance]],
        findings: Callable[[], Sequence[Finding]],
        *,
        color: bool = True,
    ) -> None:
        self._fd = fd
        self._write = write
        self._look = look
        self._findings = findings
        self._color = color
        self._over = threading.Event()
        self._thread: threading.Thread | None = None
        self._guard = -1
        self._room = (0, 0, 0)
        """Rows and columns of the terminal, and rows of the foot, as they were last drawn."""
        self._began = time.monotonic()
        self._past: deque[tuple[float, int]] = deque(maxlen=RATE_OVER)

    def start(self) -> None:
        """Begin to draw."""
        self._guard = _guard(self._fd)
        self._thread = threading.Thread(target=self._draw_on, name="zerograd live", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Draw no more, and give the terminal back."""
        if self._thread is None:
            return
        self._over.set()
        self._thread.join(timeout=2)
        self._thread = None
        if self._room[2]:
            self._write(_FREE)
        if self._guard >= 0:
            with contextlib.suppress(OSError):
                os.write(self._guard, b"over\n")
            os.close(self._guard)

    def _draw_on(self) -> None:
        # A look from beside may come amid a change: then the next one sees more.
        while not self._over.wait(EVERY):
            with contextlib.suppress(Exception):
                self._draw()

    def _draw(self) -> None:
        columns, rows = os.get_terminal_size(self._fd)
        if rows < LEAST_ROWS:
            return
        lines = self.lines(columns)
        room = (rows, columns, len(lines))
        words = ""
        if room != self._room:
            # Rows for the foot are made by moving on; the cursor stays with what was written last.
            words = _FREE if self._room[2] else ""
            words += "\n" * len(lines) + f"\x1b[{len(lines)}A"
            words += f"{_SAVE}\x1b[1;{rows - len(lines)}r{_BACK}"
            self._room = room
        first = rows - len(lines) + 1
        placed = (f"\x1b[{first + at};1H\x1b[2K{line}" for at, line in enumerate(lines))
        self._write(f"{words}{_SAVE}{''.join(placed)}{_BACK}")

    def lines(self, columns: int) -> list[str]:
        """The foot, as wide as the terminal."""
        subjects = list(self._look())
        findings = list(self._findings())
        steps = sum(one.steps for one in subjects)
        shown = subjects[-MOST_SUBJECTS:]
        wide = max((len(one.title) for one in shown), default=0)
        lines = [self._head(steps, findings, columns)]
        lines += [self._subject(one, min(wide, columns // 2), columns) for one in shown]
        if len(subjects) > len(shown):
            lines.append(self._paint("2", f"  and {len(subjects) - len(shown)} more"[:columns]))
        for one in findings[-MOST_FINDINGS:]:
            times = "once" if one.seen in (None, 1) else f"{one.seen:,} times"
            said = f"  {one.code} {one.name}  {one.site.path}:{one.site.line}  {times}"
            style = "31" if one.level == "error" else "33"
            lines.append(self._paint(style, _fit(said, columns)))
        return lines

    def _head(self, steps: int, findings: Sequence[Finding], columns: int) -> str:
        now = time.monotonic()
        self._past.append((now, steps))
        since, before = self._past[0]
        rate = (steps - before) / (now - since) if now > since else 0.0
        levels = [one.level for one in findings]
        told = [f"{levels.count('error')} errors" if levels.count("error") != 1 else "1 error"]
        told += [f"{levels.count('advice')} advice"] if "advice" in levels else []
        seconds = int(now - self._began)
        clock = f"{seconds // 3600}:{seconds // 60 % 60:02}:{seconds % 60:02}"
        parts = ["zerograd", clock, f"{steps:,} steps", f"{rate:,.1f} steps/s", ", ".join(told)]
        head = f"── {' ── '.join(parts)} "
        return self._paint("2", _fit(head.ljust(columns, "─"), columns))

    def _subject(self, one: Glance, wide: int, columns: int) -> str:
        sign, word, style = _SIGNS[one.grads]
        lengths = sorted(one.windows.items(), key=lambda item: -item[1])[:3]
        windows = ", ".join(f"{times:,} of {length}" for length, times in lengths) or "none yet"
        said = f"  {_fit(one.title, wide):<{wide}}  {sign} {word:<7}"
        more = f"  window {one.window}  steps {one.steps:,}  windows {windows}"
        said, more = _fit(said, columns), _fit(more, max(0, columns - len(said)))
        return self._paint(style, said) + more

    def _paint(self, style: str, words: str) -> str:
        return f"\x1b[{style}m{words}\x1b[0m" if self._color else words


def _fit(words: str, columns: int) -> str:
    """Words of a stranger, in one line, that move no cursor."""
    plain = "".join(char if char.isprintable() else "\N{REPLACEMENT CHARACTER}" for char in words)
    return plain if len(plain) <= columns else plain[: max(0, columns - 1)] + "…"[:columns]


def _guard(fd: int) -> int:
    """Who gives the terminal back if we cannot: the end of a pipe that it waits at; -1 is nobody."""
    try:
        waiting, ours = os.pipe()
    except OSError:
        return -1
    try:
        # The guard is no child of ours: a program that waits for all its children is not disturbed.
        subprocess.run(
            ["/bin/sh", "-c", _GUARD],
            stdin=waiting,
            stdout=subprocess.DEVNULL,
            stderr=fd,
            start_new_session=True,
            check=True,
        )
    except (OSError, subprocess.SubprocessError):
        os.close(ours)
        return -1
    finally:
        os.close(waiting)
    os.register_at_fork(after_in_child=lambda: _close(ours))
    return ours


def _close(fd: int) -> None:
    # A child that lives on must not keep the guard waiting.
    with contextlib.suppress(OSError):
        os.close(fd)
