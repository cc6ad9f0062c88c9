"""From events to findings, without torch: what a watched run and a replayed recording have in common."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, replace
from typing import Protocol

from zerograd.core.automaton import Automaton, Edge, Node
from zerograd.core.events import Backward, End, Event, Observation, Step, Sync, Unknown, Zero
from zerograd.core.finding import Finding, Place, Report
from zerograd.core.rule import Rule, Violation, finding_of
from zerograd.core.wording import counted
from zerograd.fold.window_statistics import Observations, WindowStatistics


class EventSink(Protocol):
    """Keeps the events of a run."""

    def write(self, subject: str, event: Event) -> None:
        """Keep one."""
        ...


class Track:
    """One subject: the state of its gradients, and what has been counted so far."""

    posted_steps = 0
    rounds = 0
    """How often a loop has repeated the last window since then. A repetition breaks no rule, and ends in the same state."""
    lent: Node | None = None
    """The node when another subject's step used these gradients: a clear then drops nothing."""

    def __init__(self, name: str, node: Node) -> None:
        self.name = name
        self.node = node
        self.windows = WindowStatistics()

    @property
    def steps(self) -> int:
        """How many steps there were."""
        return self.posted_steps + self.rounds

    @property
    def lengths(self) -> dict[int, int]:
        """How many windows there were of each length."""
        lengths, usual = dict(self.windows.counts), self.windows.usual
        if self.rounds:
            lengths[usual] = lengths.get(usual, 0) + self.rounds
        return lengths


@dataclass
class Streak:
    """Steps of one subject in a row that break a rule, which is reported if they are a run's last."""

    rule: Rule
    violation: Violation
    first: int
    """The number of the first of them, among the subject's steps."""
    times: int
    step: int
    """The number of the last of them."""
    steps: int
    """How many steps all subjects had taken then."""


