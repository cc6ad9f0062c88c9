"""Patches torch once for all open watches, and gives each of them the findings."""

from __future__ import annotations

import functools
import os
import sys
import threading
from types import CodeType
from typing import Protocol

from zerograd.core.automaton import Automaton
from zerograd.core.events import Backward, Step, Zero
from zerograd.core.finding import Finding, Problem, Report, Watched
from zerograd.core.interruptions import Tolerating
from zerograd.core.lifecycle import Grads
from zerograd.core.records import replace
from zerograd.core.rule import Feature
from zerograd.fold.judge import Judge, Track
from zerograd.processes.identity import identify
from zerograd.processes.run_process import RunProcess
from zerograd.recording.writer import Recorder
from zerograd.rules.catalogue import RULES
from zerograd.runtime import orphans
from zerograd.runtime.call_sites import CallSites
from zerograd.runtime.event_cache import EventCache
from zerograd.runtime.norms import Meter
from zerograd.runtime.patches import Hooks, code_of, hide_from_compiler, load_torch
from zerograd.runtime.ranks.replicas import NO_REPLICAS
from zerograd.runtime.watcher import Watcher
from zerograd.terminal.status_line import Glance

WATCHABLE = tuple(rule for rule in RULES if rule.only != "static")
_BELOW_TORCH = tuple(f"zerograd.{name}." for name in "core fold processes rules runtime".split())
"""The packages whose functions torch calls while a program trains."""


class OpenWatch(Protocol):
    """What the engine needs of a watch that is open."""

    codes: frozenset[str]
    report: Report
    record: Recorder | None
    check_ranks: str
    process: RunProcess | None
    searches: bool
    """Whether all objects of the program are searched, which takes up to 0.2 s: for optimizers that were
    made before, and for what looks like an optimizer and cannot be watched."""
    sums_up: bool
    """Whether its report says at the end all that was watched, not only the number of steps."""
    most_steps: int

    def enough(self) -> None:
        """Whether the watch has seen as many steps as it was asked for."""
        ...

    def hear(self, finding: Finding) -> None:
        """A rule was broken, for the first time at its place or once more."""
        ...


