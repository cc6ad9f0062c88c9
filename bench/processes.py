"""Finds commands, runs them, and measures what they take; their output is not read."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path

PROC = Path("/proc")
BETWEEN_LOOKS = 0.02


@dataclass(frozen=True)
class Command:
    """A command line, where it runs, and the exit codes that mean it did its work."""

    words: tuple[str, ...]
    directory: Path
    environment: dict[str, str] = field(default_factory=dict)
    good: tuple[int, ...] = (0,)

    def start(self) -> subprocess.Popen[bytes]:
        """Start it in a session of its own, by which its children are known."""
        return subprocess.Popen(
            self.words,
            cwd=self.directory,
            env={**os.environ, **self.environment},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )

    def judge(self, code: int) -> None:
        """A run that failed has no time worth knowing."""
        if code not in self.good:
            raise CommandError(f"{' '.join(self.words)}: ended with {code}")


class CommandError(Exception):
    """A command that is missing, or that failed."""


def find(name: str) -> str | None:
    """The command that belongs to this Python, or else the one on the PATH."""
    return shutil.which(name, path=str(Path(sys.executable).parent)) or shutil.which(name)


def seconds(command: Command) -> float:
    """Wall time of one run, from start to exit."""
    began = time.perf_counter()
    code = command.start().wait()
    taken = time.perf_counter() - began
    command.judge(code)
    return taken


def peak_memory(command: Command) -> int:
    """The most bytes that a command and its children held at once.

    Shared pages count once (the proportional set size), as forked workers share most of theirs.
    Looking now and then may miss a peak, so the largest single process's own record counts too.
    """
    process = command.start()
    peak, ended = 0, 0
    while not ended:
        peak = max(peak, sum(_bytes(entry, process.pid) for entry in PROC.glob("[0-9]*")))
        time.sleep(BETWEEN_LOOKS)
        # Not getrusage: that is about every child so far, and ruff holds more than zerograd may.
        ended, status, usage = os.wait4(process.pid, os.WNOHANG)
    process.returncode = os.waitstatus_to_exitcode(status)
    command.judge(process.returncode)
    # Linux counts in kilobytes, macOS in bytes.
    return max(peak, usage.ru_maxrss * (1 if sys.platform == "darwin" else 1024))


def _bytes(entry: Path, session: int) -> int:
    try:
        # The command's name may hold anything; the fields after its last bracket don't.
        fields = (entry / "stat").read_text().rpartition(")")[2].split()
        if int(fields[3]) != session:
            return 0
        rollup = (entry / "smaps_rollup").read_text()
        return 1024 * int(rollup.partition("\nPss:")[2].split(maxsplit=1)[0])
    except (OSError, IndexError, ValueError):
        return 0  # it ended while we looked
