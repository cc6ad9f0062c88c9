"""`%load_ext zerograd`: every cell that trains is checked before it runs, and watched while it runs.

One watch is open from `%load_ext` to `%zerograd off`, because gradients stay from one cell to the next.
Findings are shown below the cell that runs: those of the check at once, those of the watch as they
happen, with their counts when the cell has ended. Nothing here may disturb the cell.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

from zerograd.core.finding import Finding, Place, Report
from zerograd.core.interruptions import Tolerating
from zerograd.core.records import replace
from zerograd.core.wording import counted
from zerograd.launch.launch import Finder
from zerograd.report import text
from zerograd.runtime.notebook_cells import IN_KERNEL, NOTEBOOK, history
from zerograd.runtime.patches import Unsupported
from zerograd.runtime.watch import Watch
from zerograd.static.check_file import check_cells
from zerograd.static.read.prefilter import worth_parsing

USAGE = """\
%zerograd on        check and watch the cells that train (the state after %load_ext zerograd)
%zerograd off       stop that
%zerograd status    what is watched, and what was found so far
%%zerograd run      check and watch this cell, also when it is off, and show what was watched"""
_OPEN: list[NotebookWatch] = []
"""The extension of this process; there is at most one."""


def load(shell: Any) -> None:
    """What `%load_ext zerograd` does."""
    if not hasattr(shell, "events") or not hasattr(shell, "register_magic_function"):
        raise RuntimeError(
            "%load_ext zerograd needs the shell of IPython; elsewhere, use zerograd.watch()"
        )
    if not _OPEN:
        _OPEN.append(NotebookWatch(shell))
        _OPEN[0].load()


def unload(shell: Any) -> None:
    """What `%unload_ext zerograd` does."""
    while _OPEN:
        _OPEN.pop().unload()


class NotebookWatch:
    """Follows the cells of one shell."""

    def __init__(self, shell: Any) -> None:
        self._shell = shell
        self._finder = Finder(self)
        self._watch = Watch("collect", on_finding=self._found)
        self._as_program = NOTEBOOK.path != IN_KERNEL
        """`zerograd run` runs the notebook, and reports what it finds itself."""
        self._on = False
        self._watching = False
        self._cells: dict[str, tuple[int, str]] = {}
        """The executed cells, the latest last: number and text, by the id of the cell, or by its text."""
        self._reported: set[Place] = set()
        """What the check has reported so far."""
        self._output = Output(shell)
        self._checked: list[Finding] = []
        """What the check has found in the cell that runs."""
        self._sources = Report().sources
        self._before: dict[Place, int] = {}
        """How often the watch had seen each finding when the cell began."""
        self._depth = 0
        """Cell magics run cells inside cells."""

    def load(self) -> None:
        """Listen to the shell, and begin."""
        self._shell.register_magic_function(self.line_magic, "line", "zerograd")
        self._shell.register_magic_function(self.cell_magic, "cell", "zerograd")
        self._shell.events.register("pre_run_cell", self._begins)
        self._shell.events.register("post_run_cell", self._ended)
        self._output.listen()
        self._begin()

    def unload(self) -> None:
        """Leave everything as it was."""
        self._end()
        self._output.leave()
        self._shell.events.unregister("pre_run_cell", self._begins)
        self._shell.events.unregister("post_run_cell", self._ended)
        for kind in ("line", "cell"):
            self._shell.magics_manager.magics[kind].pop("zerograd", None)

    # Magics

    def line_magic(self, line: str) -> None:
        """`%zerograd on|off|status`."""
        argument = line.strip()
        if argument == "on":
            self._begin()
        elif argument == "off":
            self._end()
            self._show()
        elif argument == "status":
            print(self._status())  # noqa: T201  # a magic prints
        else:
            raise _usage(f"%zerograd {argument}".strip())

    def cell_magic(self, line: str, cell: str) -> None:
        """`%%zerograd run`."""
        __tracebackhide__ = True  # IPython shows only the lines of the user
        if line.strip() != "run":
            raise _usage(f"%%zerograd {line.strip()}".strip())
        if self._as_program:
            self._run_cell(cell).raise_error()
            return
        was_on, steps = self._on, self._watch.steps
        self._begin()
        if not was_on:
            self._check(len(history(self._shell)) - 1, f"%%zerograd run\n{cell}", "")
        try:
            result = self._run_cell(cell)
        finally:
            steps = self._watch.steps - steps
            if not was_on:
                self._end()
        report = self._report()
        shown = f"watched {counted(steps, 'step')}: {text.summary(report)}"
        self._output.show(report, shown)
        result.raise_error()

    def _run_cell(self, cell: str) -> Any:
        """Run the cell of a magic. Its exception is not shown: it is when the magic raises it."""
        self._shell._showtraceback = lambda *_: None  # noqa: SLF001 (there is no public way)
        try:
            return self._shell.run_cell(cell)
        finally:
            del self._shell._showtraceback  # noqa: SLF001

    def _status(self) -> str:
        if self._as_program:
            return "zerograd run watches this notebook"
        if not self._on:
            return "zerograd is off; %zerograd on starts it"
        if not self._watching:
            return "zerograd is on, and waits until torch is imported"
        found = text.summary(Report(self._watch.report.findings))
        return f"zerograd is on: watched {counted(self._watch.steps, 'step')}, {found}"

    # The watch

    def _begin(self) -> None:
        if self._on or self._as_program:
            return
        self._on = True
        if "torch" in sys.modules:
            self.torch_imported()
        else:
            sys.meta_path.insert(0, self._finder)

    def _end(self) -> None:
        self._on = False
        self._finder.leave()
        if self._watching:
            self._watching = False
            self._watch.stop()

    def torch_imported(self) -> None:
        """Begin to watch: something has imported torch."""
        if self._on and not self._watching:
            try:
                self._watch.start()
                self._watching = True
                self._before = {}
            except Unsupported as error:
                sys.stderr.write(f"zerograd: {error}\n")

    def torch_missing(self) -> None:
        """Without torch there is nothing to watch."""

    # Cells

    def _begins(self, info: Any) -> None:
        """A cell is about to run."""
        self._depth += 1
        if self._depth > 1:
            return
        self._checked = []
        self._before = {one.place: one.seen or 0 for one in self._watch.report.findings}
        self._output.begin()
        code = info.raw_cell or ""
        if self._on and not code.lstrip().startswith(("%zerograd", "%%zerograd")):
            with Tolerating(Exception):
                # The cell is not in the history yet.
                number = len(history(self._shell)) - (not info.store_history)
                self._check(number, code, getattr(info, "cell_id", None) or "")

    def _ended(self, result: Any) -> None:
        """A cell has run."""
        self._depth = max(0, self._depth - 1)
        if not self._depth:
            if not result.success:
                self._forget_latest()
            with Tolerating(Exception):
                self._show()

    def _forget_latest(self) -> None:
        """The cell has failed: read as one program, later cells would come after its exception."""
        if self._cells:
            key, (number, _) = next(reversed(self._cells.items()))
            if number == len(history(self._shell)) - 1:
                del self._cells[key]

    def _check(self, number: int, code: str, known_by: str) -> None:
        """Check the cells so far. Only what was not reported before is of interest."""
        key = known_by or code
        self._cells.pop(key, None)
        self._cells[key] = (number, code)
        joined = "\n".join(one for _, one in self._cells.values())
        if not worth_parsing(joined.encode("utf-8", "replace")):
            return
        report = check_cells(list(self._cells.values()), IN_KERNEL)
        fresh = [one for one in report.findings if one.place not in self._reported]
        self._reported.update(one.place for one in fresh)
        if fresh:
            self._checked += fresh
            self._sources = report.sources
            self._output.show(self._report())

    def _found(self, finding: Finding) -> None:
        """The watch has found something, or the same once more."""
        if finding.seen == 1 or finding.place not in self._before:
            with Tolerating(Exception):
                self._output.show(self._report())

    def _show(self) -> None:
        report = self._report()
        if report.findings or report.errors:
            self._output.show(report)

    def _report(self) -> Report:
        """What was found in the cell that runs: seen by the watch, or else by the check."""
        watched = self._watch.report
        seen = []
        for one in watched.findings:
            times = (one.seen or 0) - self._before.get(one.place, 0)
            if times > 0:
                seen.append(replace(one, seen=times))
        places = {one.place for one in seen}
        found = [one for one in self._checked if one.place not in places] + seen
        return Report(found, list(watched.errors), sources={**self._sources, **watched.sources})


class Output:
    """The output of the cell that runs: one report, which is replaced by its newer state."""

    def __init__(self, shell: Any) -> None:
        self._shell = shell
        self._handle: Any = None
        self._shown = ""
        self._closing = ""
        self._undo: Callable[[], object] | None = None

    def listen(self) -> None:
        """Notice when the cell clears its output: the report has to be shown again then."""
        publisher = self._shell.display_pub
        clear = publisher.clear_output

        def clears(*args: Any, **kwargs: Any) -> Any:
            self._handle, self._shown = None, ""
            return clear(*args, **kwargs)

        publisher.clear_output = clears
        self._undo = lambda: publisher.__dict__.pop("clear_output", None)

    def leave(self) -> None:
        """Do not listen any more."""
        if self._undo is not None:
            self._undo()
            self._undo = None

    def begin(self) -> None:
        """Another cell runs now."""
        self._handle, self._shown, self._closing = None, "", ""

    def show(self, report: Report, closing: str = "") -> None:
        """Show the report below the cell; on a terminal, what is new of it."""
        from IPython.display import display

        self._closing = closing or self._closing
        shown = _Shown(report, self._closing)
        if repr(shown) == self._shown:
            return
        self._shown = repr(shown)
        if getattr(self._shell, "kernel", None) is None:
            print(self._shown, file=sys.stderr)  # noqa: T201  # a terminal cannot replace what it shows
        elif self._handle is None:
            self._handle = display(shown, display_id=True)  # type: ignore[no-untyped-call]
        else:
            self._handle.update(shown)


class _Shown:
    """A report as IPython displays it."""

    def __init__(self, report: Report, closing: str) -> None:
        self._report = report
        self._closing = closing

    def __repr__(self) -> str:
        blocks = [text.block(one, self._report).rstrip("\n") for one in self._report.findings]
        blocks += [one.message for one in self._report.errors]
        return "\n\n".join([*blocks, *([f"zerograd {self._closing}"] if self._closing else [])])

    def _repr_html_(self) -> str:
        from zerograd.report import html_fragment

        return html_fragment.render(self._report, self._closing)


def _usage(said: str) -> Exception:
    from IPython.core.error import UsageError

    return UsageError(f"{said} is none of these:\n{USAGE}")
