"""Which cell of a notebook a piece of code is from: in a running kernel, or under `zerograd run NOTEBOOK`.

Kernels compile a cell under the name of a temporary file. IPython knows which cell that was.
"""

from __future__ import annotations

import linecache
import re
import sys
from dataclasses import dataclass, field
from types import CodeType
from typing import Any, NamedTuple

from zerograd.core.finding import CellKey
from zerograd.core.interruptions import Tolerating

IN_KERNEL = "notebook"
"""What a notebook is called in its own kernel, which does not know the name of the file."""
_NUMBER = re.compile(r"\[(\d+)\]")
_TIMED = ("<timed exec>", "<timed eval>")
"""What IPython calls the body of a cell under `%%time`."""


class Spot(NamedTuple):
    """The cell that code is from, and how many lines of the cell come before the code."""

    cell: CellKey
    before: int = 0


@dataclass
class Notebook:
    """The notebook that runs in this process."""

    path: str = IN_KERNEL
    numbers: dict[int, int] = field(default_factory=dict)
    """By execution count: the number of the cell in the file, where a file is run."""
    names: dict[str, int] = field(default_factory=dict)
    """By the name that it was compiled under: the number of a cell that was run without IPython."""
    shown: dict[CellKey, list[str]] = field(default_factory=dict)
    """The lines of cells that something has happened in, as the user wrote them."""
    python: dict[CellKey, list[str]] = field(default_factory=dict)
    """The same lines without IPython's own syntax."""

    def locate(self, code: CodeType) -> Spot | None:
        """The cell that code is from; None if it is from no cell."""
        name = code.co_filename
        if name in self.names:
            cell = CellKey(self.path, self.names[name])
            self._keep(cell, [], linecache.getlines(name), 0)
            return Spot(cell)
        shell = running_shell()
        if shell is None:
            return None
        with Tolerating(Exception):  # a shell of another version, or of another program
            return self._in_shell(shell, code)
        return None

    def _in_shell(self, shell: Any, code: CodeType) -> Spot | None:
        name = code.co_filename
        latest = len(history(shell)) - 1
        if name in _TIMED:
            raw = _raw(shell, latest)
            lines = raw[1:] if raw and raw[0].startswith("%%") else []
            at = code.co_firstlineno - 1
            found = latest if at < len(lines) and _begins(code, lines[at]) else None
        else:
            named = shell.compile.format_code_name(name)
            match = named and _NUMBER.search(named[1])
            if not match:
                return None
            lines = [line.rstrip("\n") for line in linecache.getlines(name)]
            # The body of a cell magic is not in the history, and has the number of the next cell.
            possible = (int(match[1]), int(match[1]) - 1, latest)
            found = next((one for one in possible if _is_in(lines, _raw(shell, one))), None)
        if found is None:
            return None
        raw = _raw(shell, found)
        before = max(0, len(raw) - len(lines)) if raw[0].startswith("%%") else 0
        cell = CellKey(self.path, self.numbers.get(found, found))
        self._keep(cell, raw, lines, before)
        return Spot(cell, before)

    def _keep(self, cell: CellKey, raw: list[str], lines: list[str], before: int) -> None:
        python = [""] * before + [line.rstrip("\n") for line in lines]
        self.python[cell] = python
        self.shown[cell] = raw if len(raw) >= len(python) else python


NOTEBOOK = Notebook()


def running_shell() -> Any:
    """IPython's shell, if this process runs one."""
    ipython = sys.modules.get("IPython")
    get = getattr(ipython, "get_ipython", None)
    return get() if get is not None else None


def history(shell: Any) -> list[str]:
    """The text of the executed cells, as the user wrote it; the first entry is not a cell."""
    found: list[str] = shell.history_manager.input_hist_raw
    return found


def _raw(shell: Any, count: int) -> list[str]:
    cells = history(shell)
    return cells[count].split("\n") if 0 < count < len(cells) else []


def _is_in(lines: list[str], raw: list[str]) -> bool:
    """Whether code can be from a cell: IPython changes only lines with its own syntax, and indentation."""
    there = {line.strip() for line in raw}
    return bool(raw) and all(
        line.strip() in there for line in lines if line.strip() and "get_ipython()" not in line
    )


def _begins(code: CodeType, line: str) -> bool:
    """Whether code can begin with this line: a function of an earlier cell has the same file name."""
    return code.co_name.startswith("<") or code.co_name in line or line.lstrip().startswith("@")
