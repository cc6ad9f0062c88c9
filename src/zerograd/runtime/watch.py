"""`zerograd.watch`: begins and ends the watching, and hands out what was found.

However many watches are open, torch is patched once and put back when the last one closes.
"""

from __future__ import annotations

import contextlib
import functools
import linecache
import os
import sys
import threading
import warnings
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from types import ModuleType, TracebackType
from typing import Any, TypeVar

from zerograd.core import suppressions
from zerograd.core.finding import Finding, Problem, Report, Watched
from zerograd.core.rule import scaler
from zerograd.fold import judge, window_statistics
from zerograd.fold.judge import Judge
from zerograd.processes import identity
from zerograd.processes.identity import Company
from zerograd.recording.writer import Recorder
from zerograd.rules.catalogue import RULES
from zerograd.rules.selection import expand, resolve
from zerograd.runtime import (
    autograd_graph,
    call_sites,
    event_cache,
    gradient_probe,
    lanes,
    norms,
    orphans,
    patches,
    steady_loop,
    step_and_clear,
    subjects,
    verify,
    watcher,
)
from zerograd.runtime.norms import Meter
from zerograd.runtime.patches import Hooks, hide_from_compiler, load_torch
from zerograd.runtime.ranks import collectives, fingerprints, replicas, sync
from zerograd.runtime.tracebacks import tidy
from zerograd.runtime.watcher import Watcher
from zerograd.terminal.status_line import Glance

Function = TypeVar("Function", bound=Callable[..., Any])

WAYS = ("warn", "raise", "collect")
WATCHABLE = tuple(rule for rule in RULES if rule.only != "static")
_SHARING = ("ZG401", "ZG403")
_SCALING = tuple(rule.code for rule in WATCHABLE if scaler in rule.needs)


class GradientWarning(UserWarning):
    """A finding of a watched run, under `on="warn"`."""


class GradientError(RuntimeError):
    """A finding of a watched run, under `on="raise"`; `finding` is the finding itself."""

    def __init__(self, finding: Finding) -> None:
        super().__init__(f"{finding.code} {finding.name}: {finding.message}")
        self.finding = finding


