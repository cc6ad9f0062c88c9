"""`zerograd run`, from its options to an exit code; and `zerograd merge`.

Findings are printed at once, on the standard error of the start of the program. Whatever happens to
the program or its streams, all findings so far are on the screen and in the files.
"""

from __future__ import annotations

import contextlib
import linecache
import logging
import os
import shutil
import sys
import threading
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace

from zerograd.core.atomic_write import atomic_write
from zerograd.core.finding import Finding, Place, Problem, Report
from zerograd.core.usage_error import UsageError
from zerograd.core.wording import counted
from zerograd.launch.launch import Ended, LaunchTarget
from zerograd.launch.launch import run as launch
from zerograd.processes.child_options import VARIABLE, ChildOptions, pass_on
from zerograd.processes.identity import identify
from zerograd.processes.merge import merged
from zerograd.processes.process_files import read
from zerograd.processes.run_process import RunProcess
from zerograd.recording.files import files, of_rank
from zerograd.recording.writer import Recorder, aside
from zerograd.report import text
from zerograd.rules.catalogue import PAGES
from zerograd.rules.selection import Selection, resolve
from zerograd.terminal.status_line import Live

Render = Callable[[Report], str]
COULD_NOT = 2
_VERDICT = (
    "zerograd: the program did not crash: exit code 1 is zerograd's verdict on its gradients, and the "
    "launcher may print a traceback for it; --exit-zero avoids both\n"
)


@dataclass(frozen=True)
class RunOptions:
    """The options of the command line."""

    program: LaunchTarget
    on: str = "warn"
    select: tuple[str, ...] | None = None
    ignore: tuple[str, ...] = ()
    output: str | None = None
    record: str | None = None
    live: bool = False
    """Show the state of the run in the terminal, if standard error is one."""
    home: str = field(default_factory=os.getcwd)
    """The working directory at the start. File names are relative to it, even if the program changes it."""
    color: bool | None = None
    """None means: if standard error is a terminal."""
    quiet: bool = False
    exit_zero: bool = False
    report_to_stdout: bool = False
    """Whether the report is for another program."""
    check_ranks: str = "default"
    ranks: str | None = None
    """The directory for the findings of all processes of the run."""
    only_findings: bool = False
    """No summary if there are no findings."""
    steps: int = 0
    """How many steps are watched; 0 is all."""
    ends: bool = False
    """After these steps the program ends; without it, the program goes on unwatched."""


@dataclass(frozen=True)
class RunOutcome:
    """How the run ended: the exit code, and whether by Ctrl-C."""

    code: int
    interrupted: bool = False
    leads: bool = True
    """Whether this process prints the report: only one of several ranks does."""
    recordings: tuple[str, ...] = ()
    """The path of the recording."""


def run(options: RunOptions, render: Render) -> RunOutcome:
    """Run a program and watch it. Raises `UsageError` if it cannot start."""
    # A second watch of this process, which its environment may ask for, does not begin.
    sys.meta_path[:] = [one for one in sys.meta_path if not getattr(one, "zerograd", False)]
    session = Session(options, render)
    try:
        ended = launch(options.program, session)
    except UsageError:
        session.abandon()
        raise
    return session.close(ended)


