"""What only repetition shows: how long a program's windows are, and what it does with part of one.

The events of a run do not contain guards. That a window was meant to be longer, or that a clear drops part of it,
shows only in what the program does repeatedly. This module counts that for one subject, and makes observations:
events that the rules check like all others.
"""

from __future__ import annotations

from collections.abc import Iterator

from zerograd.core.events import (
    Backward,
    CutWindows,
    Decided,
    Excuse,
    LongWindow,
    Observation,
    OddWindow,
    PartialWindow,
    Site,
    Step,
    Zero,
)
from zerograd.core.lifecycle import Grads, State

CONVINCED = 8
"""After this many steps in a row that drop the same, it is not an accident."""
ALIKE = 2
"""After this many windows of one length in a row, that is the length that is meant."""
MOST_DROPS = 64
"""How many clears between two steps are remembered."""

Observations = Iterator[Observation]
Dropped = tuple[Zero, Backward]
"""A clear that dropped something, and the backward it came from."""


class WindowStatistics:
    """The windows of one subject: each goes from a clear to the step that uses what was added since."""

    open = 0
    """Backward calls since the clear."""
    usual = 0
    """How long the latest windows were, all alike."""
    declared = 0
    """How long windows are meant to be, as the user says."""
    steady = False
    """They were alike often enough: another such window shows nothing new."""
    cuts = False
    """Clears before the last step dropped the same kind of gradients as it used, but not often enough yet."""
    _carries = False
    _run = 0
    _first = 0
    _judged = 0
    _short = 0
    _step: Step | None = None
    _decided: Decided | None = None
    """What the source says about the steps, where a run has read it."""
    _pattern: tuple[int, tuple[Site, Site]] | None = None
    _patterns = 0

    def __init__(self) -> None:
        self.counts: dict[int, int] = {}
        """How often a step closed a window of each length."""
        self.drops: list[Dropped] = []
        """The clears since the last step that dropped something."""
        self.harmless: list[Dropped] = []
        """What was dropped before the last step, if nothing like it was used."""
        self._convicted: set[tuple[Site, Site]] = set()
        """The clears that drop part of every window, each with the backward."""

    @property
    def even(self) -> bool:
        """All windows had the same length so far, and no length was declared."""
        return not self.declared and self._run == sum(self.counts.values())

    def repeated(self, times: int) -> None:
        """There were more windows like the last one."""
        self.counts[self.usual] += times
        self._run += times
        self.steady = self._run > ALIKE

    def dropped(self, clear: Zero, before: State) -> Observations:
        """A clear came before the window's step."""
        backward = before.backward
        if backward is None or clear.excuse not in (None, Excuse.UNSEEN):
            return
        if len(self.drops) <= MOST_DROPS:
            self.drops.append((clear, backward))
        if clear.excuse is not None or _holds_others(before):
            return
        if self._step is not None and self._is_part():
            yield PartialWindow(
                self._step.site,
                backward=backward.site,
                cleared=clear.site,
                guard=self._guard(),
                allowed=clear.allowed,
            )

    def closed(self, step: Step, before: State) -> Observations:
        """A step has used the window."""
        self._step = step
        self._decided = step.decided or self._decided
        if step.length != self.declared:
            self.declared, self._judged, self._short = step.length, 0, 0
        if not self.open:
            return
        self.counts[self.open] = self.counts.get(self.open, 0) + 1
        if _holds_others(before):
            self._run = self.usual = 0
            self.steady = False
        else:
            yield from self._lengths(step, before.backward)
        yield from self._cut(step, before.backward)
        self.harmless, self.drops = ([] if self._pattern else self.drops), []

    def ended(self, state: State) -> Observations:
        """The run is over, and nothing will step what is left."""
        if state.backward is None or _holds_others(state) or self._carries:
            return
        if self._step is not None and self._is_part():
            yield PartialWindow(self._step.site, backward=state.backward.site, guard=self._guard())

    def _guard(self) -> Site | None:
        return None if self._decided is None else self._decided.guard

    def _said(self) -> int:
        """How long the user or the code says that a window is; 0 if neither does."""
        return self.declared or (0 if self._decided is None else self._decided.length)

    def _meant(self) -> int:
        """How long a window is meant to be; 0 while that is not known."""
        if self._said():
            return self._said()
        if self._decided is not None and self._decided.guard is None:
            return 0  # the source was read, and nothing in it counts batches
        return self.usual if self._run >= ALIKE else 0

    def _is_part(self) -> bool:
        """Whether the open window is shorter than windows are meant to be, and others were."""
        return 0 < self.open < self._meant() and self._meant() in self.counts

    def _lengths(self, step: Step, backward: Backward | None) -> Observations:
        meant, window = self._meant(), self.open
        # A backward that may not have reached the subject is no evidence.
        last = None if backward is None or backward.may else backward.site
        # Where the data decides about the lengths of windows, a longer one is not carried over.
        if meant >= 2 and meant < window < 2 * meant and self.counts.keys() <= {meant, window}:
            self._carries = True
            if last is not None:
                yield LongWindow(
                    step.site,
                    window=window,
                    meant=self._said(),
                    guard=self._guard(),
                    allowed=step.allowed,
                )
        self._first = self._first or window
        if self.declared >= 2:
            self._judged += 1
            self._short += window < meant
            # Every epoch may end on a short window; most of them may not.
            if self._judged == 2 * meant and self._short > meant and last and window != meant:
                yield self._odd(step, window, last)
        self._run = self._run + 1 if window == self.usual else 1
        self.steady = self._run > ALIKE
        self.usual = window
        begun = sum(self.counts.values()) == 1 + ALIKE
        if begun and self._run == ALIKE and self._first < window == self._meant() and last:
            yield self._odd(step, self._first, last)

    def _odd(self, step: Step, window: int, last: Site) -> OddWindow:
        return OddWindow(
            step.site,
            window=window,
            backward=last,
            meant=self._said(),
            guard=self._guard(),
            allowed=step.allowed,
        )

    def _cut(self, step: Step, backward: Backward | None) -> Observations:
        """Whether the clear drops the same part of every window."""
        pattern = None
        if self.drops and backward is not None and not _by_choice(step):
            sites = {
                (dropped.site if clear.excuse else clear.site, dropped.site)
                for clear, dropped in self.drops
            }
            unseen = any(clear.excuse for clear, _ in self.drops)
            # The place of a clear by hand is unknown: it drops a part only if a counter decides about the step.
            if unseen and self._guard() is None:
                pass
            elif len(sites) == 1 and self.drops[0][1].site == backward.site:
                # Where a counter decides, as the source says, the last window of an epoch may be a short one.
                pattern = (0 if self._guard() else len(self.drops), sites.pop())
        self._patterns = self._patterns + 1 if pattern and pattern == self._pattern else 1
        self._pattern = pattern
        convicted = pattern is not None and pattern[1] in self._convicted
        self.cuts = pattern is not None and not convicted
        if pattern and (convicted or self._patterns == CONVINCED):
            self._convicted.add(pattern[1])
            clear, dropped = pattern[1]
            for _ in range(1 if convicted else CONVINCED):
                yield CutWindows(
                    clear,
                    backward=dropped,
                    step=step.site,
                    guard=self._guard(),
                    allowed=step.allowed,
                )


def _holds_others(state: State) -> bool:
    """Whether gradients of an earlier step, or of another subject's phase, are in the window.

    The length of such a window does not show how long windows are meant to be.
    """
    if state.grads is Grads.STALE:
        return True
    if state.lent is None:
        return False
    left, step = state.lent
    own = state.backward is not None and state.backward.site != left.site
    return own or step.through is not False


def _by_choice(step: Step) -> bool:
    """Whether the source says that something other than a counter keeps batches from the step."""
    return step.decided is not None and step.decided.guard is None and step.decided.chosen
