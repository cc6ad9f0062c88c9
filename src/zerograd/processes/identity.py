"""The processes of one run: who each is, and the file in which it leaves what it finds, at once.

A directory stands for a run. Every process that trains appends to a file of its own there, line by
line, so that one that is killed has lost nothing. Whoever leads the run reads them all at the end
(`parts`).
"""

from __future__ import annotations

import contextlib
import getpass
import hashlib
import json
import mmap
import os
import shutil
import socket
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from zerograd.core.finding import Finding, Report
from zerograd.processes.process_files import SUFFIX, Part, files, read
from zerograd.recording.json_codec import parsed, plain
from zerograd.recording.writer import open_aside

VARIABLE = "ZEROGRAD_RUN"
"""The environment variable that tells a child what to do."""
BOOT = os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "launch", "boot")
"""What stands here is imported by every Python that has it in its path, before anything else."""
PATIENCE = 10.0
"""So many seconds the first rank waits for the others to come to their end."""
_STEPS = b"%12d"
"""The number of steps: it is written over."""
_ZERO = ord("0")


@dataclass(frozen=True)
class Who:
    """A process among the ranks of a run."""

    rank: int | None = None
    world: int = 1
    restart: int = 0

    @property
    def one_of_many(self) -> bool:
        """Whether there are other ranks."""
        return self.rank is not None and self.world > 1

    @property
    def several(self) -> tuple[int, ...]:
        """The rank, where there are others."""
        return (self.rank,) if self.rank is not None and self.world > 1 else ()


def who() -> Who:
    """Who this process is: by its process group, or by what a launcher has put into the environment."""
    known = rank_and_world()
    if known is not None:
        return Who(*known, restart=_number("TORCHELASTIC_RESTART_COUNT") or 0)
    if _is_worker():
        return Who()  # what the environment says is its parent's
    rank, world = _number("RANK"), _number("WORLD_SIZE")
    if rank is None or world is None or rank >= world:
        return Who()
    return Who(rank, world, _number("TORCHELASTIC_RESTART_COUNT") or 0)


def rank_and_world() -> tuple[int, int] | None:
    """The rank of this process and the number of ranks, by the default process group; None without."""
    dist = getattr(sys.modules.get("torch"), "distributed", None)
    if dist is None or not dist.is_available() or not dist.is_initialized():
        return None
    return dist.get_rank(), dist.get_world_size()


def _is_worker() -> bool:
    """Whether multiprocessing has started this process."""
    processes: Any = sys.modules.get("multiprocessing.process")
    return processes is not None and processes.parent_process() is not None


def _number(name: str) -> int | None:
    word = os.environ.get(name, "")
    return int(word) if word.isdecimal() else None


@dataclass(frozen=True)
class Orders:
    """What the children of a watched program are told."""

    directory: str
    on: str = "warn"
    codes: tuple[str, ...] = ()
    check_ranks: str = "default"
    color: bool = False
    record: str | None = None


def give(orders: Orders) -> None:
    """Let every Python that this process starts from now on be watched."""
    os.environ[VARIABLE] = json.dumps(plain(orders))
    path = os.environ.get("PYTHONPATH", "")
    if BOOT not in path.split(os.pathsep):
        os.environ["PYTHONPATH"] = f"{BOOT}{os.pathsep}{path}" if path else BOOT


def received() -> Orders | None:
    """What this process was told by the one that has started it; None if it stands alone."""
    word = os.environ.get(VARIABLE)
    if not word:
        return None
    try:
        orders = parsed(Orders, json.loads(word))
    except ValueError:
        return None
    assert isinstance(orders, Orders)
    return orders if os.path.isdir(orders.directory) else None


class Count:
    """The number of steps, written over in the file: a rank that is killed has left the last one."""

    def __init__(self, file: Any) -> None:
        self._file = file
        self._at = file.tell() + len('{"steps": ')
        word = _STEPS % 0
        file.write(b'{"steps": ' + word + b"}\n")
        self._tens = 0
        """All digits but the last, as they stand there."""
        self._memory: memoryview | None = None
        with contextlib.suppress(OSError, ValueError):  # not every file system has that
            whole = mmap.mmap(file.fileno(), self._at + len(word))
            self._memory = memoryview(whole)[self._at :]

    def set(self, steps: int) -> None:
        """So many were taken. In memory, and mostly one digit: a call of the system costs ten times that."""
        if self._memory is not None and steps // 10 == self._tens:
            self._memory[-1] = _ZERO + steps % 10
            return
        self._tens = steps // 10
        word = _STEPS % steps
        if self._memory is not None:
            self._memory[:] = word
            return
        with contextlib.suppress(OSError):
            os.pwrite(self._file.fileno(), word, self._at)


