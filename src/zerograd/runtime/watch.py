"""`zerograd.watch`, `zerograd.allow` and `zerograd.expect_window`: what programs call.

However many watches are open, torch is patched once (`engine`), and is as it was when the last one closes.
"""

from __future__ import annotations

import copy
import functools
import linecache
import logging
import os
import warnings
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from types import TracebackType
from typing import Any, ParamSpec, Protocol, TypeVar, cast

from zerograd.core import suppressions
from zerograd.core.events import Site
from zerograd.core.finding import CellKey, Finding, Report, source_key
from zerograd.core.help_text import helped
from zerograd.core.records import replace
from zerograd.processes.identity import identify
from zerograd.processes.run_process import RunProcess
from zerograd.recording.writer import Recorder
from zerograd.rules.catalogue import RULES
from zerograd.rules.selection import expand, resolve
from zerograd.runtime.engine import Engine
from zerograd.runtime.notebook_cells import NOTEBOOK
from zerograd.runtime.ranks import replicas
from zerograd.runtime.tracebacks import tidy
from zerograd.terminal.status_line import Glance

Parameters = ParamSpec("Parameters")
Result_co = TypeVar("Result_co", covariant=True)

_LOG = logging.getLogger("zerograd")
"""Every finding is logged once, with itself as `finding`; it is shown only where the program configures logging."""
_LOG.addHandler(logging.NullHandler())

WAYS = ("warn", "raise", "collect")
_ALL = frozenset(rule.code for rule in RULES)
_ABOUT_WINDOWS = frozenset(rule.code for rule in RULES if rule.windows)


class GradientWarning(UserWarning):
    """A finding of a watched run, under `on="warn"`."""


class GradientError(RuntimeError):
    """What was found in a watched run, under `on="raise"` or in a test; `findings` has all, `finding` the first."""

    def __init__(self, finding: Finding, *more: Finding) -> None:
        self.finding = finding
        self.findings = (finding, *more)
        super().__init__(
            "\n".join(f"{one.code} {one.name}: {one.message}" for one in self.findings)
        )


class Enough(SystemExit):
    """Ends a program of which only some steps are of interest."""


class WatchedFunction(Protocol[Parameters, Result_co]):
    """A function that is watched whenever it runs."""

    __name__: str
    report: Report
    """What was found in its last call; while it runs, what was found so far."""

    def __call__(self, *args: Parameters.args, **kwargs: Parameters.kwargs) -> Result_co: ...

    def __get__(self, instance: Any, owner: type | None = None) -> Callable[..., Result_co]: ...


