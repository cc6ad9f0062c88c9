"""`zerograd run` and `zerograd replay`, from the words of the command line to an exit code.

Findings are told at once on standard error, as it was when the program began: whatever becomes of
the program or of its streams, what was found so far is on the screen and in the files.
"""

from __future__ import annotations

import contextlib
import linecache
import os
import shutil
import sys
import threading
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace

from zerograd.core.finding import Finding, Problem, Report
from zerograd.launch.launch import Ended, NotThere, Program
from zerograd.launch.launch import run as launch
from zerograd.processes.identity import VARIABLE, Company, Orders, give, who
from zerograd.processes.merge import merged
from zerograd.processes.process_files import read
from zerograd.recording.files import files, of_rank
from zerograd.recording.writer import Recorder, aside
from zerograd.report import text
from zerograd.rules.catalogue import PAGES
from zerograd.rules.selection import Selection, resolve
from zerograd.terminal.status_line import Live

Render = Callable[[Report], str]
COULD_NOT = 2


class Refused(Exception):
    """The run cannot begin as asked for; the message says why, and the way out."""


@dataclass(frozen=True)
class Options:
    """What the command line asks for."""

    program: Program
    on: str = "warn"
    select: tuple[str, ...] | None = None
    ignore: tuple[str, ...] = ()
    output: str | None = None
    record: str | None = None
    live: bool = False
    """Show the run while it goes on, if standard error is a terminal."""
    home: str = field(default_factory=os.getcwd)
    """Where the program began: what it makes of that since, names of files are told from there."""
    color: bool | None = None
    """None: if standard error is a terminal."""
    quiet: bool = False
    exit_zero: bool = False
    report_to_stdout: bool = False
    """The report is for another program to read."""
    check_ranks: str = "default"
    ranks: str | None = None
    """The directory where the processes of the run leave what they find."""


@dataclass(frozen=True)
class Outcome:
    """How it ended: the exit code, and whether by Ctrl-C."""

    code: int
    interrupted: bool = False
    leads: bool = True
    """Whether this process speaks for the run: of several ranks only one does."""
    recordings: tuple[str, ...] = ()
    """Where the run is recorded."""


def run(options: Options, render: Render) -> Outcome:
    """Run a program and watch it; `Refused` or `UnknownRule` if it cannot even begin."""
    disarm()
    session = Session(options, render)
    try:
        ended = launch(options.program, session)
    except NotThere as error:
        session.abandon()
        raise Refused(str(error)) from None
    return session.close(ended)


def disarm() -> None:
    """This process is watched from here: not once more because of what it was told at its start."""
    sys.meta_path[:] = [one for one in sys.meta_path if not getattr(one, "zerograd", False)]