class Engine:
    """What all open watches share."""

    running: Engine | None = None
    lock = threading.RLock()
    last_hooks: Hooks | None = None
    """The patches of the last engine, which the next one uses again."""
    stays_patched = False
    """Whether the patches stay, without a listener, when the last watch is closed: another one follows soon."""
    allowed: frozenset[str] = frozenset()
    """The codes of the rules that the program allows to be broken now."""
    expected = 0
    """How many backward calls windows are meant to have, by `expect_window`; 0 without it."""

    def __init__(self, passing: tuple[type[BaseException], ...]) -> None:
        hooks = Engine.last_hooks
        if hooks is None or not hooks.fit():
            if hooks is not None:
                hooks.remove()
            hooks = Engine.last_hooks = Hooks(load_torch())
            _hide_our_code()
        self.hooks = hooks
        self.watches: list[OpenWatch] = []
        self.home = os.getcwd()
        known = learned(hooks.torch.__path__[0], self.home)
        self.judge = Judge(WATCHABLE, self._hear, known.automaton)
        known.events.allow(tuple(sorted(self.allowed)))
        self.watcher = Watcher(hooks.torch, self.judge, self, known.events, self.home, passing)
        self.watcher.expect(self.expected)
        self._meter: Meter | None = None

    @classmethod
    def join(cls, watch: OpenWatch, passing: tuple[type[BaseException], ...]) -> Engine:
        """Open a watch. Exceptions of the types in `passing` are raised in the program."""
        with cls.lock:
            engine = cls.running or cls(passing)
            if cls.running is None:
                engine.watcher.lanes.searched = not watch.searches
                engine.watcher.lanes.keeps_names = False
                engine.hooks.install(engine.watcher)
                cls.running = engine
            engine.watches.append(watch)
            engine.watcher.lanes.keeps_names |= watch.sums_up
            engine.watcher.replicas.compare(watch.check_ranks)
            if watch.record is not None:
                engine._record(watch.record)
            if watch.most_steps:
                engine.watcher.end_after(engine.judge.steps + watch.most_steps)
            return engine

    @classmethod
    def leave(cls, watch: OpenWatch, *, clean: bool) -> None:
        """Close a watch. With the last one, torch is put back as it was, unless it stays patched.

        A patch that is still there, or that the program has kept, hears nothing then.
        """
        with cls.lock:
            engine = cls.running
            if engine is None or watch not in engine.watches:
                return
            last = len(engine.watches) == 1
            try:
                if last:
                    (engine.hooks.rest if cls.stays_patched else engine.hooks.remove)()
                    cls.running = None
                engine.watcher.heard(engine._sum_up, watch, last, clean)
            finally:
                engine.watches.remove(watch)
                if watch.record is not None:
                    engine._record(None)
                if last:
                    engine.watcher.heard(engine.watcher.stop)

    @classmethod
    def stay_patched(cls, stays: bool) -> None:
        """Whether torch stays patched while no watch is open."""
        with cls.lock:
            cls.stays_patched = stays
            if not stays and cls.running is None and cls.last_hooks is not None:
                cls.last_hooks.remove()

    def _sum_up(self, watch: OpenWatch, last: bool, clean: bool) -> None:
        """Say what a watch has seen; with the last watch, the run is over."""
        if last:
            self.watcher.ends(clean=clean)
            self.judge.end(clean=clean)
        watch.report.watched = (
            self.summary(watch) if watch.sums_up else Watched((), 0, self.judge.steps)
        )
        if watch.record is not None and self._meter is not None:
            self._meter.flush()
            watch.record.watched(watch.report.watched)

    @classmethod
    def allow(cls, codes: frozenset[str]) -> None:
        cls.allowed = codes
        if cls.running is not None:
            watcher = cls.running.watcher
            watcher.heard(watcher.allow, tuple(sorted(codes)))

    @classmethod
    def expect(cls, length: int) -> None:
        cls.expected = length
        if cls.running is not None:
            watcher = cls.running.watcher
            watcher.heard(watcher.expect, length)

    def _record(self, recorder: Recorder | None) -> None:
        """Record the events from now on; None: stop recording. There is one recording at a time."""
        lanes, heard = self.watcher.lanes, self.watcher.heard
        self._meter = (
            None
            if recorder is None
            else Meter(recorder, self.hooks.torch, lanes.subjects.all, heard, lanes.names)
        )
        self.watcher.record(self._meter)

    def glance(self) -> list[Glance]:
        titles = self.watcher.lanes.titles
        accused = {finding.subject for finding in self.judge.report.findings}
        ahead = self.watcher.lanes.ahead()

        def shown(one: Track) -> Glance:
            taken = ahead.get(one.name, [])
            grads = taken[-1].node.grads if taken else one.node.grads
            steps, window, lengths = one.steps, one.windows.open, one.lengths
            for edge in taken:
                event = edge.event
                if isinstance(event, Backward):
                    window += not event.may
                elif isinstance(event, Zero) or (isinstance(event, Step) and not event.foreign):
                    if isinstance(event, Step):
                        steps, lengths[window] = steps + 1, lengths.get(window, 0) + 1
                    window = 0
            # A generator's backward adds to what the discriminator has used: no step need use the sum.
            if grads is Grads.STALE and one.name not in accused:
                grads = Grads.SPENT
            return Glance(titles[one.name], steps, grads, window, lengths)

        return [shown(one) for one in self.judge.tracks if one.name in titles]

    def summary(self, watch: OpenWatch) -> Watched:
        titles, parameters = self.watcher.lanes.titles, self.watcher.lanes.parameters
        missing: dict[Feature | None, str] = {Feature.REPLICAS: self.watcher.replicas.could_not()}
        alone = not identify().one_of_many
        if alone and missing[Feature.REPLICAS] == NO_REPLICAS:
            missing[Feature.REPLICAS] = "one process"
        if not self.watcher.scaling.active:
            missing[Feature.SCALER] = "no scaler"
        if len(titles) < 2:
            missing[Feature.SEVERAL_OPTIMIZERS] = "one optimizer"
        if not self.watcher.sync.active:
            missing[Feature.SHARED_GRADIENTS] = (
                "one process" if alone else "no gradients were shared by ranks"
            )
        chosen = [rule for rule in WATCHABLE if rule.code in watch.codes]
        why = {rule.code: missing.get(rule.applies_to, "") for rule in chosen}
        others = orphans.unknown_optimizers(self.hooks.torch) if watch.searches else []
        return Watched(
            optimizers=tuple(titles.values()),
            parameters=sum(parameters.values()),
            steps=self.judge.steps,
            windows=dict(sorted(self.judge.windows.items())),
            ran=tuple(code for code, reason in why.items() if not reason),
            could_not={code: reason for code, reason in why.items() if reason},
            remarks=self.judge.remarks(watch.codes),
            unwatched=tuple(sorted({type(one).__qualname__ for one in others})),
            compiled=tuple(sorted(self.watcher.compiled)),
        )

    def _hear(self, finding: Finding) -> None:
        finding = replace(finding, optimizer=self.watcher.lanes.names.called(finding.subject))
        for watch in tuple(self.watches):
            watch.hear(finding)

    def enough(self) -> None:
        for watch in tuple(self.watches):
            if watch.most_steps:
                watch.enough()

    def ranks_met(self) -> None:
        for watch in self.watches:
            if watch.process is not None:
                watch.process.met()

    def rank_stepped(self) -> None:
        for watch in self.watches:
            if watch.process is not None and watch.process.counter is not None:
                watch.process.counter.set(self.judge.steps)

    def problem(self, message: str, wrong: bool) -> None:
        """Print a problem with comparing ranks; with `wrong` it is an error in how the run was started."""
        if wrong:
            for watch in self.watches:
                watch.report.errors.append(Problem("zerograd", message, names_rank=True))
        with Tolerating(Exception):
            sys.stderr.write(f"zerograd: {message}\n")

    def failed(self, error: BaseException) -> None:
        with self.lock:
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
        with Tolerating(Exception):
            # The program may have closed the stream.
            sys.stderr.write(f"zerograd: {message}\n")


class Learned:
    """What earlier watches found out about the code of the program, for the next one."""

    def __init__(self, torch_home: str, home: str) -> None:
        self.events = EventCache(CallSites(torch_home, home))
        self.automaton = Automaton(WATCHABLE)


@functools.lru_cache(maxsize=1)
def learned(torch_home: str, home: str) -> Learned:
    """What is known of the code, with paths relative to this directory."""
    return Learned(torch_home, home)


@functools.cache
def _hide_our_code() -> None:
    """Once per process: what is hidden stays hidden."""
    hide_from_compiler(code_below_torch())


@functools.cache
def code_below_torch() -> tuple[CodeType, ...]:
    """Our code that runs inside calls of torch. It is gathered once, because that takes milliseconds."""
    ours = [module for name, module in sys.modules.items() if name.startswith(_BELOW_TORCH)]
    return tuple(code for module in ours for code in code_of(module))
