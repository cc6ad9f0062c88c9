"""A run as data for a drawing, in bounded memory: which events led to each step.

A tick is a step of any optimizer, with the events since the tick before. Ticks that look the same
share one motif, so a run is a list of motifs and how often each came in a row. A run with too many
changes is kept coarser: one motif, the worst, then is for 2, 4, 8 … ticks.
"""

from __future__ import annotations

import math
from array import array
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from zerograd.core.events import Event, Step
from zerograd.core.lifecycle import EMPTY, Grads

MOST_LANES = 24
MOST_MARKS = 8192
MOST_MOTIFS = 8192
MOST_RUNS = 1 << 17
LONGEST_RUN = 0xFFFF
LONGEST_MOTIF = 48
"""The middle of a longer one is left out."""
LONGEST_TICK = 4096
MOST_POINTS = 1 << 17
FEW_POINTS = 1 << 14
"""For lanes beyond the first few."""

STATES = ("unknown", "empty", "live", "spent", "stale")
_STATE = {one: 1 if one in EMPTY else STATES.index(one.value) for one in Grads}
MORE = -1
"""Takes the place of a mark: so many were left out."""


class Mark(NamedTuple):
    """An event of a lane, and what its gradients hold afterwards."""

    lane: int
    kind: str
    site: int
    """The number of its place; -1 is none."""
    state: int
    findings: tuple[int, ...] = ()


class Motif(NamedTuple):
    """What the lanes hold at the beginning of a tick, and its marks, each with how often in a row."""

    starts: tuple[int, ...]
    marks: tuple[tuple[int, int], ...]


@dataclass
class Lane:
    """One subject."""

    name: str
    title: str
    steps: int = 0
    windows: dict[int, int] = field(default_factory=dict)
    norms: Norms | None = None
    called: str = ""
    """What findings call its optimizer."""


