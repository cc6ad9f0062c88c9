"""A process that a watched program has started. It is watched too, and writes its findings to a file.

The leader of the run prints them. `boot/` makes such a process import this module.
"""

from __future__ import annotations

import atexit
import sys

from zerograd.launch.launch import Ended, Finder, Program
from zerograd.launch.run_session import Options, Session
from zerograd.processes.child_options import from_parent
from zerograd.processes.identity import identify


def listen() -> Finder | _Nobody:
    """Wait for the import of torch, and watch from then on."""
    inherited = from_parent()
    if inherited is None:
        return _Nobody()  # the run is over
    name = sys.argv[0] if sys.argv and sys.argv[0] not in ("-c", "-m", "") else "a child process"
    options = Options(
        Program(name),
        on=inherited.on,
        select=inherited.codes,
        record=inherited.record if identify().one_of_many else None,
        color=inherited.color,
        check_ranks=inherited.check_ranks,
    )
    session = Session(options, lambda _: "")
    finder = Finder(session)
    sys.meta_path.insert(0, finder)
    atexit.register(_end, session)
    return finder


def _end(session: Session) -> None:
    """Python is about to exit. An uncaught exception was printed before."""
    clean = getattr(sys, "last_value", None) is None
    session.close(Ended(0, clean=clean))


class _Nobody:
    """An import finder that finds nothing."""

    def find_spec(self, *_: object) -> None:
        """Leave it to the other finders."""
