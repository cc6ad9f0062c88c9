"""Runs a notebook as a program, cell by cell, as Jupyter does.

With IPython, magics do what they do in Jupyter. Without it, they are left out, with a message. The output goes to
the terminal: the notebook file does not change.
"""

from __future__ import annotations

import linecache
import sys
from collections.abc import Callable
from types import ModuleType
from typing import Any

from zerograd.runtime.notebook_cells import NOTEBOOK
from zerograd.static.read.load import read
from zerograd.static.read.source import Cell, Source


def prepare(path: str, shown: str, main: ModuleType) -> Callable[[], object]:
    """The function that runs a notebook in a module. Raises `Unreadable` if the file is not a notebook."""
    source = read(path)
    NOTEBOOK.path = shown
    run = _plain if _no_ipython() else _with_ipython
    return lambda: run(source, main)


def _no_ipython() -> bool:
    from importlib.util import find_spec

    return find_spec("IPython") is None


def _with_ipython(source: Source, main: ModuleType) -> None:
    from IPython.core.interactiveshell import InteractiveShell
    from traitlets.config import Config

    # The history of the user's own sessions stays as it is.
    settings = Config({"HistoryManager": {"hist_file": ":memory:"}})
    shell: Any = InteractiveShell.instance(config=settings, user_module=main, colors="nocolor")
    for cell in source.cells or ():
        code = "\n".join(cell.lines)
        if not code.strip():
            continue
        NOTEBOOK.numbers[len(shell.history_manager.input_hist_raw)] = cell.number
        result = shell.run_cell(code, store_history=True)
        if result.error_in_exec is not None or result.error_before_exec is not None:
            raise _Stopped(result.error_in_exec or result.error_before_exec)


class _Stopped(SystemExit):
    """A cell has failed, and IPython has shown why."""

    def __init__(self, error: BaseException) -> None:
        super().__init__(error.code if isinstance(error, SystemExit) else 1)


def _plain(source: Source, main: ModuleType) -> None:
    lines = source.lines
    for cell in source.cells or ():
        python = lines[cell.start - 1 : cell.start - 1 + len(cell.lines)]
        if not any(python) and not "\n".join(cell.lines).lstrip().startswith("%%"):
            python = list(cell.lines)  # its syntax is broken, which Python says best
        _say_what_is_left_out(cell, python)
        name = f"<cell {cell.number} of {source.path}>"
        NOTEBOOK.names[name] = cell.number
        code = "\n".join(python)
        linecache.cache[name] = (len(code), None, [f"{line}\n" for line in python], name)
        compiled = compile(code, name, "exec", dont_inherit=True)
        exec(compiled, main.__dict__)  # noqa: S102  # the user asked for it


def _say_what_is_left_out(cell: Cell, python: list[str]) -> None:
    for line, left in zip(cell.lines, python, strict=True):
        if line != left:
            sys.stderr.write(
                f"zerograd: cell {cell.number}: `{line.strip()}` is left out: IPython is not installed\n"
            )
