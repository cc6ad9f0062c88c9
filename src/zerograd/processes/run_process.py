"""One process of a run: the file to which it writes its findings at once, and the others' files.

A run has a directory. Every process that trains appends to its own file there, line by line, so a
process that is killed loses nothing. The leader of the run reads all files at the end
(`process_files`).
"""

from __future__ import annotations

import contextlib
import getpass
import hashlib
import json
import os
import shutil
import socket
import tempfile
import time
from pathlib import Path
from typing import Any

from zerograd.core.finding import Finding, Report
from zerograd.processes.child_options import from_parent
from zerograd.processes.identity import Identity, identify, number_in_environment
from zerograd.processes.process_files import SUFFIX, ProcessFile, files, read
from zerograd.recording.json_codec import plain
from zerograd.recording.writer import open_aside

PATIENCE = 10.0
"""How many seconds the first rank waits for the end of the others."""
_STEPS = b"%12d"
"""The width of the number of steps, which is overwritten in place."""


class StepCounter:
    """The number of steps, overwritten in the file: after a kill the last number remains."""

    def __init__(self, file: Any) -> None:
        self._file = file
        self._at = file.tell() + len('{"steps": ')
        file.write(b'{"steps": ' + _STEPS % 0 + b"}\n")

    def set(self, steps: int) -> None:
        """Write the number of steps. The system call takes 2 µs; the step waits longer for other ranks."""
        with contextlib.suppress(OSError):
            os.pwrite(self._file.fileno(), _STEPS % steps, self._at)


