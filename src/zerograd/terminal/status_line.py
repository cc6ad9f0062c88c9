"""`zerograd run --live`: the state of the gradients in the last lines of the terminal, during a run.

The status lines are outside the scrolling part of the terminal, so they never disturb the output of
the program. The training never waits for them: a thread draws them a few times per second. If the
process is killed, a separate process restores the terminal.
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
"""Seconds between two drawings."""
RATE_OVER = 25
"""The number of drawings over which the rate is averaged."""
MOST_SUBJECTS = 6
MOST_FINDINGS = 3
LEAST_ROWS = 12
"""On a terminal with fewer rows, nothing is drawn."""

_SIGNS = {
    Grads.NONE: ("·", "empty", "2"),
    Grads.ZERO: ("·", "empty", "2"),
    Grads.LIVE: ("●", "live", "94"),
    Grads.SPENT: ("◐", "spent", "2"),
    Grads.STALE: ("✕", "stale", "1;31"),
    Grads.UNKNOWN: ("?", "unknown", "2"),
}
_SAVE, _BACK = "\x1b7", "\x1b8"
_FREE = f"{_SAVE}\x1b[r{_BACK}\x1b[J"
"""Lets the whole terminal scroll again, and erases everything below the cursor."""
_RESTORE = (
    r"""exec 3<&0; { read -r said <&3; [ "$said" ] || printf '\0337\033[r\0338\033[J\n' >&2; } &"""
)


class Glance(NamedTuple):
    """The current state of a subject."""

    title: str
    steps: int
    grads: Grads
    window: int
    windows: dict[int, int]


class Live:
    """Draws the status lines until `stop` is called."""

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
        self._restorer = -1
        self._room = (0, 0, 0)
        """Rows and columns of the terminal, and the number of status lines, at the last drawing."""
        self._began = time.monotonic()
        self._past: deque[tuple[float, int]] = deque(maxlen=RATE_OVER)

    def start(self) -> None:
        """Start drawing."""
        self._restorer = _restorer(self._fd)
        self._thread = threading.Thread(target=self._draw_on, name="zerograd live", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Stop drawing, and restore the terminal."""
        if self._thread is None:
            return
        self._over.set()
        self._thread.join(timeout=2)
        self._thread = None
        if self._room[2]:
            self._write(_FREE)
        if self._restorer >= 0:
            with contextlib.suppress(OSError):
                os.write(self._restorer, b"over\n")
            os.close(self._restorer)

    def _draw_on(self) -> None:
        # The data can change while the thread reads it. Then the next drawing is right.
        while not self._over.wait(EVERY):
            with contextlib.suppress(Exception):
                self._draw()

    def _draw(self) -> None:
        columns, rows = os.get_terminal_size(self._fd)
        if rows < LEAST_ROWS:
            return
        lines = self.lines(columns)
        room = (rows, columns, len(lines))
        text = ""
        if room != self._room:
            # Scroll to make rows for the status lines; the cursor stays after the last output.
            text = _FREE if self._room[2] else ""
            text += "\n" * len(lines) + f"\x1b[{len(lines)}A"
            text += f"{_SAVE}\x1b[1;{rows - len(lines)}r{_BACK}"
            self._room = room
        first = rows - len(lines) + 1
        placed = (f"\x1b[{first + at};1H\x1b[2K{line}" for at, line in enumerate(lines))
        self._write(f"{text}{_SAVE}{''.join(placed)}{_BACK}")

    def lines(self, columns: int) -> list[str]:
        """The status lines, fitted to the width of the terminal."""
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
        counts = [f"{levels.count('error')} errors" if levels.count("error") != 1 else "1 error"]
        counts += [f"{levels.count('advice')} advice"] if "advice" in levels else []
        seconds = int(now - self._began)
        clock = f"{seconds // 3600}:{seconds // 60 % 60:02}:{seconds % 60:02}"
        parts = ["zerograd", clock, f"{steps:,} steps", f"{rate:,.1f} steps/s", ", ".join(counts)]
        head = f"── {' ── '.join(parts)} "
        return self._paint("2", _fit(head.ljust(columns, "─"), columns))

    def _subject(self, one: Glance, wide: int, columns: int) -> str:
        sign, name, style = _SIGNS[one.grads]
        lengths = sorted(one.windows.items(), key=lambda item: -item[1])[:3]
        windows = ", ".join(f"{times:,} of {length}" for length, times in lengths) or "none yet"
        said = f"  {_fit(one.title, wide):<{wide}}  {sign} {name:<7}"
        more = f"  window {one.window}  steps {one.steps:,}  windows {windows}"
        said, more = _fit(said, columns), _fit(more, max(0, columns - len(said)))
        return self._paint(style, said) + more

    def _paint(self, style: str, text: str) -> str:
        return f"\x1b[{style}m{text}\x1b[0m" if self._color else text


def _fit(text: str, columns: int) -> str:
    """Text of the program in one line, without control characters."""
    plain = "".join(char if char.isprintable() else "\N{REPLACEMENT CHARACTER}" for char in text)
    return plain if len(plain) <= columns else plain[: max(0, columns - 1)] + "…"[:columns]


def _restorer(fd: int) -> int:
    """Start the process that restores the terminal. Returns the end of the pipe that it reads, or -1."""
    try:
        waiting, ours = os.pipe()
    except OSError:
        return -1
    try:
        # The process is not a child of this process, because a program may wait for all its children.
        subprocess.run(
            ["/bin/sh", "-c", _RESTORE],
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
    # A child process that outlives this one must not keep that process waiting.
    with contextlib.suppress(OSError):
        os.close(fd)
