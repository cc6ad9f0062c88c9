"""Checks many files with several processes: every file gets a result, even if a process dies.

A process that dies, or takes longer than a file may take, loses only the file it was checking. A short
check starts no process.
"""

from __future__ import annotations

import contextlib
import gc
import os
import signal
import sys
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from operator import attrgetter
from typing import TYPE_CHECKING, Any, NamedTuple

from zerograd.check.discover import stamp_of
from zerograd.core.finding import Finding, Problem
from zerograd.static.check_file import CLEAN, FileResult, result_for_file
from zerograd.static.read.load import read_bytes
from zerograd.static.read.source import Unreadable
from zerograd.static.time_limit import LIMIT, TOO_LONG

if TYPE_CHECKING:
    from multiprocessing.connection import Connection

    Pipe = Connection[Any, Any]

GRACE = 18.0
"""Seconds after the time limit until a process that ignores its alarm is killed. On a busy machine a
second of computing can take long."""
PATIENCE = 20.0
"""Seconds that a process may need to read a chunk of files, slow disks included."""
CHUNK = 64
MOMENT = 0.2
"""Seconds after which it pays to start more processes."""

_FORKS = sys.platform == "linux"
_DIED = "ended the process that checked it; exclude it, and report this as a bug in zerograd"

Progress = Callable[[int, int], object]
"""It is called with the number of finished files, and the number of all files."""


class Job(NamedTuple):
    """A file to check, and whether the user has named it: such a file is always parsed."""

    path: str
    named: bool = False
    explain: bool = False
    stamp: tuple[int, int] | None = None
    """The stamp of the file, if its certain findings get their fixes in the worker, where imports are still parsed."""


GetJob = Callable[[int], Job]
"""Makes the job of a file, by its number: there may be a hundred thousand."""


class _Span:
    """Neighbouring files that are still to be checked."""

    def __init__(self, numbers: range) -> None:
        self.numbers = numbers

    def take(self, count: int) -> range:
        """Remove the first of them from the span; returns them."""
        taken, self.numbers = self.numbers[:count], self.numbers[count:]
        return taken

    def second_half(self) -> range:
        """Remove the second half of them from the span; returns it."""
        half = len(self.numbers) // 2
        taken, self.numbers = self.numbers[half:], self.numbers[:half]
        return taken


def check_all(job: GetJob, number: int, processes: int, progress: Progress) -> Iterator[FileResult]:
    """The results for so many files, in order."""
    start = time.monotonic()
    for at in range(number):
        if processes > 1 and time.monotonic() - start > MOMENT:
            pool = _Pool(job, range(at, number), progress)
            try:
                yield from pool.run(processes)
            finally:
                pool.end()
            return
        one = job(at)
        result = result_for_file(one.path, named=one.named, explain=one.explain)
        yield _with_fixes(one, result) if result.findings else result
        progress(at + 1, number)


def _with_fixes(
    job: Job, result: FileResult, begin: Callable[[], object] | None = None
) -> FileResult:
    """The result, with a fix for each certain finding if the job asks for fixes; `begin` is called before each attempt."""
    if job.stamp is None or not any(map(_CERTAIN, result.findings)):
        return result
    from zerograd.fix.document import Document
    from zerograd.fix.repair import Tries, with_fixes

    try:
        document = Document(job.path, read_bytes(job.path))
        if stamp_of(os.stat(job.path)) != job.stamp:
            return result  # it is the result for a text that is gone
    except (OSError, Unreadable):
        return result
    return with_fixes(document, result, _CERTAIN, Tries(begin=begin))


_CERTAIN: Callable[[Finding], bool] = attrgetter("certain")


def _serve(pipe: Pipe, strangers: Sequence[Pipe]) -> None:
    """The main function of a process: check chunks of files until there are no more."""
    # Syntax trees are many objects and no garbage: the collector would take a tenth of the time.
    # `Project.forget` breaks the few cycles there are.
    gc.disable()
    # The parent handles Ctrl-C and ends us. The fork has copied its ends of all pipes: left open here,
    # they would keep us and our siblings from noticing that the parent has died.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    for stranger in strangers:
        stranger.close()
    with contextlib.suppress(EOFError, OSError):
        while chunk := pipe.recv():
            unparsed = {}
            for number, job in chunk:
                begin = partial(pipe.send, (number, None))
                result = result_for_file(
                    job.path, named=job.named, begin=begin, explain=job.explain
                )
                if result.findings:
                    result = _with_fixes(job, result, begin)
                if result.unparsed:
                    unparsed[number] = result.unparsed
                elif result is not CLEAN:
                    pipe.send((number, result))
            pipe.send(unparsed)