class RunProcess:
    """The processes of one run, from the view of one of them."""

    def __init__(self, program: str, directory: str | None = None) -> None:
        """Join the run of this process, or start one. Raises `OSError` if that fails."""
        self.identity = identify()
        self.options = from_parent()
        self.kept = directory is not None or self.options is not None
        """Whether the directory remains after the run."""
        self.leads = self.options is None and (
            not self.identity.one_of_many or self.identity.rank == 0
        )
        """Whether this process reports the findings of all."""
        self.formed = False
        """Whether the ranks have formed a process group."""
        self.rank: int | None = None
        """The rank of this process, once they have."""
        self._program = program
        self._file: Any = None
        self.counter: StepCounter | None = None
        """The step counter of this process, once they have. It remains if the rank is killed."""
        self._known = Identity()
        self.problem = ""
        if self.options is not None:
            self.directory = self.options.directory
        elif directory is not None:
            self.directory = os.path.abspath(directory)
            os.makedirs(self.directory, exist_ok=True)
            self._clear()
        elif self.identity.one_of_many:
            self.directory = _meeting()
            os.makedirs(self.directory, mode=0o700, exist_ok=True)
        else:
            self.directory = tempfile.mkdtemp(prefix="zerograd-")
        if self.identity.one_of_many:
            self._begin()

    @property
    def _writes(self) -> bool:
        """Whether this process writes a file. A leader has its report and needs no file."""
        return not self.leads or self.identity.one_of_many or self.kept

    @property
    def opened(self) -> bool:
        """Whether this process has written anything yet."""
        return self._file is not None

    @property
    def alone(self) -> bool:
        """Whether no other process of the run has written anything."""
        return not any(files(self.directory))

    def met(self) -> None:
        """The ranks have formed a process group: from now on this process writes a file."""
        self.formed = True
        self.rank = identify().rank
        if self._writes:
            self._write()
        if self._file is not None and self.counter is None:
            self.counter = StepCounter(self._file)

    def forked(self) -> None:
        """This process was forked from the previous one."""
        self.leads = False
        self.kept = True
        if self._file is not None:
            with contextlib.suppress(OSError):
                self._file.close()
        self._file = self.counter = None
        self.identity = self._known = Identity()
        self.formed, self.rank = False, None

    def first_to_report(self, finding: Finding) -> bool:
        """Whether no other process on this machine has printed a finding at this place."""
        site = finding.site
        return self.first(f"{finding.code} {site.path} {site.line}")

    def first(self, what: str) -> bool:
        """Whether this is the first process on this machine to claim this task."""
        # The ranks of one launcher; a directory that zerograd made contains no others.
        parent = os.getppid() if self.options is None and self.identity.one_of_many else ""
        name = f"reported-{hashlib.sha256(f'{what} {parent}'.encode()).hexdigest()[:16]}"
        flags = os.O_CREAT | os.O_EXCL | os.O_WRONLY
        try:
            os.close(os.open(os.path.join(self.directory, name), flags))
        except FileExistsError:
            return False
        except OSError:
            pass
        return True

    def found(self, finding: Finding) -> None:
        """Write a finding now."""
        if self._writes:
            self._write({"finding": plain(finding)})

    def ended(self, report: Report, *, clean: bool) -> None:
        """This process has ended."""
        stepped = report.watched is not None and report.watched.steps
        if self._file is None and not stepped and not report.findings and not report.errors:
            return  # this process did not train
        if self._writes:
            watched = None if report.watched is None else plain(report.watched)
            # While it ran, a finding was written at 2, 4, 8 … times only: these are the exact counts.
            self._write(*({"finding": plain(one)} for one in report.findings))
            self._write({"end": clean, "watched": watched, "errors": plain(report.errors)})

    def others(self) -> list[ProcessFile]:
        """The findings of the other processes of the run."""
        mine = self._path() if self._file is not None else ""
        return [part for part in read(self.directory) if part.path != mine]

    def wait(self) -> bool:
        """Wait for the end of the ranks on this machine; False if some did not end."""
        if not self.identity.one_of_many:
            return True
        here = socket.gethostname()
        expected = number_in_environment("LOCAL_WORLD_SIZE") or 1
        until = time.monotonic() + PATIENCE
        while True:
            parts = [part for part in self.others() if part.host == here]
            running = [part for part in parts if not part.ended and _alive(part.pid)]
            if not running and len(parts) >= expected - 1:
                break
            if time.monotonic() > until:
                return not running
            time.sleep(0.02)
        # If this one ends with an error, the launcher stops ranks that are just ending.
        until = time.monotonic() + PATIENCE / 5
        while any(_alive(part.pid) for part in parts) and time.monotonic() < until:
            time.sleep(0.02)
        return True

    def close(self) -> None:
        """Close the file. The leader also removes the directory, unless it is kept."""
        self.counter = None
        if self._file is not None:
            self._file.close()
        if self.leads and not self.kept:
            shutil.rmtree(self.directory, ignore_errors=True)

    def _path(self) -> str:
        return os.path.join(self.directory, f"{socket.gethostname()}-{os.getpid()}{SUFFIX}")

    def _open(self) -> None:
        path = self._path()
        try:
            # Never overwrite a file: another process may still write to it.
            with contextlib.suppress(FileNotFoundError):
                os.remove(path)
            self._file = open(path, "x+b", 0, opener=open_aside)  # noqa: SIM115
        except OSError as error:
            self.problem = f"{self.directory} cannot be written: {error.strerror}"

    def _begin(self) -> None:
        """Write the first line, which identifies the process, once."""
        if self._file is None and not self.problem:
            self._open()
        now = identify()
        if self._known.one_of_many and not now.one_of_many:
            now = self._known  # the group is gone, but it is still the same process
        if self._file is not None and (now != self._known or not self._file.tell()):
            self._known = now
            self._put(self._header(now))

    def _write(self, *lines: dict[str, object]) -> None:
        try:
            self._begin()
            for line in lines if self._file is not None else ():
                self._put(line)
        except (OSError, ValueError) as error:
            self.problem = f"{self.directory} cannot be written: {error}"

    def _put(self, line: dict[str, object]) -> None:
        self._file.write(f"{json.dumps(line)}\n".encode("ascii"))

    def _header(self, now: Identity) -> dict[str, object]:
        return {
            "rank": now.rank if now.one_of_many else None,
            "world": now.world,
            "pid": os.getpid(),
            "host": socket.gethostname(),
            "program": self._program,
        }

    def _clear(self) -> None:
        """Remove the files of an earlier run from the directory that the user named."""
        if self.identity.restart:
            return
        here = socket.gethostname()
        for part in read(self.directory):
            if part.host != here or not _alive(part.pid):
                with contextlib.suppress(OSError):
                    os.remove(part.path)
        if not self.identity.one_of_many:
            for name in Path(self.directory).glob("reported-*"):
                name.unlink(missing_ok=True)


def _meeting() -> str:
    """The directory for ranks that a launcher started, named after their common parent."""
    names = (os.environ.get("TORCHELASTIC_RUN_ID", ""), os.environ.get("MASTER_PORT", ""))
    name = f"zerograd-{getpass.getuser()}-{os.getppid()}-{'-'.join(filter(None, names))}"
    safe = "".join(sign if sign.isalnum() or sign in "-_" else "_" for sign in name)
    return os.path.join(tempfile.gettempdir(), safe)


def _alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except OSError:
        return True
    return True