class Watch:
    """Watches every gradient from `start` to `stop`, in a `with` block, or in a decorated function.

    `on` says what a finding does: "warn" makes it a warning at the user's line, "raise" an error,
    "collect" leaves it in the report. `rules` are codes, names, or beginnings of codes.
    `check_ranks` says how often the ranks of a distributed training compare what they hold:
    "default" (once in 98 steps), "every-step", or "off".
    """

    def __init__(
        self,
        on: str = "warn",
        rules: Iterable[str] | None = None,
        *,
        tell: Callable[[Finding], None] | None = None,
        record: Recorder | None = None,
        check_ranks: str = "default",
        company: Company | None = None,
    ) -> None:
        if on not in WAYS:
            raise ValueError(f"on={on!r} is not one of {', '.join(map(repr, WAYS))}")
        if check_ranks not in replicas.SETTINGS:
            settings = ", ".join(map(repr, replicas.SETTINGS))
            raise ValueError(f"check_ranks={check_ranks!r} is not one of {settings}")
        words = [rules] if isinstance(rules, str) else rules
        self.codes = resolve(words, (), RULES).codes
        self._options: dict[str, Any] = {
            "on": on,
            "rules": rules,
            "tell": tell,
            "record": record,
            "check_ranks": check_ranks,
            "company": company,
        }
        self.check_ranks = check_ranks
        self.company = company
        self._on = on
        self._tell = tell
        self.record = record
        self.report = Report()
        self._open = 0
        self._home = ""
        self._before: dict[object, int] = {}
        self._comments: dict[object, bool] = {}

    def start(self) -> Report:
        """Begin to watch; torch is imported and patched."""
        self._open += 1
        if self._open == 1:
            self.report = Report()
            engine = _Engine.join(self)
            self._home = engine.home
            self._before = {_place(one): one.seen or 0 for one in engine.judge.report.findings}
        return self.report

    def stop(self, *, clean: bool = True) -> Report:
        """Watch no more; what is left open counts only if the run came to a clean end."""
        if self._open:
            self._open -= 1
            if not self._open:
                _Engine.leave(self, clean)
        return self.report

    def glance(self) -> list[Glance]:
        """What every subject is doing now; another thread may ask."""
        engine = _Engine.running
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

    def __call__(self, function: Function) -> Function:
        """The function, watched whenever it runs."""

        @functools.wraps(function)
        def watched(*args: Any, **kwargs: Any) -> Any:
            with Watch(**self._options):
                return function(*args, **kwargs)

        return watched  # type: ignore[return-value]

    def hear(self, finding: Finding) -> None:
        """A rule was broken, for the first time there or once more."""
        if finding.code not in self.codes or self._allowed(finding):
            return
        known = [number for number, one in enumerate(self.report.findings) if _same(one, finding)]
        seen = (finding.seen or 1) - self._before.get(_place(finding), 0)
        now = identity.who()
        mine = replace(finding, seen=seen, ranks=now.several)
        if known:
            self.report.findings[known[0]] = mine
            if self._tell is not None and seen & (seen - 1) == 0:
                self._tell(mine)  # how often: not each time, but soon enough to be near
        else:
            self.report.findings.append(mine)
            for site in (finding.site, *(note.site for note in finding.notes)):
                self.report.sources.setdefault(site.path, self._lines(site.path))
            self._announce(mine)
        if self._on == "raise" and finding.level == "error":
            raise GradientError(mine)

    @property
    def idle(self) -> bool:
        """Whether there was nothing to watch so far."""
        engine = _Engine.running
        return not self.report.findings and (engine is None or not engine.judge.steps)

    def forked(self) -> None:
        """This process is a child of the one that it was, with a report of its own."""
        engine = _Engine.running
        if self._open and engine is not None:
            self.report = Report()
            self._before = {_place(one): one.seen or 0 for one in engine.judge.report.findings}
            engine.judge.forked()

    def _allowed(self, finding: Finding) -> bool:
        """Whether a comment in the source says that it is meant that way."""
        place = _place(finding)
        if place not in self._comments:
            lines = self._lines(finding.site.path)
            self._comments[place] = suppressions.allows("\n".join(lines), finding)
        return self._comments[place]

    def _lines(self, path: str) -> list[str]:
        # Paths are told from where the program stood when it began.
        there = os.path.join(self._home, path)
        name = there if os.path.isfile(there) else path
        return [line.rstrip("\n") for line in linecache.getlines(name)]

    def _announce(self, finding: Finding) -> None:
        if self._tell is not None:
            self._tell(finding)
        elif self._on == "warn":
            site = finding.site
            message = f"zerograd: {finding.code} {finding.name}: {finding.message}"
            if finding.help:
                message += f" ({finding.help})"
            warnings.warn_explicit(message, GradientWarning, site.path, site.line)


