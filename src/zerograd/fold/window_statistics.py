"""What only repetition shows: how long a program's windows are, and what it does with part of one.

A run has no guards to read. That a window was meant to be longer, or that a clear drops part of
it, shows in what the program does again and again; then the same rules judge it as in source.
"""

from __future__ import annotations

from collections.abc import Iterator

from zerograd.core.automaton import Node
from zerograd.core.events import Event, Kind
from zerograd.core.lifecycle import Grads, State
from zerograd.core.records import replace
from zerograd.core.rule import Rule, Violation
from zerograd.rules import carried_window, dropped_window, misplaced_guard, zero_in_window

CONVINCED = 3
"""So many steps in a row that drop the same show that it is no accident."""
ALIKE = 2
"""So many windows in a row of one length show how long they are meant to be."""

Broken = Iterator[tuple[Rule, Violation]]


class Book:
    """One subject: the state of its gradients, and what it has done so far."""

    __slots__ = (
        "_carries",
        "_first",
        "_harmless",
        "_judged",
        "_pattern",
        "_patterns",
        "_run",
        "_short",
        "_step",
        "cuts",
        "declared",
        "drops",
        "lent",
        "name",
        "node",
        "steady",
        "steps",
        "usual",
        "window",
        "windows",
    )

    def __init__(self, name: str, node: Node) -> None:
        self.name = name
        self.node = node
        self.steps = 0
        self.window = 0
        """Backward calls since the clear."""
        self.windows: dict[int, int] = {}
        """How often a step closed a window of each length."""
        self.usual = 0
        """How long the latest windows were, all alike."""
        self.declared = 0
        """How long windows are meant to be, as the user says."""
        self.steady = False
        """They were alike often enough that another such window says nothing new."""
        self.lent: Node | None = None
        """Where it stood when another's step used what is there: whoever drops it then drops nothing."""
        self._carries = False
        self._run = 0
        self._first = 0
        self._judged = 0
        self._short = 0
        self._step: Event | None = None
        self.drops: list[tuple[Event, Event]] = []
        """Since the last step: the clears that dropped something, and the backward it came from."""
        self._harmless: list[tuple[Event, Event]] = []
        """What was dropped before the last step, if nothing like it was used."""
        self.cuts = False
        """A step was preceded by clears that dropped the like of what it used."""
        self._pattern: object = None
        self._patterns = 0

    def plain(self, step: Event) -> bool:
        """Whether the step closes a window like the last one, as long as is meant, and no more."""
        return (
            self.window == self.usual
            and (not self.drops or self.drops == self._harmless)
            and self.steady
            and step.length in (0, self.usual)
        )

    def dropped(self, clear: Event, before: State) -> Broken:
        """A clear that came before the window's step."""
        backward = before.backward
        if backward is None or clear.inner:
            return
        if len(self.drops) <= LONGEST_MEMORY:
            self.drops.append((clear, backward))
        if before.grads is Grads.STALE:
            return  # what another phase has left on used gradients is no window
        if 0 < self.window < self._meant() and self._step is not None:
            yield from self._remainder(before, clear)

    def closed(self, step: Event, before: State) -> Broken:
        """A step that used the window."""
        self._step = step
        if step.length != self.declared:
            self.declared, self._judged, self._short = step.length, 0, 0
        if not self.window:
            return
        self.windows[self.window] = self.windows.get(self.window, 0) + 1
        if before.grads is Grads.STALE:
            # A window that was never cleared says nothing of how long windows are meant to be.
            self._run = self.usual = 0
            self.steady = False
        else:
            yield from self._lengths(step, before)
        yield from self._cut(step, before)
        self._harmless, self.drops = ([] if self._pattern else self.drops), []

    def ended(self, end: Event) -> Broken:
        """The run is over, and nothing will step what is left."""
        state = self.node.state
        if state.backward is None or state.grads is Grads.STALE or self._carries:
            return
        if self._step is not None:
            if 0 < self.window < self._meant():
                yield from self._remainder(state, end)

    def _meant(self) -> int:
        """How long a window is meant to be; 0 while that is not known."""
        return self.declared or (self.usual if self._run >= ALIKE else 0)

    def _lengths(self, step: Event, before: State) -> Broken:
        meant, window = self._meant(), self.window
        seen = replace(before, window=window, carried=False, cut=False)
        guarded = replace(step, guard=step.site, length=meant)
        # Where windows are of all lengths, by what the data holds, a longer one carries nothing on.
        if meant >= 2 and meant < window < 2 * meant and self.windows.keys() <= {meant, window}:
            self._carries = True
            yield from _told(carried_window.RULE, replace(seen, carried=True), guarded)
        self._first = self._first or window
        if self.declared >= 2:
            self._judged += 1
            self._short += window < meant
            # Every epoch may end on a short window; most of them may not.
            if self._judged == 2 * meant and self._short > meant:
                yield from _told(misplaced_guard.RULE, seen, guarded)
        self._run = self._run + 1 if window == self.usual else 1
        self.steady = self._run > ALIKE
        self.usual = window
        begun = sum(self.windows.values()) == 1 + ALIKE
        if begun and self._run == ALIKE and self._first < window:
            first = replace(seen, window=self._first)
            yield from _told(misplaced_guard.RULE, first, replace(guarded, length=window))

    def _cut(self, step: Event, before: State) -> Broken:
        """The clear drops the same part of every window."""
        pattern = None
        if self.drops and before.backward is not None:
            sites = {(clear.site, backward.site) for clear, backward in self.drops}
            if len(sites) == 1 and self.drops[0][1].site == before.backward.site:
                pattern = (len(self.drops), sites.pop())
                self.cuts = True
        self._patterns = self._patterns + 1 if pattern == self._pattern and pattern else 1
        self._pattern = pattern
        if pattern and self._patterns == CONVINCED:
            clear, backward = self.drops[0]
            held = replace(before, backward=backward, held=Event(Kind.HOLD, step.site))
            yield from _told(zero_in_window.RULE, held, replace(clear, loop=0))

    def _remainder(self, before: State, end: Event) -> Broken:
        assert self._step is not None
        held = Event(Kind.HOLD, self._step.site, loop=-1)
        seen = replace(before, held=held, window=self.window)
        yield from _told(dropped_window.RULE, seen, replace(end, length=self._meant(), loop=0))


LONGEST_MEMORY = 64


def _told(rule: Rule, before: State, event: Event) -> Broken:
    violation = rule.check(before, event)
    if violation is not None:
        yield rule, violation