class Session:
    """One process of a run: hears of torch and of findings, and, if it leads, sums up."""

    def __init__(self, options: Options, render: Render) -> None:
        from zerograd.runtime.watch import Watch

        self._selection = chosen(options.select, options.ignore)
        try:
            self._company = Company(options.program.name, options.ranks)
        except OSError as error:
            where = options.ranks or error.filename
            raise Refused(f"{where} cannot be written: {error.strerror}") from None
        if not self._company.leads:
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
        self._output = _Output(options.output) if options.output else None
        self._recorder = _recorder(options.record, options.program.name)
        codes = sorted(self._selection.codes)
        self._watch = Watch(
            options.on,
            codes,
            tell=self._tell,
            record=self._recorder,
            check_ranks=options.check_ranks,
            company=self._company,
        )
        self._live: Live | None = None
        self._closed = False
        self._give_orders(codes)
        if hasattr(os, "register_at_fork"):
            os.register_at_fork(after_in_child=self._forked)
        if self._output:
            self._output.write(render(Report()))
            if self._output.problem:
                raise Refused(f"{options.output} {self._output.problem}")

    def _give_orders(self, codes: Sequence[str]) -> None:
        """Let what the program starts be watched, too."""
        options = self._options
        self._environment = {name: os.environ.get(name) for name in (VARIABLE, "PYTHONPATH")}
        record = None if options.record is None else os.path.abspath(options.record)
        give(
            Orders(
                self._company.directory,
                options.on,
                tuple(codes),
                options.check_ranks,
                self._color,
                record,
            )
        )

    def _forked(self) -> None:
        """This process is a child of the one that the session began in."""
        if self._closed:
            return
        self._company.forked()
        self._output = self._stdout = None
        self._watch.forked()

    def _at_end_of_worker(self) -> None:
        """Called where multiprocessing has started this process, which it ends without python's help."""
        from multiprocessing.util import Finalize

        Finalize(None, self.close, (Ended(0, clean=False),), exitpriority=0)

    def torch_imported(self) -> None:
        """Begin to watch."""
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
            self._trouble(f"zerograd could not begin to watch: {error!r}; report this as a bug")

    def _show(self) -> None:
        """Show the run while it goes on, where there is a terminal to show it on."""
        console, watch = self._console, self._watch
        if self._options.live and console.terminal and os.environ.get("TERM") != "dumb":
            look, found = watch.glance, lambda: watch.report.findings
            self._live = Live(console.fd, console.draw, look, found, color=self._color)
            self._live.start()

    def torch_missing(self) -> None:
        """There is nothing that could be watched."""
        self._trouble(f"torch is not installed for {sys.executable}, so nothing is watched")

    def _trouble(self, message: str) -> None:
        problem = Problem(self._options.program.name, message)
        if problem not in self._problems:
            self._problems.append(problem)

    def _tell(self, finding: Finding) -> None:
        """Say it at once, and bring the files up to date."""
        report = self._watch.report
        self._company.found(finding)
        if finding.seen == 1 and self._company.first_to_tell(finding):
            self._add_sources(report)
            alone = replace(finding, seen=None)
            self._console.write(text.block(alone, report, color=self._color))
        if self._output:
            self._output.write(self._render(report))

    def _add_sources(self, report: Report) -> None:
        """The lines around each site, wherever the program has gone since it began."""
        for finding in report.findings:
            for site in (finding.site, *(note.site for note in finding.notes)):
                if not report.sources.get(site.path):
                    lines = linecache.getlines(os.path.join(self._here, site.path))
                    report.sources[site.path] = [line.rstrip("\n") for line in lines]

    def abandon(self) -> None:
        """Nothing was run."""
        if self._recorder:
            self._recorder.close()
        self._leave()

    def _leave(self) -> None:
        """No more of this session; what it has put into the environment goes."""
        self._closed = True
        self._company.close()
        for name, value in self._environment.items():
            if value is not None:
                os.environ[name] = value
            else:
                os.environ.pop(name, None)

    def close(self, ended: Ended) -> Outcome:
        """Watch no more, sum up, and say with which code to end."""
        if self._live is not None and os.getpid() == self._pid:
            self._live.stop()
        worker = self._started and not self._company.leads and self._watch.idle
        if self._closed or (worker and not self._company.opened):
            return Outcome(ended.code, ended.interrupted, leads=False)  # it did not train
        report = self._stopped(ended)
        self._company.ended(report, clean=ended.clean)
        if not ended.clean and not self._company.formed:
            self._never_met()
        if not self._company.leads:
            self._leave()
            return Outcome(ended.code, ended.interrupted, leads=False)  # the summary is another's
        whole = self._company.wait()
        report = self._with_others(report)
        self._sum_up(report)
        self._hand_out(report)
        if not whole:
            self._company.kept = True
            told = "some ranks have not come to their end yet"
            self._console.write(f"zerograd: {told}: zerograd merge {self._company.directory}\n")
        self._leave()
        code = ended.code
        # A launcher stops the ranks that are still there when one ends in an error.
        if code & 0xFF == 0 and whole:
            failed = not self._options.exit_zero and fails(report, self._selection)
            code = COULD_NOT if report.errors else int(failed)
        return Outcome(code, ended.interrupted, recordings=self._recordings())

    def _recordings(self) -> tuple[str, ...]:
        if self._recorder is None or self._options.record is None:
            return ()
        path = os.path.join(self._here, self._options.record)
        return tuple(files(path, self._recorder.began))

    def _never_met(self) -> None:
        """The program has failed, maybe because the others did not come."""
        now = self._company.who
        if now.one_of_many:
            self._console.write(
                f"zerograd: rank {now.rank} of {now.world} has ended before the ranks had formed a "
                "process group, so nothing was compared; the error above is the program's own\n"
            )

    def _with_others(self, report: Report) -> Report:
        """What all processes of the run have found."""
        company = self._company
        if company.who.one_of_many:
            report = merged(read(company.directory))
        elif not company.alone:
            report = merged(company.others(), report, company.rank)
        self._add_sources(report)
        return report

    def _stopped(self, ended: Ended) -> Report:
        try:
            report = self._watch.stop(clean=ended.clean) if self._started else Report()
        except Exception as error:  # noqa: BLE001  # a fault of ours never costs what was found
            report = self._watch.report
            self._trouble(f"zerograd could not end its watch: {error!r}; report this as a bug")
        if self._recorder:
            self._recorder.close(clean=ended.clean)
        report.errors[:0] = self._problems if not self._started else ()
        self._add_sources(report)
        return report

    def _sum_up(self, report: Report) -> None:
        name = self._options.program.name
        if self._recorder and self._recorder.problem:
            path, problem = self._options.record, self._recorder.problem
            self._console.write(f"zerograd: {path} is not the whole run: {problem}\n")
        if self._options.quiet and not report.findings and not report.errors:
            return
        if not self._started and not report.errors and report.watched is None:
            self._console.write(f"zerograd: {name} never imported torch: nothing to watch\n")
            return
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
    now = who()
    if now.one_of_many:
        path = of_rank(path, now.rank or 0)
    try:
        return Recorder(os.path.abspath(path), program=program, rank=now.rank)
    except OSError as error:
        raise Refused(f"{path} cannot be written: {error.strerror}") from None


