"""A process that is watched although nobody calls `zerograd run`: `boot/` makes it import this module.

Either a watched program has started it: then its findings go to a file, which the leader of the run reads. Or its
environment asks for it (`zerograd enable`): then it leads a run of its own.
"""

from __future__ import annotations

import atexit
import sys

from zerograd.launch.launch import Ended, Finder, LaunchTarget
from zerograd.launch.run_session import RunOptions, Session
from zerograd.processes.child_options import from_parent
from zerograd.processes.identity import identify
from zerograd.runtime.tracebacks import tidy


def listen() -> Finder | _Nobody:
    """Wait for the import of torch, and watch from then on."""
    inherited = from_parent()
    if inherited is None:
        return _Nobody()  # the run is over
    options = RunOptions(
        LaunchTarget(_name("a child process")),
        on=inherited.on,
        select=inherited.codes,
        record=inherited.record if identify().one_of_many else None,
        color=inherited.color,
        check_ranks=inherited.check_ranks,
        steps=inherited.steps,
        ends=inherited.ends,
    )
    return _waiting(options)


def begin(mode: str) -> Finder:
    """Wait for the import of torch in a program that its environment asks to watch."""
    return _waiting(
        RunOptions(LaunchTarget(_name("a program")), on=mode, only_findings=True, exit_zero=True)
    )


def _name(unknown: str) -> str:
    """What the program is called in the report."""
    return sys.argv[0] if sys.argv and sys.argv[0] not in ("-c", "-m", "") else unknown


def _waiting(options: RunOptions) -> Finder:
    session = Session(options, lambda _: "")
    finder = Finder(session)
    sys.meta_path.insert(0, finder)
    atexit.register(_end, session)
    shows = sys.excepthook

    def shows_without_us(kind: type[BaseException], error: BaseException, trace: object) -> None:
        tidy(error)
        shows(kind, error, error.__traceback__)

    sys.excepthook = shows_without_us
    return finder


def _end(session: Session) -> None:
    """Python is about to exit. An uncaught exception was printed before."""
    clean = getattr(sys, "last_value", None) is None
    session.close(Ended(0, clean=clean))


class _Nobody:
    """An import finder that finds nothing."""

    def find_spec(self, *_: object) -> None:
        """Leave it to the other finders."""