class Session:
    """One process of a run. It is notified of torch and of findings, and the leader prints the summary."""

    def __init__(self, options: RunOptions, render: Render) -> None:
        from zerograd.runtime.watch import Watch

        self._selection = run_selection(options.select, options.ignore)
        try:
            self._process = RunProcess(options.program.name, options.ranks)
        except OSError as error:
            where = options.ranks or error.filename
            raise UsageError(f"{where} cannot be written: {error.strerror}") from None
        if not self._process.leads:
            options = replace(options, output=None, report_to_stdout=False)
        self._options = options
        self._here = os.getcwd()
        self._pid = os.getpid()
        self._console = _Console(2)
        self._stdout = _Console(1) if options.report_to_stdout and not options.output else None
        color = options.color
        self._color = self._console.terminal if color is None else color
        self._render = render
        self._started = False
        self._problems: list[Problem] = []
        self._reported: set[Place] = set()
        """What was printed in full."""
        self._output = _Output(options.output) if options.output else None
        self._recorder = _recorder(options.record, options.program.name)
        codes = sorted(self._selection.codes)
        self._watch = Watch(
            options.on,
            codes,
            on_finding=self._report,
            record=self._recorder,
            check_ranks=options.check_ranks,
            process=self._process,
            most_steps=options.steps,
            on_enough=self._enough,
        )
        self._early: Report | None = None
        """The report, if the watch has ended before the program."""
        self._live: Live | None = None
        self._closed = False
        self._pass_options_on(codes)
        if hasattr(os, "register_at_fork"):
            os.register_at_fork(after_in_child=self._forked)
        if self._output:
            self._output.write(render(Report()))
            if self._output.problem:
                raise UsageError(f"{options.output} {self._output.problem}")

    def _pass_options_on(self, codes: Sequence[str]) -> None:
        """Watch the processes that the program starts, too."""
        options = self._options
        self._environment = {name: os.environ.get(name) for name in (VARIABLE, "PYTHONPATH")}
        record = None if options.record is None else os.path.abspath(options.record)
        pass_on(
            ChildOptions(
                self._process.directory,
                options.on,
                tuple(codes),
                options.check_ranks,
                self._color,
                record,
                options.steps,
                options.ends,
            )
        )

    def _forked(self) -> None:
        """This process was forked from the one that started the session."""
        if self._closed:
            return
        self._process.forked()
        self._output = self._stdout = None
        self._watch.forked()

    def _at_end_of_worker(self) -> None:
        """Called in a process of multiprocessing, which ends without python's exit handlers."""
        from multiprocessing.util import Finalize

        Finalize(None, self.close, (Ended(0, clean=False),), exitpriority=0)

    def torch_imported(self) -> None:
        """Start watching."""
        from multiprocessing.util import register_after_fork

        from zerograd.runtime.patches import Unsupported

        try:
            self._watch.start()
            self._started = True
            self._show()
            register_after_fork(self, Session._at_end_of_worker)
        except Unsupported as error:
            self._trouble(str(error))
        except Exception as error:  # noqa: BLE001  # a fault of ours never stops the program
            self._trouble(f"zerograd could not start the watch: {error!r}; report this as a bug")

    def _show(self) -> None:
        """Show the status lines, if there is a terminal."""
        console, watch = self._console, self._watch
        if self._options.live and console.terminal and os.environ.get("TERM") != "dumb":
            look, found = watch.glance, lambda: watch.report.findings
            self._live = Live(console.fd, console.draw, look, found, color=self._color)
            self._live.start()

    def torch_missing(self) -> None:
        """Without torch, nothing can be watched."""
        self._trouble(f"torch is not installed for {sys.executable}, so nothing is watched")

    def _trouble(self, message: str) -> None:
        problem = Problem(self._options.program.name, message)
        if problem not in self._problems:
            self._problems.append(problem)

    def _enough(self) -> None:
        """The last of the `--steps` was watched: report, and let the program go on, or end it."""
        from zerograd.runtime.watch import Enough

        if self._live is not None and os.getpid() == self._pid:
            self._live.stop()
            self._live = None
        self._early = self._stopped(Ended(0, clean=False))
        if self._options.ends:
            raise Enough(0)
        if self._is_alone:
            self._sum_up(self._early)
            self._hand_out(self._early)
            if not self._options.quiet:
                self._console.write(
                    f"zerograd: {self._options.program.name} goes on unwatched, after "
                    f"{counted(self._options.steps, 'step')}\n"
                )

    @property
    def _is_alone(self) -> bool:
        """Whether no other process has findings for the report."""
        return (
            self._process.leads and not self._process.identity.one_of_many and self._process.alone
        )

    def _report(self, finding: Finding) -> None:
        """Print the finding at once, and update the files."""
        report = self._watch.report
        self._process.found(finding)
        if finding.place not in self._reported and self._process.first_to_report(finding):
            self._add_sources(report)
            if self._options.on != "collect":
                alone = replace(finding, seen=None)
                self._console.write(text.block(alone, report, color=self._color))
        self._reported.add(finding.place)
        if self._output:
            self._output.write(self._render(report))

    def _add_sources(self, report: Report) -> None:
        """The source lines around each site, even if the program has changed its directory."""
        for finding in report.findings:
            for site in (finding.site, *(note.site for note in finding.notes)):
                if site.cell is None and not report.sources.get(site.path):
                    lines = linecache.getlines(os.path.join(self._here, site.path))
                    report.sources[site.path] = [line.rstrip("\n") for line in lines]

    def abandon(self) -> None:
        """The program was not run."""
        if self._recorder:
            self._recorder.close()
        self._leave()

    def _leave(self) -> None:
        """End the session, and remove its environment variables."""
        self._closed = True
        self._process.close()
        for name, value in self._environment.items():
            if value is not None:
                os.environ[name] = value
            else:
                os.environ.pop(name, None)

    def close(self, ended: Ended) -> RunOutcome:
        """Stop watching, print the summary, and return the exit code."""
        if self._live is not None and os.getpid() == self._pid:
            self._live.stop()
        worker = self._started and not self._process.leads and self._watch.idle
        if self._closed or (worker and not self._process.opened):
            # This process did not train.
            return RunOutcome(ended.code, ended.interrupted, leads=False)
        reported = self._early is not None and not self._options.ends and self._is_alone
        report = self._early or self._stopped(ended)
        self._process.ended(report, clean=ended.clean)
        if not ended.clean and not self._process.formed:
            self._never_met()
        if not self._process.leads:
            self._leave()
            return RunOutcome(ended.code, ended.interrupted, leads=False)  # another one reports
        complete = self._process.wait()
        report = self._with_others(report)
        if not reported:
            self._sum_up(report)
            self._hand_out(report)
        if not complete:
            self._process.kept = True
            self._console.write(
                "zerograd: some ranks have not ended yet; after their end, run"
                f" zerograd merge {self._process.directory}\n"
            )
        self._leave()
        # A launcher stops the remaining ranks when one ends with an error.
        judged = ended.code & 0xFF == 0 and complete
        code = self._verdict(report) if judged else ended.code
        return RunOutcome(code, ended.interrupted, recordings=self._recordings())

    def _verdict(self, report: Report) -> int:
        """The exit code of a program that has ended without an error of its own."""
        failed = not self._options.exit_zero and fails(report, self._selection)
        if failed and self._process.identity.one_of_many:
            self._console.write(_VERDICT)
        return COULD_NOT if report.errors else int(failed)

    def _recordings(self) -> tuple[str, ...]:
        if self._recorder is None or self._options.record is None:
            return ()
        path = os.path.join(self._here, self._options.record)
        return tuple(files(path, self._recorder.began))

    def _never_met(self) -> None:
        """The program has failed, maybe because it could not reach the other ranks."""
        now = self._process.identity
        if now.one_of_many:
            self._console.write(
                f"zerograd: rank {now.rank} of {now.world} ended before the ranks formed a process "
                "group, so ranks were not compared; the error above comes from the program\n"
            )

    def _with_others(self, report: Report) -> Report:
        """The findings of all processes of the run."""
        process = self._process
        if process.identity.one_of_many:
            report = merged(read(process.directory))
        elif not process.alone:
            report = merged(process.others(), report, process.rank)
        self._add_sources(report)
        return report

    def _stopped(self, ended: Ended) -> Report:
        try:
            report = self._watch.stop(clean=ended.clean) if self._started else Report()
        except Exception as error:  # noqa: BLE001  # a fault of ours never costs what was found
            report = self._watch.report
            self._trouble(f"zerograd could not stop the watch: {error!r}; report this as a bug")
        if self._recorder:
            self._recorder.close(clean=ended.clean)
        report.errors[:0] = self._problems if not self._started else ()
        self._add_sources(report)
        return report

    def _sum_up(self, report: Report) -> None:
        name = self._options.program.name
        if self._recorder and self._recorder.problem:
            path, problem = self._options.record, self._recorder.problem
            self._console.write(f"zerograd: {path} does not contain the whole run: {problem}\n")
        with contextlib.suppress(Exception):  # the program may have configured its own logging
            logging.getLogger("zerograd").info("%s: %s", name, text.summary(report))
        if self._options.only_findings and not report.findings and not report.errors:
            return
        if self._options.quiet:
            for one in report.errors:
                self._console.write(f"{text.problem(one, color=self._color)}\n")
            return
        if not self._started and not report.errors and report.watched is None:
            self._console.write(f"zerograd: {name} never imported torch: nothing to watch\n")
            return
        if self._options.on == "collect":
            for finding in report.findings:
                self._console.write(text.block(finding, report, color=self._color))
        self._console.write(text.closing(report, name, color=self._color))

    def _hand_out(self, report: Report) -> None:
        rendered = ""
        if self._output or self._stdout:
            rendered = self._render(report)
        if self._stdout:
            self._stdout.write(rendered)
        if self._output:
            self._output.write(rendered, last=True)
            if self._output.problem:
                report.errors.append(Problem(self._output.path, self._output.problem))
                self._console.write(f"zerograd: {self._output.path} {self._output.problem}\n")