def chosen(select: Iterable[str] | None, ignore: Iterable[str]) -> Selection:
    """The rules that a run is judged by; `UnknownRule` if a word stands for none."""
    selection = resolve(select, ignore, PAGES)
    here = frozenset(page.code for page in PAGES if page.only != "static")
    if not selection.codes & here:
        raise Refused("--select and --ignore leave no rule that a run can break")
    return Selection(selection.codes & here, selection.explicit & here)


def fails(report: Report, selection: Selection) -> bool:
    """Whether there is an error among the findings, or advice that was asked for by name."""
    return any(one.level == "error" or one.code in selection.explicit for one in report.findings)


def merge(
    directories: Iterable[str], select: Iterable[str] | None, ignore: Iterable[str]
) -> tuple[Report, Selection]:
    """What the processes of a run have left; `Refused` or `UnknownRule` if nothing can be read."""
    from zerograd.static.check_file import add_sources

    selection = chosen(select, ignore)
    parts = []
    for directory in directories:
        try:
            found = read(directory)
        except OSError as error:
            raise Refused(f"{directory} cannot be read: {error.strerror}") from None
        if not found:
            raise Refused(f"{directory} holds no findings: `zerograd run --ranks DIR` leaves some")
        parts += found
    report = merged(parts)
    report.findings = [one for one in report.findings if one.code in selection.codes]
    add_sources(report)
    return report, selection


class _Console:
    """A stream of the process as it was at the beginning, whatever the program does to its own."""

    def __init__(self, fd: int) -> None:
        stream = sys.stderr if fd == 2 else sys.stdout
        self._encoding = getattr(stream, "encoding", None) or "utf-8"
        self._lock = threading.RLock()
        self._original = self._fd = fd
        try:
            self._fd = aside(fd)
        except OSError:
            self._original = self._fd = -1  # it was closed before we came
        self.terminal = self._fd >= 0 and os.isatty(self._fd)
        if hasattr(os, "register_at_fork"):
            os.register_at_fork(after_in_child=self._forked)

    def _forked(self) -> None:
        # A child that lives on must not keep open what it closes itself.
        self._lock = threading.RLock()
        if self._fd != self._original:
            with contextlib.suppress(OSError):
                os.close(self._fd)
            self._fd = self._original

    @property
    def fd(self) -> int:
        """Its number."""
        return self._fd

    def draw(self, words: str) -> None:
        """Write at once, in one go, whatever the program is about to write."""
        with self._lock, contextlib.suppress(OSError):
            os.write(self._fd, words.encode(self._encoding, "replace"))

    def write(self, words: str) -> None:
        """Write, after all that the program has written so far; into a closed pipe, nothing."""
        with self._lock, contextlib.suppress(OSError):
            for stream in (sys.stdout, sys.stderr):
                with contextlib.suppress(Exception):
                    stream.flush()
            data = words.encode(self._encoding, "backslashreplace")
            while data:
                data = data[os.write(self._fd, data) :]


class _Output:
    """The file of `--output`: whole at every moment, and up to date from finding to finding."""

    def __init__(self, path: str) -> None:
        self.path = path
        self.problem = ""
        self._device = os.path.exists(path) and not os.path.isfile(path) and not os.path.isdir(path)
        self._real = os.path.abspath(path) if self._device else os.path.realpath(path)

    def write(self, words: str, *, last: bool = False) -> None:
        """Replace what stands there; a device or a pipe is written to once, at the end."""
        data = words.encode("utf-8", "backslashreplace")
        self.problem = ""
        try:
            if not self._device:
                self._swap(data)
            elif last:
                with open(self._real, "wb") as stream:
                    stream.write(data)
        except OSError as error:
            self.problem = f"cannot be written: {error.strerror}"

    def _swap(self, data: bytes) -> None:
        fresh = f"{self._real}.{os.getpid()}.tmp"
        try:
            with open(fresh, "wb") as stream:
                stream.write(data)
            if os.path.exists(self._real):
                shutil.copymode(self._real, fresh)
            os.replace(fresh, self._real)
        finally:
            with contextlib.suppress(OSError):
                os.remove(fresh)