class Judge:
    """Takes the events of every subject and collects what breaks a rule, each place once."""

    def __init__(
        self,
        rules: Iterable[Rule],
        on_finding: Callable[[Finding], None] | None = None,
        automaton: Automaton | None = None,
    ) -> None:
        """`automaton` is that of an earlier judge with the same rules."""
        self.report = Report()
        self.recorder: EventSink | None = None
        self._on_finding = on_finding
        self._automaton = automaton or Automaton(rules)
        self._tracks: dict[str, Track] = {}
        self._places: dict[Place, int] = {}
        self._past_steps = 0
        self._past_windows: Counter[int] = Counter()
        self._streaks: dict[tuple[str, str], Streak] = {}
        """By the names of subjects and the codes of rules."""
        self._remarks: dict[tuple[str, str], int] = {}
        """By code and text: how many steps it is true of."""

    def track(self, subject: str) -> Track:
        """The track of a subject; it begins when it is first asked for."""
        if subject not in self._tracks:
            self._tracks[subject] = Track(subject, self._automaton.node())
        return self._tracks[subject]

    @property
    def tracks(self) -> list[Track]:
        """The tracks of all subjects, copied at once: another thread may begin to train meanwhile."""
        return list(self._tracks.values())

    @property
    def steps(self) -> int:
        """How many steps there were."""
        return self._past_steps + sum(track.steps for track in self.tracks)

    @property
    def windows(self) -> Counter[int]:
        """How many windows there were of each length."""
        total = Counter(self._past_windows)
        for track in self.tracks:
            total.update(track.lengths)
        return +total

    def forked(self) -> None:
        """This process is a forked child: what its parent has done does not count here."""
        self._past_steps -= self.steps
        self._past_windows.subtract(self.windows)
        self._streaks.clear()
        self._remarks.clear()

    def may_still_report(self, subject: str) -> bool:
        """Whether there may be findings of a subject at the end of the run, even if it is gone by then."""
        return any(name == subject for name, _ in self._streaks)

    def forget(self, subject: str) -> None:
        """The subject is gone: its steps and windows still count."""
        track = self._tracks.pop(subject, None)
        if track is not None:
            self._past_steps += track.steps
            for length, times in track.lengths.items():
                self._past_windows[length] += times

    def post(self, track: Track, event: Event) -> None:
        """An event has happened to a subject."""
        self.follow(track, self.edge(track.node, event))

    def edge(self, node: Node, event: Event) -> Edge:
        """Where an event leads from a state."""
        return node.edges.get(id(event)) or self._automaton.take(node, event)

    def follow(self, track: Track, edge: Edge) -> None:
        """A subject takes an edge from where it is; a loop that repeats knows which.

        Nothing else moves a node, counts, or hands events to the recorder; a loop only counts its
        rounds.
        """
        event = edge.event
        if self.recorder is not None and not isinstance(event, Observation):
            self.recorder.write(track.name, event)
        before = track.node
        track.node = edge.node
        if edge.broken:
            self._report(edge.broken, track, event)
        # Kinds have no subclasses, and this comparison takes half the time of `isinstance`.
        if type(event) is Backward:
            if not event.may:
                track.windows.open += 1
        elif type(event) is Step:
            if event.foreign:
                track.lent = edge.node
                return
            windows = track.windows
            if (
                windows.steady
                and windows.open == windows.usual
                and (not event.length or event.length == windows.usual)
                and (not windows.drops or windows.drops == windows.harmless)
                and not windows.cuts
            ):
                # It closes a window like the last ones, as long as is meant: nothing to observe.
                windows.counts[windows.open] += 1
                if windows.drops:
                    windows.drops = []
            else:
                self._observe(track, windows.closed(event, before.state))
            windows.open = 0
            track.posted_steps += 1
        elif type(event) is Zero:
            windows = track.windows
            if windows.open:
                if before is not track.lent:
                    self._observe(track, windows.dropped(event, before.state))
                windows.open = 0
        elif type(event) is End and event.restored:
            for key in [key for key in self._streaks if key[0] == track.name]:
                del self._streaks[key]
        elif type(event) is Unknown:
            track.windows.open = 0

    def end_rounds(self, track: Track) -> None:
        """A loop has stopped repeating the last window: its repetitions count like windows that were posted."""
        rounds, track.rounds = track.rounds, 0
        if rounds:
            track.windows.repeated(rounds)
            track.posted_steps += rounds

    def end(self, *, clean: bool = True) -> None:
        """The run is over. Windows that a stopped run has left open are not reported."""
        if clean:
            for track in self.tracks:
                self._observe(track, track.windows.ended(track.node.state))
        for (subject, _), streak in self._streaks.items():
            if streak.times >= streak.rule.in_a_row and self._is_last(subject, streak):
                self._remarks[streak.rule.code, streak.violation.remark] -= streak.times
                self._add(streak.rule, streak.violation, subject, streak.first, streak.times)
        self._streaks.clear()

    def remarks(self, codes: Collection[str]) -> tuple[str, ...]:
        """What was seen of steps that break some of these rules, and is not reported."""
        return tuple(
            f"{counted(times, 'step')} {text}"
            for (code, text), times in self._remarks.items()
            if times and code in codes
        )

    def _observe(self, track: Track, seen: Observations) -> None:
        for observation in seen:
            self.post(track, observation)

    def _report(self, broken: Iterable[tuple[Rule, Violation]], track: Track, event: Event) -> None:
        diverged = event.diverged if isinstance(event, Sync) else None
        iteration = track.steps + 1 if diverged is None else diverged.step
        for rule, violation in broken:
            if rule.code in event.allowed:
                continue
            if rule.in_a_row:
                self._hold_back(rule, violation, track.name, iteration)
            else:
                # At the end of a run there is no step.
                self._add(
                    rule, violation, track.name, None if isinstance(event, End) else iteration
                )

    def _hold_back(self, rule: Rule, violation: Violation, subject: str, step: int) -> None:
        """A step breaks a rule that only the last steps of a run can break."""
        remark = (rule.code, violation.remark)
        self._remarks[remark] = self._remarks.get(remark, 0) + 1
        if not violation.reported:
            return
        streak = self._streaks.get((subject, rule.code))
        if streak is None or streak.step != step - 1:
            streak = Streak(rule, violation, step, 0, 0, 0)
            self._streaks[subject, rule.code] = streak
        streak.times, streak.step, streak.steps = streak.times + 1, step, self.steps + 1

    def _is_last(self, subject: str, streak: Streak) -> bool:
        """Whether the training has not gone on after the streak, neither of its subject nor of others."""
        track = self._tracks.get(subject)
        if track is not None and track.steps != streak.step:
            return False
        return self.steps - streak.steps < streak.rule.in_a_row

    def _add(
        self, rule: Rule, violation: Violation, subject: str, iteration: int | None, times: int = 1
    ) -> None:
        """A new finding; if its place is already known, its count grows."""
        finding = replace(finding_of(rule, violation), subject=subject)
        findings = self.report.findings
        number = self._places.setdefault(finding.place, len(findings))
        if number < len(findings):
            finding = findings[number]
            finding = findings[number] = replace(finding, seen=(finding.seen or 1) + times)
        else:
            finding = replace(finding, site=replace(finding.site, iteration=iteration), seen=times)
            findings.append(finding)
        if self._on_finding is not None:
            self._on_finding(finding)