class Runs:
    """Which motif each tick has."""

    def __init__(self) -> None:
        self.motifs = array("H")
        self.counts = array("H")
        self.each = 1
        self.ticks = 0
        self._worth: dict[int, int] = {}
        self._waiting: list[int] = []

    def add(self, motif: int, worth: int) -> None:
        """One more tick. If one motif stands for several ticks, that of most worth is kept."""
        self.ticks += 1
        self._worth[motif] = worth
        if self.each == 1:
            self._push(motif, 1)
        else:
            self._waiting.append(motif)
            if len(self._waiting) == self.each:
                self._settle()
        if len(self.motifs) > MOST_RUNS:
            self._coarsen()

    def close(self) -> None:
        """No more ticks."""
        if self._waiting:
            self._settle()

    def change(self, counts: Callable[[int], bool], first: int, to: Callable[[int], int]) -> None:
        """Change the motifs of ticks: among the ticks whose motif counts, those from the `first` on."""
        before = zip(self.motifs, self.counts, strict=True)
        self.motifs, self.counts = array("H"), array("H")
        left = first - 1
        for motif, count in before:
            same = min(count, left // self.each) if counts(motif) else count
            self._push(motif, same)
            if same < count:
                self._push(to(motif), count - same)
            if counts(motif):
                left -= min(left, count * self.each)

    def _settle(self) -> None:
        self._push(max(self._waiting, key=self._worth.__getitem__), 1)
        self._waiting.clear()

    def _push(self, motif: int, count: int) -> None:
        motifs, counts = self.motifs, self.counts
        if motifs and motifs[-1] == motif:
            room = min(count, LONGEST_RUN - counts[-1])
            counts[-1] += room
            count -= room
        while count:
            motifs.append(motif)
            counts.append(min(count, LONGEST_RUN))
            count -= counts[-1]

    def _coarsen(self) -> None:
        """Let each motif represent twice as many ticks."""
        before = zip(self.motifs, self.counts, strict=True)
        self.motifs, self.counts = array("H"), array("H")
        odd: int | None = None
        for motif, count in before:
            if odd is not None:
                self._push(max(odd, motif, key=self._worth.__getitem__), 1)
                count -= 1
            self._push(motif, count // 2)
            odd = motif if count % 2 else None
        if odd is not None:
            self._waiting = [odd] * self.each + self._waiting
        self.each *= 2


class Norms:
    """The norms that the steps of a lane used, and where it differs, what they should have been."""

    def __init__(self, most: int) -> None:
        self.used = array("f")
        self.right = array("f")
        self.each = 1
        self._most = most

    def add(
        self, first: int, each: int, used: Sequence[float], right: Sequence[float | None]
    ) -> None:
        """Norms from a step on, and the number of steps that each is for."""
        for number, (one, other) in enumerate(zip(used, right, strict=True)):
            self._put(first - 1 + number * each, one, other)

    def _put(self, step: int, used: float, right: float | None) -> None:
        while step // self.each >= self._most:
            self._coarsen()
        at = step // self.each
        if at >= len(self.used):
            gap = at + 1 - len(self.used)
            self.used.extend([math.nan] * gap)
            self.right.extend([math.nan] * gap)
        value = used if math.isfinite(used) else math.inf
        if not self.used[at] >= value:
            self.used[at] = value
            self.right[at] = math.nan if right is None else right

    def _coarsen(self) -> None:
        used, right = self.used, self.right
        self.used, self.right = array("f"), array("f")
        for at in range(0, len(used), 2):
            other = at + 1
            best = other if other < len(used) and not used[at] >= used[other] else at
            self.used.append(used[best])
            self.right.append(right[best])
        self.each *= 2


class Timeline:
    """Takes the events of a run, one by one."""

    def __init__(self) -> None:
        self.lanes: list[Lane] = []
        self.left_out: set[str] = set()
        """Subjects that have no lane because there are too many."""
        self.sites: list[tuple[str, int]] = []
        self.marks: list[Mark] = []
        self.motifs: list[Motif] = []
        self.runs = Runs()
        self._lane_of: dict[str, int] = {}
        self._site_of: dict[tuple[str, int], int] = {}
        self._mark_of: dict[Mark, int] = {}
        self._motif_of: dict[Motif, int] = {}
        self._worth: list[int] = []
        self._cache: dict[tuple[int, int, Grads], tuple[Event, int]] = {}
        self._states: list[int] = []
        self._starts: tuple[int, ...] = ()
        self._now: list[list[int]] = []
        """The marks of the open tick, each with how often it came in a row."""

    def lane(self, subject: str) -> int:
        """The number of a subject's lane; -1 if it has none."""
        number = self._lane_of.get(subject)
        if number is None:
            if len(self.lanes) >= MOST_LANES:
                if len(self.left_out) < LONGEST_TICK:
                    self.left_out.add(subject)
                return -1
            number = self._lane_of[subject] = len(self.lanes)
            name = subject or "parameters that no optimizer has"
            self.lanes.append(Lane(subject, name, called=name))
            self._states.append(0)
            if not self._now:
                self._starts = tuple(self._states)
        return number

    def add(self, subject: str, event: Event, grads: Grads, findings: tuple[int, ...] = ()) -> None:
        """One event, the state of the gradients after it, and the numbers of its findings."""
        lane = self._lane_of.get(subject, -1)
        if lane < 0:
            lane = self.lane(subject)
        foreign = isinstance(event, Step) and event.foreign
        if lane < 0 or ((event.may or foreign) and not findings):
            return
        if findings:
            number = self._mark(lane, event, grads, findings)
        else:
            # The cache keeps its events alive: no other can come to have the same identity.
            key = (lane, id(event), grads)
            known = self._cache.get(key)
            if known is None:
                if len(self._cache) >= MOST_MARKS:
                    self._cache.clear()
                known = self._cache[key] = (event, self._mark(lane, event, grads, ()))
            number = known[1]
        self._states[lane] = self.marks[number].state
        if self._now and self._now[-1][0] == number:
            self._now[-1][1] += 1
        else:
            self._now.append([number, 1])
        if isinstance(event, Step) and not foreign:
            self.lanes[lane].steps += 1
            self._close()
        elif len(self._now) > LONGEST_TICK:
            self._now = _shortened(self._now)

    def norms(
        self,
        subject: str,
        first: int,
        each: int,
        used: Sequence[float],
        right: Sequence[float | None],
    ) -> None:
        """Norms of a subject's steps."""
        number = self.lane(subject)
        if number >= 0:
            lane = self.lanes[number]
            if lane.norms is None:
                lane.norms = Norms(MOST_POINTS if number < 4 else FEW_POINTS)
            lane.norms.add(first, each, used, right)

    def close(self) -> None:
        """The run is over."""
        if self._now:
            self._close()
        self.runs.close()
        self._cache.clear()

    def mark_last(self, findings: tuple[int, ...]) -> None:
        """What is found when the run is over belongs to its last event."""
        if self._now:
            last = self._now[-1]
            mark = self.marks[last[0]]
            if last[1] > 1:
                last[1] -= 1
                self._now.append([0, 1])
            self._now[-1][0] = self._numbered(mark._replace(findings=mark.findings + findings))

    def mark_steps(self, subject: str, first: int, finding: int) -> None:
        """What is found of all steps of a subject from one on, once the run is over and `close` was called."""
        lane = self._lane_of.get(subject, -1)

        def is_step(motif: int) -> bool:
            mark = self.marks[self.motifs[motif].marks[-1][0]]
            return mark.lane == lane and mark.kind == Step.kind

        def marked(motif: int) -> int:
            starts, marks = self.motifs[motif]
            last = self.marks[marks[-1][0]]
            found = self._numbered(last._replace(findings=(*last.findings, finding)))
            return self._motif(Motif(starts, (*marks[:-1], (found, marks[-1][1]))))

        self.runs.change(is_step, first, marked)

    def _mark(self, lane: int, event: Event, grads: Grads, findings: tuple[int, ...]) -> int:
        place = (event.site.path, event.site.line)
        site = self._site_of.get(place, -1)
        if site < 0 and event.site.path and len(self.sites) < MOST_MARKS:
            site = self._site_of[place] = len(self.sites)
            self.sites.append(place)
        state = self._states[lane] if event.may else _STATE[grads]
        return self._numbered(Mark(lane, event.kind, site, state, findings))

    def _numbered(self, mark: Mark) -> int:
        number = self._mark_of.get(mark)
        if number is None:
            if len(self.marks) >= MOST_MARKS and (mark.site >= 0 or len(mark.findings) > 1):
                return self._numbered(mark._replace(site=-1, findings=mark.findings[:1]))
            number = self._mark_of[mark] = len(self.marks)
            self.marks.append(mark)
        return number

    def _close(self) -> None:
        """A tick has ended."""
        marks = self._now if len(self._now) <= LONGEST_MOTIF else _shortened(self._now)
        number = self._motif(Motif(self._starts, tuple((mark, times) for mark, times in marks)))
        self.runs.add(number, self._worth[number])
        self._now = []
        self._starts = tuple(self._states)

    def _motif(self, motif: Motif) -> int:
        """The number of a motif."""
        known = self._motif_of.get(motif)
        if known is not None:
            return known
        if len(self.motifs) >= MOST_MOTIFS:
            # Too many kinds of ticks: of this one only the end is kept.
            last = self.marks[motif.marks[-1][0]]
            small = Motif((), ((self._numbered(last._replace(site=-1)), 1),))
            if small != motif:
                return self._motif(small)
        number = self._motif_of[motif] = len(self.motifs)
        self.motifs.append(motif)
        self._worth.append(self._worth_of(motif))
        return number

    def _worth_of(self, motif: Motif) -> int:
        """How much a tick is worth seeing: findings most, stale gradients next."""
        marks = [self.marks[number] for number, _ in motif.marks if number != MORE]
        if any(mark.findings for mark in marks):
            return 2
        return int(any(mark.state == STATES.index("stale") for mark in marks))


def _shortened(marks: list[list[int]]) -> list[list[int]]:
    """The beginning and the end, and between them how many are left out."""
    head, tail = marks[:32], marks[-(LONGEST_MOTIF - 33) :]
    return [*head, [MORE, sum(times for _, times in marks[32 : -len(tail)])], *tail]
