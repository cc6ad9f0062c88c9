"""Finds the user's call above a frame, fast enough to do it for every event.

A call is known by the code object and the instruction of the innermost frame that is not torch's and
not ours. Its path and line are worked out once.
"""

from __future__ import annotations

import functools
import os
import sys
import sysconfig
from types import CodeType, FrameType
from typing import Any

from zerograd.core.events import Site
from zerograd.core.interruptions import interrupts
from zerograd.core.records import replace
from zerograd.runtime.notebook_cells import NOTEBOOK, Spot

OURS = os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + os.sep
NOWHERE = Site("<unknown>", 1)

Position = tuple[Any, int]
"""A code object, and an instruction in it."""
_Spot = tuple[int, int]
"""The identity of a code object, which would be slow to hash, and an instruction."""

USER, LIBRARY, HIDDEN = 2, 1, 0


@functools.cache
def _libraries() -> tuple[str, ...]:
    """Where libraries are installed."""
    paths = sysconfig.get_paths()
    # A virtual environment may be inside the user's project, or the project inside the environment.
    return tuple(
        {os.path.realpath(paths[key]) + os.sep for key in ("stdlib", "purelib", "platlib")}
    )


def is_installed(path: str) -> bool:
    """Whether a file is one of a library."""
    return path.startswith(_libraries()) or "site-packages" in path


class Bottom:
    """What is above the first frame of a thread that does not begin in Python."""

    f_code = compile("", "<frozen bottom>", "exec")
    f_lasti = -1
    f_back = None


def no_frame(error: ValueError) -> Any:
    """In the place of a frame that does not exist; an error that a signal handler has raised goes on."""
    if interrupts(error):
        raise error
    return Bottom


class CallSites:
    """The calls seen so far."""

    def __init__(self, torch_home: str, here: str) -> None:
        self._hidden = (OURS, torch_home + os.sep, "<frozen ")
        self._kinds: dict[int, int] = {}
        self._codes: dict[int, CodeType] = {}
        self._sites: dict[_Spot, Site] = {}
        self._ways: dict[tuple[_Spot, tuple[_Spot, ...]], Site] = {}
        self._here = here

    def site(self, frame: FrameType | None) -> Site:
        """The user's call above a frame; if there is none, the innermost call of a library."""
        kinds = self._kinds
        way: list[_Spot] = []
        while frame is not None:
            code = frame.f_code
            kind = kinds.get(id(code))
            if kind is None:
                kind = self._kind(code)
            if kind:
                spot = (id(code), frame.f_lasti)
                if kind == LIBRARY:
                    way.append(spot)
                elif way:
                    return self._inside(spot, tuple(way))
                else:
                    return self._sites.get(spot) or self._place(spot)
            frame = frame.f_back
        return self._place(way[0]) if way else NOWHERE

    def outside_torch(self, frame: Any) -> Any:
        """The innermost frame, from this one up, that is not torch's and not ours."""
        while frame is not None and self._kinds.get(id(frame.f_code)) == HIDDEN:
            frame = frame.f_back
        return frame

    def is_users(self, frame: FrameType) -> bool:
        """Whether a frame is the user's own. Its site must have been asked for before."""
        return self._kinds.get(id(frame.f_code)) == USER

    def position(self, frame: FrameType) -> Position | None:
        """The position of a frame that is the user's own; None for other frames."""
        return (frame.f_code, frame.f_lasti) if self.is_users(frame) else None

    def forget(self) -> None:
        """Forget all calls: a program that compiles code all the time must not make this grow."""
        for table in (self._kinds, self._codes, self._sites, self._ways):
            table.clear()

    def _inside(self, user: _Spot, way: tuple[_Spot, ...]) -> Site:
        """The user's call, together with the way of a library from there to torch."""
        site = self._ways.get((user, way))
        if site is None:
            there = self._place(way[0])
            via = f"{there.path}:{there.line}, way {len(self._ways) + 1}"
            site = self._ways[user, way] = replace(self._place(user), via=via)
        return site

    def _kind(self, code: CodeType) -> int:
        name = code.co_filename
        if name.startswith(self._hidden):
            kind = HIDDEN
        elif is_installed(name):
            kind = LIBRARY
        else:
            kind = USER
        self._kinds[id(code)] = kind
        self._codes[id(code)] = code  # kept alive, so that its identity stays its own
        return kind

    def _place(self, spot: _Spot) -> Site:
        known = self._sites.get(spot)
        if known is None:
            known = self._sites[spot] = self._decode(self._codes[spot[0]], spot[1])
        return known

    def _decode(self, code: CodeType, instruction: int) -> Site:
        path = code.co_filename
        spot = NOTEBOOK.locate(code)
        if spot is not None:
            return _in_cell(_decode(code, instruction, spot.cell.path), spot)
        if path.startswith(self._here + os.sep):
            path = os.path.relpath(path, self._here)
        return _decode(code, instruction, path)


def _in_cell(site: Site, spot: Spot) -> Site:
    end = site.end_line + spot.before if site.end_line else 0
    return replace(site, cell=spot.cell.number, line=site.line + spot.before, end_line=end)


def _decode(code: CodeType, instruction: int, path: str) -> Site:
    if sys.version_info >= (3, 11):
        for number, position in enumerate(code.co_positions()):
            if 2 * number == instruction:
                line, end_line, column, end_column = position
                if line is not None and column is not None:
                    return Site(path, line, column + 1, end_line or line, (end_column or 0) + 1)
    line = code.co_firstlineno
    for start, end, number_ in code.co_lines():
        if start <= instruction < end and number_ is not None:
            line = number_
    return Site(path, line)