def _recorder(path: str | None, program: str) -> Recorder | None:
    if path is None:
        return None
    now = identify()
    if now.one_of_many:
        path = of_rank(path, now.rank or 0)
    try:
        return Recorder(os.path.abspath(path), program=program, rank=now.rank)
    except OSError as error:
        raise UsageError(f"{path} cannot be written: {error.strerror}") from None


def run_selection(select: Iterable[str] | None, ignore: Iterable[str]) -> Selection:
    """The selected rules. Raises `UsageError` for a name that is not a rule."""
    selection = resolve(select, ignore, PAGES)
    here = frozenset(page.code for page in PAGES if page.only != "static")
    if not selection.codes & here:
        raise UsageError("--select and --ignore leave no rule that applies to a run")
    return Selection(selection.codes & here, selection.explicit & here)


def fails(report: Report, selection: Selection) -> bool:
    """Whether the findings contain an error, or advice that was selected."""
    return any(one.level == "error" or one.code in selection.explicit for one in report.findings)


def merge(
    directories: Iterable[str], select: Iterable[str] | None, ignore: Iterable[str]
) -> tuple[Report, Selection]:
    """Merge the files of the processes of a run. Raises `UsageError`."""
    from zerograd.static.check_file import add_sources

    selection = run_selection(select, ignore)
    parts = []
    for directory in directories:
        try:
            found = read(directory)
        except OSError as error:
            raise UsageError(f"{directory} cannot be read: {error.strerror}") from None
        if not found:
            raise UsageError(
                f"{directory} contains no findings: `zerograd run --ranks DIR` writes them"
            )
        parts += found
    report = merged(parts)
    report.findings = [one for one in report.findings if one.code in selection.codes]
    add_sources(report)
    return report, selection