class _Engine:
    """What all open watches share."""

    running: _Engine | None = None
    lock = threading.RLock()
    allowed: frozenset[str] = frozenset()
    """The rules that the program silences now."""
    expected = 0
    """How long windows are meant to be, as the user says; 0 where nothing is said."""

    def __init__(self) -> None:
        torch = load_torch()
        self.watches: list[Watch] = []
        self.home = os.getcwd()
        self.judge = Judge(WATCHABLE, self._hear)
        self.watcher = Watcher(self.judge, torch)
        self.watcher.passing = (GradientError, GradientWarning)
        self.watcher.on_fault = self._fault
        self.watcher.replicas.tell = self._trouble
        self.watcher.sync.on_met = self._met
        self.watcher.on_step = self._stepped
        self.watcher.expect(self.expected)
        self.watcher.allow(tuple(sorted(self.allowed)))
        self._torch = torch
        self.hooks = Hooks(torch, self.watcher)
        hide_from_compiler(_OUR_MODULES)

    @classmethod
    def join(cls, watch: Watch) -> _Engine:
        with cls.lock:
            engine = cls.running or cls()
            if cls.running is None:
                engine.hooks.install()
                cls.running = engine
            engine.watches.append(watch)
            engine.watcher.replicas.setting = watch.check_ranks
            if watch.record is not None:
                measuring = Meter(watch.record, engine._torch, engine.watcher.subjects)
                engine.judge.recorder = engine.watcher.meter = measuring
                engine.watcher.leave_laps()
            return engine

    @classmethod
    def leave(cls, watch: Watch, clean: bool) -> None:
        with cls.lock:
            engine = cls.running
            if engine is None or watch not in engine.watches:
                return
            last = len(engine.watches) == 1
            try:
                if last:
                    engine.hooks.remove()
                    cls.running = None
                    engine.judge.end(clean=clean)
                watch.report.watched = engine.summary(watch)
                if watch.record is not None and engine.watcher.meter is not None:
                    engine.watcher.meter.flush()
                    watch.record.watched(watch.report.watched)
            finally:
                engine.watches.remove(watch)
                if watch.record is not None:
                    engine.judge.recorder = engine.watcher.meter = None

    @classmethod
    def allow(cls, codes: frozenset[str]) -> None:
        cls.allowed = codes
        if cls.running is not None:
            cls.running.watcher.allow(tuple(sorted(codes)))

    @classmethod
    def expect(cls, length: int) -> None:
        cls.expected = length
        if cls.running is not None:
            cls.running.watcher.expect(length)

    def glance(self) -> list[Glance]:
        titles = self.watcher.titles
        return [
            Glance(titles[one.name], one.steps, one.node.state.grads, one.window, dict(one.windows))
            for one in self.judge.books
            if one.name in titles
        ]

    def summary(self, watch: Watch) -> Watched:
        titles, parameters = self.watcher.titles, self.watcher.parameters
        could_not = {}
        if not self.watcher.scalers:
            could_not = dict.fromkeys(_SCALING, "no gradient scaler was used")
        if len(titles) < 2:
            could_not["ZG106"] = "there was no second optimizer"
        if not self.watcher.sync.active:
            could_not |= dict.fromkeys(_SHARING, "no gradients were shared by ranks")
        could_not |= self.watcher.replicas.could_not()
        chosen = [rule.code for rule in WATCHABLE if rule.code in watch.codes]
        others = orphans.strangers(self._torch)
        return Watched(
            optimizers=tuple(titles.values()),
            parameters=sum(parameters.values()),
            steps=self.judge.steps,
            windows=dict(sorted(self.judge.windows.items())),
            ran=tuple(code for code in chosen if code not in could_not),
            could_not={code: why for code, why in sorted(could_not.items()) if code in chosen},
            unwatched=tuple(sorted({type(one).__qualname__ for one in others})),
        )

    def _hear(self, finding: Finding) -> None:
        for watch in tuple(self.watches):
            watch.hear(finding)

    def _met(self) -> None:
        for watch in self.watches:
            if watch.company is not None:
                watch.company.met()

    def _stepped(self, steps: int) -> None:
        for watch in self.watches:
            if watch.company is not None and watch.company.count is not None:
                watch.company.count.set(steps)

    def _trouble(self, message: str, wrong: bool) -> None:
        """Something that the ranks have to say, wrong with the run or only with our comparison."""
        if wrong:
            for watch in self.watches:
                watch.report.errors.append(Problem("zerograd", message))
        with contextlib.suppress(Exception):
            sys.stderr.write(f"zerograd: {message}\n")

    def _fault(self, error: Exception) -> None:
        self.hooks.remove()
        trace = error.__traceback__
        while trace is not None and trace.tb_next is not None:
            trace = trace.tb_next
        place = "" if trace is None else f" in {trace.tb_frame.f_code.co_name}:{trace.tb_lineno}"
        message = (
            f"zerograd has failed and watches no more; the training goes on. "
            f"Please report this as a bug of zerograd: {error!r}{place}"
        )
        for watch in self.watches:
            watch.report.errors.append(Problem("zerograd", message))
        with contextlib.suppress(Exception):
            # The program may have closed it.
            sys.stderr.write(f"zerograd: {message}\n")


_OUR_MODULES: tuple[ModuleType, ...] = (
    lanes, collectives, fingerprints, call_sites, autograd_graph, window_statistics, patches, judge, steady_loop, event_cache, gradient_probe, norms,
    orphans, replicas, subjects, sync, step_and_clear, verify, watcher, sys.modules[__name__],
    sys.modules["zerograd.core.automaton"], sys.modules["zerograd.core.lifecycle"],
)  # fmt: skip


@contextmanager
def allow(*rules: str) -> Iterator[None]:
    """What these rules find in here is meant that way."""
    codes = frozenset().union(*(expand(rule, RULES) for rule in rules))
    before = _Engine.allowed
    _Engine.allow(before | codes)
    try:
        yield
    finally:
        _Engine.allow(before)


@contextmanager
def expect_window(length: int) -> Iterator[None]:
    """Windows in here are meant to be so many backward calls long."""
    if length < 1:
        raise ValueError(f"a window is 1 backward call long or more, not {length}")
    before = _Engine.expected
    _Engine.expect(length)
    try:
        yield
    finally:
        _Engine.expect(before)


def _place(finding: Finding) -> tuple[str, str, int]:
    return (finding.code, finding.site.path, finding.site.line)


def _same(one: Finding, other: Finding) -> bool:
    return _place(one) == _place(other)