class Company:
    """The processes of one run, as one of them sees it."""

    def __init__(self, program: str, directory: str | None = None) -> None:
        """Join the run that this process is part of, or begin one; `OSError` where that fails."""
        self.who = who()
        self.orders = received()
        self.kept = directory is not None or self.orders is not None
        """Whether the directory is left when the run is over."""
        self.leads = self.orders is None and (not self.who.one_of_many or self.who.rank == 0)
        """Whether this process tells what all have found."""
        self.formed = False
        """Whether the ranks have met in a process group."""
        self.rank: int | None = None
        """This one's, once they have."""
        self._program = program
        self._file: Any = None
        self.count: Count | None = None
        """Of this one's steps, once the ranks have met: what is known of a rank that is killed."""
        self._known = Who()
        self.problem = ""
        if self.orders is not None:
            self.directory = self.orders.directory
        elif directory is not None:
            self.directory = os.path.abspath(directory)
            os.makedirs(self.directory, exist_ok=True)
            self._clear()
        elif self.who.one_of_many:
            self.directory = _meeting()
            os.makedirs(self.directory, mode=0o700, exist_ok=True)
        else:
            self.directory = tempfile.mkdtemp(prefix="zerograd-")
        if self.who.one_of_many:
            self._begin()

    @property
    def _writes(self) -> bool:
        """Whether this process leaves a file; what leads has a report, and needs none for itself."""
        return not self.leads or self.who.one_of_many or self.kept

    @property
    def opened(self) -> bool:
        """Whether this process has left anything yet."""
        return self._file is not None

    @property
    def alone(self) -> bool:
        """Whether no other process of the run has left anything."""
        return not any(files(self.directory))

    def met(self) -> None:
        """The ranks have formed a process group: from now on this one leaves a trace."""
        self.formed = True
        self.rank = who().rank
        if self._writes:
            self._write()
        if self._file is not None and self.count is None:
            self.count = Count(self._file)

    def forked(self) -> None:
        """This process is a child of the one that it was."""
        self.leads = False
        self.kept = True
        if self._file is not None:
            with contextlib.suppress(OSError):
                self._file.close()
        self._file = self.count = None
        self.who = self._known = Who()
        self.formed, self.rank = False, None

    def first_to_tell(self, finding: Finding) -> bool:
        """Whether no other process of this machine has told a finding of this place."""
        site = finding.site
        return self.first(f"{finding.code} {site.path} {site.line}")

    def first(self, what: str) -> bool:
        """Whether no other process of this machine has said that it does this."""
        # Ranks that were started by one launcher; in a directory of ours there are no others.
        parent = os.getppid() if self.orders is None and self.who.one_of_many else ""
        name = f"told-{hashlib.sha256(f'{what} {parent}'.encode()).hexdigest()[:16]}"
        flags = os.O_CREAT | os.O_EXCL | os.O_WRONLY
        try:
            os.close(os.open(os.path.join(self.directory, name), flags))
        except FileExistsError:
            return False
        except OSError:
            pass
        return True

    def found(self, finding: Finding) -> None:
        """Keep a finding, now."""
        if self._writes:
            self._write({"finding": plain(finding)})

    def ended(self, report: Report, *, clean: bool) -> None:
        """This process has come to its end."""
        stepped = report.watched is not None and report.watched.steps
        if self._file is None and not stepped and not report.findings and not report.errors:
            return  # it did not train
        if self._writes:
            watched = None if report.watched is None else plain(report.watched)
            self._write({"end": clean, "watched": watched, "errors": plain(report.errors)})

    def others(self) -> list[Part]:
        """What the other processes of the run have found."""
        mine = self._path() if self._file is not None else ""
        return [part for part in read(self.directory) if part.path != mine]

    def wait(self) -> bool:
        """Wait for the ranks of this machine to come to their end; False if some did not."""
        if not self.who.one_of_many:
            return True
        here = socket.gethostname()
        expected = _number("LOCAL_WORLD_SIZE") or 1
        until = time.monotonic() + PATIENCE
        while True:
            parts = [part for part in self.others() if part.host == here]
            running = [part for part in parts if not part.ended and _alive(part.pid)]
            if not running and len(parts) >= expected - 1:
                break
            if time.monotonic() > until:
                return not running
            time.sleep(0.02)
        # If this one ends in an error, the launcher would stop those that are on their way out.
        until = time.monotonic() + PATIENCE / 5
        while any(_alive(part.pid) for part in parts) and time.monotonic() < until:
            time.sleep(0.02)
        return True

    def close(self) -> None:
        """This process leaves; the directory goes with the one that leads, unless it is kept."""
        self.count = None
        if self._file is not None:
            self._file.close()
        if self.leads and not self.kept:
            shutil.rmtree(self.directory, ignore_errors=True)

    def _path(self) -> str:
        return os.path.join(self.directory, f"{socket.gethostname()}-{os.getpid()}{SUFFIX}")

    def _open(self) -> None:
        path = self._path()
        try:
            # Never over what is there: another process may still have it in its memory.
            with contextlib.suppress(FileNotFoundError):
                os.remove(path)
            self._file = open(path, "x+b", 0, opener=open_aside)  # noqa: SIM115
        except OSError as error:
            self.problem = f"{self.directory} cannot be written: {error.strerror}"

    def _begin(self) -> None:
        """Say who this is, if that has not been said yet."""
        if self._file is None and not self.problem:
            self._open()
        now = who()
        if self._known.one_of_many and not now.one_of_many:
            now = self._known  # the group is gone, and it is still the same process
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

    def _header(self, now: Who) -> dict[str, object]:
        return {
            "rank": now.rank if now.one_of_many else None,
            "world": now.world,
            "pid": os.getpid(),
            "host": socket.gethostname(),
            "program": self._program,
        }

    def _clear(self) -> None:
        """What an earlier run has left in a directory that the user has named."""
        if self.who.restart:
            return
        here = socket.gethostname()
        for part in read(self.directory):
            if part.host != here or not _alive(part.pid):
                with contextlib.suppress(OSError):
                    os.remove(part.path)
        if not self.who.one_of_many:
            for name in Path(self.directory).glob("told-*"):
                name.unlink(missing_ok=True)


def _meeting() -> str:
    """Where ranks meet whose common parent is not ours: it started all of this machine's."""
    words = (os.environ.get("TORCHELASTIC_RUN_ID", ""), os.environ.get("MASTER_PORT", ""))
    name = f"zerograd-{getpass.getuser()}-{os.getppid()}-{'-'.join(filter(None, words))}"
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
