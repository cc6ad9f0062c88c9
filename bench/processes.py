"""Finds commands, runs them, and measures time and memory. Their output is not read."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

PROC = Path("/proc")
BETWEEN_LOOKS = 0.02


@dataclass(frozen=True)
class Command:
    """A command line, its directory, and the exit codes that mean success."""

    words: tuple[str, ...]
    directory: Path
    environment: dict[str, str] = field(default_factory=dict)
    good: tuple[int, ...] = (0,)

    def start(self) -> subprocess.Popen[bytes]:
        """Start the command in its own session, which identifies its children."""
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
        """Raise an error if the command failed."""
        if code not in self.good:
            raise CommandError(f"{' '.join(self.words)}: ended with {code}")


class CommandError(Exception):
    """A command that is missing, or that failed."""


def find(name: str) -> str | None:
    """The command of this Python, or else the one on the PATH."""
    return shutil.which(name, path=str(Path(sys.executable).parent)) or shutil.which(name)


def seconds(command: Command) -> float:
    """Wall time of one run, from start to exit."""
    began = time.perf_counter()
    process = command.start()
    with _ended_with_us(process):
        code = process.wait()
    taken = time.perf_counter() - began
    command.judge(code)
    return taken


def peak_memory(command: Command) -> int:
    """The largest number of bytes that a command and its children hold at once.

    Shared pages count once (proportional set size), because forked workers share most of theirs.
    Sampling can miss a peak, so the peak of the largest single process counts too.
    """
    process = command.start()
    peak, ended = 0, 0
    with _ended_with_us(process):
        while not ended:
            peak = max(peak, sum(_bytes(entry, process.pid) for entry in PROC.glob("[0-9]*")))
            time.sleep(BETWEEN_LOOKS)
            # Not getrusage: it covers all children so far, and ruff may use more memory than zerograd.
            ended, status, usage = os.wait4(process.pid, os.WNOHANG)
    process.returncode = os.waitstatus_to_exitcode(status)
    command.judge(process.returncode)
    # Linux counts in kilobytes, macOS in bytes.
    return max(peak, usage.ru_maxrss * (1 if sys.platform == "darwin" else 1024))


@contextlib.contextmanager
def _ended_with_us(process: subprocess.Popen[bytes]) -> Iterator[None]:
    """A command has its own session, so Ctrl-C does not reach it: end it when the measurement ends."""
    try:
        yield
    except BaseException:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        raise


def _bytes(entry: Path, session: int) -> int:
    try:
        # The name of the command can contain any character, so parse after its last bracket.
        fields = (entry / "stat").read_text().rpartition(")")[2].split()
        if int(fields[3]) != session:
            return 0
        rollup = (entry / "smaps_rollup").read_text()
        return 1024 * int(rollup.partition("\nPss:")[2].split(maxsplit=1)[0])
    except (OSError, IndexError, ValueError):
        return 0  # the process has ended meanwhile