class Watch:
    """Watches every gradient from `start` to `stop`, in a `with` block, or in a decorated function.

    `on` is what happens on a finding: "warn" gives a warning at the user's line, "raise" raises an
    error, "collect" only adds it to the report. `rules` are codes, names, or beginnings of codes.
    `check_ranks` says how often the ranks of a distributed training compare what they hold:
    "default" (once in 98 steps), "every-step", or "off".
    """

    def __init__(
        self,
        on: str = "warn",
        rules: Iterable[str] | None = None,
        *,
        on_finding: Callable[[Finding], None] | None = None,
        record: Recorder | None = None,
        check_ranks: str = "default",
        process: RunProcess | None = None,
        searches: bool = True,
        sums_up: bool = True,
        most_steps: int = 0,
        on_enough: Callable[[], None] | None = None,
    ) -> None:
        if on not in WAYS:
            raise ValueError(f"on={on!r} is not one of {', '.join(map(repr, WAYS))}")
        if check_ranks not in replicas.SETTINGS:
            settings = ", ".join(map(repr, replicas.SETTINGS))
            raise ValueError(f"check_ranks={check_ranks!r} is not one of {settings}")
        self.codes = _ALL
        if rules is not None:
            selectors = [rules] if isinstance(rules, str) else rules
            self.codes = resolve(selectors, (), RULES).codes
        self.most_steps = most_steps
        """How many steps are watched; 0 is all."""
        self._on_enough = on_enough
        self.check_ranks = check_ranks
        self.process = process
        self.searches = searches
        self.sums_up = sums_up
        self._on = on
        self._on_finding = on_finding
        self.record = record
        self.report = Report()
        self._open = 0
        self._home = ""
        self._before: dict[object, int] = {}
        self._comments: dict[object, bool] = {}

    def start(self) -> Report:
        """Begin to watch. It imports torch."""
        self._open += 1
        if self._open == 1:
            if self._home:  # else nothing has used it yet
                self.report = Report()
            engine = Engine.join(self, (GradientError, GradientWarning, Enough))
            self._home = engine.home
            self._before = {one.place: one.seen or 0 for one in engine.judge.report.findings}
        return self.report

    def stop(self, *, clean: bool = True) -> Report:
        """Stop watching. A window that is still open counts only if the run ended without an error."""
        if self._open:
            self._open -= 1
            if not self._open:
                Engine.leave(self, clean=clean)
        return self.report

    def glance(self) -> list[Glance]:
        """The status of every subject now. Other threads may call this."""
        engine = Engine.running
        return [] if engine is None or self not in engine.watches else engine.glance()

    def __enter__(self) -> Report:
        return self.start()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.stop(clean=error is None)
        if error is not None:
            tidy(error)

    def __call__(
        self, function: Callable[Parameters, Result_co]
    ) -> WatchedFunction[Parameters, Result_co]:
        """The function, watched whenever it runs; its `report` is that of the last call."""

        @functools.wraps(function)
        def watched(*args: Parameters.args, **kwargs: Parameters.kwargs) -> Result_co:
            again = copy.copy(self)
            again._open, again._comments, again.report = 0, {}, Report()
            with again as report:
                try:
                    return function(*args, **kwargs)
                finally:
                    this.report = report

        this = cast("WatchedFunction[Parameters, Result_co]", watched)
        this.report = Report()
        return this

    def enough(self) -> None:
        """So many steps were watched: the program goes on unwatched, unless the owner ends it."""
        self.stop(clean=False)
        if self._on_enough is not None:
            self._on_enough()

    def hear(self, finding: Finding) -> None:
        """A rule was broken, for the first time at its place or once more."""
        if finding.code not in self.codes or self._allowed(finding):
            return
        known = [
            number for number, one in enumerate(self.report.findings) if one.place == finding.place
        ]
        seen = (finding.seen or 1) - self._before.get(finding.place, 0)
        now = identify()
        mine = replace(finding, seen=seen, ranks=now.several)
        if known:
            self.report.findings[known[0]] = mine
            if self._on_finding is not None and seen & (seen - 1) == 0:
                self._on_finding(mine)  # at 2, 4, 8 … times: enough to show how often
        else:
            self.report.findings.append(mine)
            for site in (finding.site, *(note.site for note in finding.notes)):
                self.report.sources.setdefault(source_key(site), self._lines(site))
            self._announce(mine)
        if self._on == "raise" and finding.level == "error":
            raise GradientError(mine)

    @property
    def idle(self) -> bool:
        """Whether nothing has trained so far."""
        engine = Engine.running
        return not self.report.findings and (engine is None or not engine.judge.steps)

    @property
    def steps(self) -> int:
        """How many steps there were since torch is watched."""
        engine = Engine.running
        return 0 if engine is None else engine.judge.steps

    def forked(self) -> None:
        """This process was forked from the one that started the watch: it gets its own report."""
        engine = Engine.running
        if self._open and engine is not None:
            self.report = Report()
            self._before = {one.place: one.seen or 0 for one in engine.judge.report.findings}
            engine.judge.forked()

    def _allowed(self, finding: Finding) -> bool:
        """Whether a comment in the source allows the finding."""
        place = finding.place
        if place not in self._comments:
            lines = self._lines(finding.site, python=True)
            self._comments[place] = suppressions.allows("\n".join(lines), finding)
        return self._comments[place]

    def _lines(self, site: Site, *, python: bool = False) -> list[str]:
        """The lines of the file or the cell of a site; of a cell as the user sees it, or its Python."""
        if site.cell is not None:
            kept = NOTEBOOK.python if python else NOTEBOOK.shown
            return kept.get(CellKey(site.path, site.cell), [])
        # Paths are relative to the directory in which the watch began.
        there = os.path.join(self._home, site.path)
        name = there if os.path.isfile(there) else site.path
        return [line.rstrip("\n") for line in linecache.getlines(name)]

    def _announce(self, finding: Finding) -> None:
        site = finding.site
        level = logging.WARNING if finding.level == "error" else logging.INFO
        values = (site.path, site.line, finding.code, finding.name, finding.message)
        _LOG.log(level, "%s:%d: %s %s: %s", *values, extra={"finding": finding})
        if self._on_finding is not None:
            self._on_finding(finding)
        elif self._on == "warn":
            message = f"zerograd: {finding.code} {finding.name}: {finding.message}"
            if finding.help:
                message += f" ({helped(finding, self.report.sources)})"
            warnings.warn_explicit(message, GradientWarning, site.path, site.line)


@contextmanager
def allow(*rules: str) -> Iterator[None]:
    """Do not report what breaks these rules in the block."""
    with _allowed(frozenset().union(*(expand(rule, RULES) for rule in rules))):
        yield


@contextmanager
def allow_windows() -> Iterator[None]:
    """Whatever rules find in the lengths and the contents of windows in here is meant that way."""
    with _allowed(_ABOUT_WINDOWS):
        yield


@contextmanager
def _allowed(codes: frozenset[str]) -> Iterator[None]:
    before = Engine.allowed
    Engine.allow(before | codes)
    try:
        yield
    finally:
        Engine.allow(before)


@contextmanager
def expect_window(length: int) -> Iterator[None]:
    """Windows in the block are meant to have `length` backward calls."""
    if length < 1:
        raise ValueError(f"a window is 1 backward call long or more, not {length}")
    before = Engine.expected
    Engine.expect(length)
    try:
        yield
    finally:
        Engine.expect(before)