class _Console:
    """A copy of a stream from the start of the process, independent of what the program does."""

    def __init__(self, fd: int) -> None:
        stream = sys.stderr if fd == 2 else sys.stdout
        self._encoding = getattr(stream, "encoding", None) or "utf-8"
        self._lock = threading.RLock()
        self._original = self._fd = fd
        try:
            self._fd = aside(fd)
        except OSError:
            self._original = self._fd = -1  # the stream was closed before the start
        self.terminal = self._fd >= 0 and os.isatty(self._fd)
        if hasattr(os, "register_at_fork"):
            os.register_at_fork(after_in_child=self._forked)

    def _forked(self) -> None:
        # A child process that outlives this one must not keep the stream open.
        self._lock = threading.RLock()
        if self._fd != self._original:
            with contextlib.suppress(OSError):
                os.close(self._fd)
            self._fd = self._original

    @property
    def fd(self) -> int:
        """The file descriptor."""
        return self._fd

    def draw(self, text: str) -> None:
        """Write at once, with one call, independent of the output of the program."""
        with self._lock, contextlib.suppress(OSError):
            os.write(self._fd, text.encode(self._encoding, "replace"))

    def write(self, text: str) -> None:
        """Write after the output of the program so far. A closed pipe is ignored."""
        with self._lock, contextlib.suppress(OSError):
            for stream in (sys.stdout, sys.stderr):
                with contextlib.suppress(Exception):
                    stream.flush()
            data = text.encode(self._encoding, "backslashreplace")
            while data:
                data = data[os.write(self._fd, data) :]


class _Output:
    """The file of `--output`. It is complete at every moment, and updated at every finding."""

    def __init__(self, path: str) -> None:
        self.path = path
        self.problem = ""
        self._device = os.path.exists(path) and not os.path.isfile(path) and not os.path.isdir(path)
        self._real = os.path.abspath(path) if self._device else os.path.realpath(path)

    def write(self, text: str, *, last: bool = False) -> None:
        """Replace the file. A device or a pipe is written once, at the end."""
        self.problem = ""
        if self._device and not last:
            return
        try:
            with open(self._real, "wb") if self._device else atomic_write(self._real) as stream:
                stream.write(text.encode("utf-8", "backslashreplace"))
                if os.path.isfile(self._real):
                    shutil.copymode(self._real, stream.name)
        except OSError as error:
            self.problem = f"cannot be written: {error.strerror}"
