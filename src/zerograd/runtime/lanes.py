"""Who drives which subject, and under which name: what a watcher has to know before it can look.

A subject belongs to the thread that steps it. Optimizers are met when they are made, when they step,
or when they are searched for.
"""

from __future__ import annotations

import threading
import weakref
from typing import TYPE_CHECKING, Any

from zerograd.core.events import Event, New, Unknown, Zero
from zerograd.fold.judge import Judge
from zerograd.runtime import verify
from zerograd.runtime.call_sites import NOWHERE, Places
from zerograd.runtime.event_cache import EventCache
from zerograd.runtime.orphans import names_in_modules, optimizers
from zerograd.runtime.ranks.sync import Sync
from zerograd.runtime.steady_loop import NO_TURN, Turn
from zerograd.runtime.subjects import Subject, Subjects

if TYPE_CHECKING:
    from torch import Tensor

OUTSIDE = -1
"""No backward is running in this thread."""
MOST_PROBES = 16
"""With more subjects than that, backward calls are not told apart by subject."""


class Here(threading.local):
    """The lane of the thread that asks."""

    def __init__(self) -> None:
        self.lane = Lane()


class Lane:
    """What one thread drives. No other may look at its gradients: torch itself writes them unguarded."""

    __slots__ = ("lap", "outer", "pending", "scaling", "thread", "told", "trail", "turn", "watched")

    def __init__(self) -> None:
        self.turn = NO_TURN
        """What happens next, if all goes on as it did."""
        self.lap: list[Turn] | None = None
        self.trail: list[Turn] | None = None
        """The turns before the last step, and since it; None if there was more than turns."""
        self.told = 0
        """How many events there were since the last step."""
        self.scaling: object = None
        """The optimizer that a scaler is stepping."""
        self.thread = weakref.ref(threading.current_thread())
        self.outer: list[Subject] = []
        """Those that are stepped outside of backward."""
        self.watched: dict[str, Subject] = {}
        """Those whose gradients a backward may add to although it should not."""
        self.pending: list[weakref.ref[Any]] = []
        """Optimizers that were made since."""

    def leave_lap(self) -> None:
        """It does not go on as it did."""
        if self.turn is not NO_TURN:
            self.turn, self.trail = NO_TURN, None

    @property
    def ended(self) -> bool:
        thread = self.thread()
        return thread is None or not thread.is_alive()


class Bookkeeper:
    """Knows the subjects and their lanes, and posts their events."""

    def __init__(self, judge: Judge, torch: Any) -> None:
        self._judge = judge
        self._torch = torch
        self._graph_task = torch._C._current_graph_task_id
        self._places = Places(torch.__path__[0])
        self._events = EventCache(self._places)
        self._event = self._events.event
        self._variant = self._events.variant
        self._subjects = Subjects(judge.track, self._forget)
        self._here = Here()
        self._searched = False
        self.sync = Sync(torch, self._places, self._events)
        self._told = self.sync.told
        self._length = 0
        self.titles: dict[str, str] = {}
        self.parameters: dict[str, int] = {}

    def _rest(self, subject: Subject) -> None:
        """Nothing used is left in its gradients."""
        if subject.lane is not None:
            subject.lane.watched.pop(subject.name, None)

    def _register(self, lane: Lane) -> None:
        """Optimizers that were made since: their gradients begin here."""
        pending, lane.pending = lane.pending, []
        for ref in pending:
            optimizer = ref()
            if optimizer is None or not hasattr(optimizer, "param_groups"):
                continue
            subject = self._subjects.of(optimizer)
            if subject is not None and subject.lane is None and self._graph_task() == OUTSIDE:
                self._adopt(subject)
                if not verify.holding(subject.params):
                    self._post(subject, self._event(New, NOWHERE))

    def _search(self, lane: Lane, leaves: list[Tensor]) -> None:
        """Optimizers that were made before the watch began: those of what a backward reaches."""
        self._searched = True
        reached = set(map(id, leaves))
        for optimizer in optimizers(self._torch)[0]:
            groups = optimizer.param_groups
            if any(id(param) in reached for group in groups for param in group["params"]):
                lane.pending.append(weakref.ref(optimizer))
        self._register(lane)

    def _adopt(self, subject: Subject) -> bool:
        """Note who drives a subject; False if several do at once: they cannot be told apart."""
        lane = self._here.lane
        if subject.lane is None:
            self.titles[subject.name] = subject.title
            self.parameters[subject.name] = len(subject.params)
        else:
            self._post(subject, self._event(Unknown, NOWHERE))
            self._leave(subject)
            if not subject.lane.ended:
                return False
        subject.lane = lane
        lane.leave_lap()
        if len(lane.outer) < MOST_PROBES:
            lane.outer.append(subject)
        return True

    def _leave(self, subject: Subject) -> None:
        lane = subject.lane
        if lane is not None:
            lane.turn, lane.lap, lane.trail = NO_TURN, None, None
            lane.outer = [one for one in lane.outer if one is not subject]
            lane.watched.pop(subject.name, None)

    def _forget(self, subject: Subject) -> None:
        self._leave(subject)
        self._judge.forget(subject.name)

    def _names(self, subject: Subject) -> dict[int, str]:
        if subject.names is None:
            subject.names = names_in_modules(self._torch, subject.params)
        return subject.names

    def _post(self, subject: Subject, event: Event) -> None:
        lane = subject.lane
        if lane is not None:
            lane.leave_lap()
            lane.told += 1
        if isinstance(subject.inside, Zero):
            self._post_clear_of_step(subject)
        self._judge.post(subject.track, event)

    def _post_later(self, subject: Subject, clear: Zero) -> None:
        """A step clears its gradients: whether it has used them before shows when it goes on."""
        self._post_clear_of_step(subject)
        lane = subject.lane
        if lane is not None:
            lane.leave_lap()
            lane.told += 1
        subject.inside = clear

    def _post_clear_of_step(self, subject: Subject) -> None:
        """The running step goes on after its clear: it did not use the gradients before."""
        clear = subject.inside
        if isinstance(clear, Zero):
            subject.inside = None
            self._judge.post(subject.track, clear)

    def expect(self, length: int) -> None:
        """From now on windows are meant to be so long; 0 is that nothing is said."""
        self._length = length
        self.leave_laps()

    def allow(self, codes: tuple[str, ...]) -> None:
        """From now on these rules are silenced."""
        self._events.allow(codes)
        self.leave_laps()

    def leave_laps(self) -> None:
        """Whatever happens is to go the ordinary way."""
        for subject in self._subjects.all:
            if subject.lane is not None:
                subject.lane.leave_lap()

    @property
    def subjects(self) -> list[Subject]:
        """All there are now."""
        return self._subjects.all
