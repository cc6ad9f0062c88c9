"""Who drives which subject, and under which name it is reported.

A subject belongs to the thread that steps it. Optimizers are found when they are made, when they step, or by a
search.
"""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from zerograd.core.automaton import Edge
from zerograd.core.events import New, Site, Unknown
from zerograd.fold.judge import Judge
from zerograd.runtime.call_sites import NOWHERE
from zerograd.runtime.event_cache import EventCache
from zerograd.runtime.gradient_values import holding
from zerograd.runtime.idle_optimizers import IdleOptimizers
from zerograd.runtime.optimizer_lives import OptimizerLives
from zerograd.runtime.optimizer_names import OptimizerNames
from zerograd.runtime.orphans import optimizers
from zerograd.runtime.posting import Posting
from zerograd.runtime.steady_loop import OUTSIDE, BackwardCount, SteadyLoop
from zerograd.runtime.subjects import Subject, Subjects

if TYPE_CHECKING:
    from torch import Tensor

MOST_PROBES = 16
"""With more subjects than that, backward calls are not distinguished by subject."""


class ThreadLane:
    """What one thread drives. No other may look at its gradients: torch itself writes them unguarded."""

    scaling: object = None
    """The optimizer that a scaler is stepping."""
    looks: Sequence[Any] = ()
    """What the backward that is running is looked at with, as `looks.Look`s."""

    def __init__(self, loop: SteadyLoop) -> None:
        self.loop = loop
        self.thread = weakref.ref(threading.current_thread())
        self.probed: list[Subject] = []
        """The subjects that are stepped outside of backward: each backward is compared with them."""
        self.used: dict[str, Subject] = {}
        """Those whose gradients a step has used: a backward may add to them although it should not."""
        self.pending: list[weakref.ref[Any]] = []
        """Optimizers that were made since."""

    @property
    def ended(self) -> bool:
        thread = self.thread()
        return thread is None or not thread.is_alive()


class Here(threading.local):
    """The lane of the thread that asks."""

    def __init__(self, loop: Callable[[], SteadyLoop]) -> None:
        self.loop = loop()
        self.lane = ThreadLane(self.loop)


class Lanes:
    """The subjects of the program, and the threads that drive them."""

    keeps_names = True
    """Whether the names of subjects that are gone are asked for at the end."""
    searched = False
    """Whether optimizers that were made before the watch began have been searched for."""

    def __init__(
        self,
        torch: Any,
        judge: Judge,
        events: EventCache,
        posting: Posting,
        count: BackwardCount,
        heard: Callable[..., Any],
        names: OptimizerNames,
        lives: OptimizerLives,
        idle: IdleOptimizers,
        *,
        look: Callable[[Iterable[Subject]], bool],
    ) -> None:
        """Followed loops call `look` before a backward that is due for a look."""
        self._torch = torch
        self._lives = lives
        self._idle = idle
        self._judge = judge
        self._event = events.event
        self._post = posting.post
        self._graph_task = torch._C._current_graph_task_id
        self.here = Here(lambda: SteadyLoop(judge, count, look))
        self.subjects = Subjects(judge.track, self._forget, heard, self._name)
        self.names = names
        self.parameters: dict[str, int] = {}
        """How many parameters each subject has that was driven; also of those that are gone."""

    @property
    def in_backward(self) -> bool:
        """Whether a backward is running in this thread."""
        return bool(self._graph_task() != OUTSIDE)

    def register(self, lane: ThreadLane) -> None:
        """Take up the optimizers that were made since: their gradients begin here."""
        pending, lane.pending = lane.pending, []
        for ref in pending:
            optimizer = ref()
            if optimizer is None or not hasattr(optimizer, "param_groups"):
                continue
            subject = self.subjects.of(optimizer)
            if subject is not None and subject.lane is None and not self.in_backward:
                self.adopt(subject)
                if not holding(subject.params):
                    self._post(subject, self._event(New, NOWHERE))

    def search(self, lane: ThreadLane, leaves: list[Tensor]) -> None:
        """Look for optimizers made before the watch began, among those whose parameters these are."""
        self.searched = True
        reached = set(map(id, leaves))
        for optimizer in optimizers(self._torch)[0]:
            groups = optimizer.param_groups
            if any(id(param) in reached for group in groups for param in group["params"]):
                lane.pending.append(weakref.ref(optimizer))
        self.register(lane)

    def adopt(self, subject: Subject) -> bool:
        """This thread drives a subject; False if several do at once: they cannot be distinguished."""
        lane = self.here.lane
        if subject.lane is None:
            self.parameters[subject.name] = len(subject.params)
        else:
            self._post(subject, self._event(Unknown, NOWHERE))
            self._leave(subject)
            if not subject.lane.ended:
                return False
        subject.lane = lane
        lane.loop.begins(alone=not lane.probed)
        if len(lane.probed) < MOST_PROBES:
            lane.probed.append(subject)
        return True

    def is_driven_elsewhere(self, subject: Subject) -> bool:
        """Whether another thread drives a subject: that thread goes on with what this one has left of the gradients."""
        lane = subject.lane
        return lane is not None and lane is not self.here.lane and not lane.ended

    def leave_loops(self) -> None:
        """Leave all followed loops: the next calls are handled one by one."""
        for subject in self.subjects.all:
            subject.leave_loop()

    def ahead(self) -> dict[str, list[Edge]]:
        """By subject: the edges of the round that it repeats, which its track has not taken yet."""
        return {
            subject.name: [edge for one, edge in subject.lane.loop.taken() if one is subject]
            for subject in tuple(self.subjects.all)
            if subject.lane is not None
        }

    def keep_names(self) -> None:
        """The names of the subjects are asked for after `stop`, too."""
        for subject in tuple(self.subjects.all):
            self.names.gone(subject.name)

    def stop(self) -> None:
        """Nothing is watched any more, and nothing is kept."""
        self.here.lane.scaling = None
        for subject in tuple(self.subjects.all):
            self._leave(subject)
        self.subjects.clear()

    def _leave(self, subject: Subject) -> None:
        lane = subject.lane
        if lane is not None:
            lane.loop.forget()
            lane.probed = [one for one in lane.probed if one is not subject]
            lane.used.pop(subject.name, None)

    @property
    def titles(self) -> dict[str, str]:
        """What each subject is called that was driven; also of those that are gone."""
        return {name: self.names.title(name) for name in tuple(self.parameters)}

    def _name(self, subject: Subject, optimizer: Any) -> None:
        made = self._lives.made_at(optimizer)
        self.names.add(subject.name, optimizer, len(subject.params), made)
        self.names.steps_at(subject.name, partial(_step_site, weakref.ref(subject)))

    def _forget(self, subject: Subject, optimizer_is_gone: bool) -> None:
        self._idle.over(subject, blamed=optimizer_is_gone)
        if self.keeps_names or self._judge.may_still_report(subject.name):
            self.names.gone(subject.name)
        self._leave(subject)
        self._judge.forget(subject.name)


def _step_site(ref: weakref.ref[Subject]) -> Site | None:
    """Where the program has last stepped a subject, itself and not together with another one."""
    subject = ref()
    state = None if subject is None else subject.track.node.state
    if state is None or state.used is None or state.shared:
        return None
    return state.used.site