class _Worker:
    """A process and the files it has to check."""

    def __init__(self, siblings: Sequence[_Worker], span: _Span) -> None:
        import multiprocessing

        # This program has one thread, so a fork is safe; and all modules are already imported.
        context: Any = multiprocessing.get_context("fork" if _FORKS else "spawn")
        self.pipe: Pipe
        self.pipe, theirs = context.Pipe()
        strangers = [self.pipe, *(one.pipe for one in siblings)] if _FORKS else []
        self.process = context.Process(target=_serve, args=(theirs, strangers), daemon=True)
        self.process.start()
        theirs.close()
        self.span = span
        self.chunk: dict[int, Job] = {}
        self.busy = False
        self.at: int | None = None
        self.since = time.monotonic()

    def give(self, chunk: dict[int, Job]) -> None:
        self.chunk, self.busy = chunk, True
        self.at, self.since = None, time.monotonic()
        # A dead process is noticed when its pipe is read.
        with contextlib.suppress(OSError):
            self.pipe.send(list(chunk.items()))

    def patience(self) -> float:
        """Seconds until its time is over."""
        allowed = PATIENCE if self.at is None else LIMIT + GRACE
        return max(0.0, self.since + allowed - time.monotonic())

    def end(self) -> None:
        self.process.kill()
        self.process.join()
        self.pipe.close()


class _Pool:
    """The processes, and the files that are still to be checked.

    Each process gets neighbouring files, because these import the same modules. A process that has
    finished takes half of what the slowest one has left.
    """

    def __init__(self, job: GetJob, numbers: range, progress: Progress) -> None:
        self.job = job
        self.numbers = numbers
        self.done = numbers.start
        self.progress = progress
        self.results = [CLEAN] * len(numbers)
        self.spans: list[_Span] = []
        self.lost: deque[dict[int, Job]] = deque()
        """Files of processes that died."""
        self.workers: list[_Worker] = []

    def end(self) -> None:
        """End every process."""
        for worker in self.workers:
            worker.end()

    def run(self, processes: int) -> list[FileResult]:
        """Check every file with this many processes."""
        from multiprocessing.connection import wait

        share = -(-len(self.numbers) // processes)
        starts = range(0, len(self.numbers), share)
        self.spans = [_Span(self.numbers[at : at + share]) for at in starts]
        for span in self.spans:
            self._start(span)
        while busy := [worker for worker in self.workers if worker.busy]:
            timeout = min(worker.patience() for worker in busy)
            ready = wait([worker.pipe for worker in busy], timeout)
            for worker in busy:
                if worker.pipe in ready:
                    self._listen(worker)
                elif not worker.patience():
                    self._lose(worker, TOO_LONG)
            self.progress(self.done, self.numbers.stop)
        return self.results

    def _put(self, number: int, result: FileResult) -> None:
        self.results[number - self.numbers.start] = result
        self.done += 1

    def _start(self, span: _Span) -> None:
        if chunk := self._next(span):
            worker = _Worker(self.workers, span)
            self.workers.append(worker)
            worker.give(chunk)

    def _next(self, span: _Span) -> dict[int, Job]:
        """The next files for a process; none if nothing is left."""
        if self.lost:
            return self.lost.popleft()
        if not span.numbers:
            span.numbers = max(self.spans, key=lambda one: len(one.numbers)).second_half()
        # Small chunks at the end keep all processes busy.
        size = max(1, min(CHUNK, len(span.numbers) // 8))
        return {number: self.job(number) for number in span.take(size)}

    def _listen(self, worker: _Worker) -> None:
        try:
            message = worker.pipe.recv()
        except (EOFError, OSError):
            self._lose(worker, _DIED)
            return
        worker.since = time.monotonic()
        if isinstance(message, dict):
            # A file without a message is clean.
            for at in worker.chunk:
                self._put(at, FileResult(unparsed=message[at]) if at in message else CLEAN)
            worker.busy = False
            if chunk := self._next(worker.span):
                worker.give(chunk)
            return
        number, result = message
        worker.at = number
        if result is not None:
            self._put(number, result)
            worker.at = None
            del worker.chunk[number]

    def _lose(self, worker: _Worker, why: str) -> None:
        """Replace a dead process: report the file it was checking, and give its other files to a new one."""
        self.workers.remove(worker)
        worker.end()
        rest = worker.chunk
        culprit = worker.at
        if culprit is None and len(rest) == 1:
            culprit = next(iter(rest))
        if culprit is not None:
            job = rest.pop(culprit)
            self._put(culprit, FileResult(problems=(Problem(job.path, why),), lasting=False))
        # If that file is unknown, they are checked one by one.
        parts = [rest] if worker.at is not None else [{one: job} for one, job in rest.items()]
        self.lost.extendleft(part for part in parts if part)
        self._start(worker.span)
