"""Turns what torch does into events: torch calls the `Watcher`, which hands each call to its parts.

A call that a steady loop expects is taken at once, whatever the model's size. Any other goes the
ordinary way: who drives the subject (`lanes`), what a backward meets (`gradient_probe`), what a step
uses and a clear drops (`step_and_clear`), what a scaler does (`grad_scaler`), what ranks share
(`ranks`). What is posted to the judge was seen, not guessed.
"""

from __future__ import annotations

import sys
import threading
import weakref
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, Protocol

from zerograd.core.events import Backward, Clip, End, Event, Unknown, Zero
from zerograd.core.lifecycle import Grads
from zerograd.fold.judge import Judge
from zerograd.runtime import autograd_graph
from zerograd.runtime.call_sites import NOWHERE, no_frame
from zerograd.runtime.disguise import UNSEEN
from zerograd.runtime.event_cache import EventCache
from zerograd.runtime.finite_check import SOONEST, FiniteCheck
from zerograd.runtime.grad_scaler import Scaling
from zerograd.runtime.gradient_probe import GradientProbe
from zerograd.runtime.idle_optimizers import IdleOptimizers
from zerograd.runtime.lanes import Lanes, ThreadLane
from zerograd.runtime.looks import Look, close
from zerograd.runtime.missing_detach import MissingDetach
from zerograd.runtime.optimizer_lives import OptimizerLives
from zerograd.runtime.optimizer_names import OptimizerNames
from zerograd.runtime.orphans import EVERY, Orphans
from zerograd.runtime.posting import Posting
from zerograd.runtime.program_source import ProgramSource
from zerograd.runtime.ranks.replicas import Replicas
from zerograd.runtime.ranks.sync import RankSync
from zerograd.runtime.round_memory import BackwardOnSubject, is_calm
from zerograd.runtime.steady_loop import OUTSIDE, BackwardCount, ExpectedCall
from zerograd.runtime.step_and_clear import StepAndClear
from zerograd.runtime.step_guards import StepGuards
from zerograd.runtime.subjects import Subject
from zerograd.runtime.unnoticed import is_ours, unnoticed
from zerograd.runtime.untrained import UntrainedParameters

if TYPE_CHECKING:
    from torch import Tensor

    from zerograd.runtime.norms import Meter

ABOVE_PATCH = 3
"""How far above the watcher the user is: our patch is between."""
NO_LOOKS: tuple[Look, ...] = ()
MOST_WALKED = 1024
"""A program with more backward calls than that makes code as it goes: the graphs of others are not walked at first."""

_ref = weakref.ref


def _frame(far: int) -> Any:
    """The frame so far above the caller."""
    try:
        return sys._getframe(far + 1)
    except ValueError as error:
        return no_frame(error)


class Host(Protocol):
    """Who has started the watcher."""

    def failed(self, error: BaseException) -> None:
        """Something of ours went wrong; nothing is watched any more."""
        ...

    def ranks_met(self) -> None:
        """The ranks have formed a process group."""
        ...

    def rank_stepped(self) -> None:
        """A step was taken of parameters that ranks share."""
        ...

    def enough(self) -> None:
        """As many steps were watched as somebody has asked for."""
        ...

    def problem(self, message: str, wrong: bool) -> None:
        """Why ranks cannot be compared; `wrong` if that is a mistake in how the run was started."""
        ...


RunningBackward = tuple[Backward, Sequence[Look], list[Subject], Any]
"""A backward that is running: what to ask when it has ended, which subject, and the call site."""


class Watcher:
    """Listens to torch, and posts what happens to the gradients.

    `patches` calls its methods; a frame is that of the user's call, above torch.
    """

    _failed = False
    _meter: Meter | None = None
    _most_steps = 0
    """After so many steps nothing is watched any more; 0 if everything is."""

    def __init__(
        self,
        torch: Any,
        judge: Judge,
        host: Host,
        events: EventCache,
        home: str,
        passing: tuple[type[BaseException], ...] = (),
    ) -> None:
        """Paths are relative to `home`. Exceptions of the types in `passing` are meant to reach the program."""
        self._judge = judge
        self._host = host
        self._passing = passing
        self._failing = threading.Lock()
        """Taken by the thread whose fault ends the watching."""
        self.heard = unnoticed(torch, self.fault)
        self.unseen = UNSEEN
        self.unseen.stepped = False
        self.compiled: set[str] = set()
        """What the subjects are called that have stepped in compiled code."""
        self._count = BackwardCount()
        self._next_walk = EVERY
        """The backward whose graph is walked to find parameters that no optimizer has."""
        self._walked: dict[int, Backward] = {}
        """By identity: the backward calls whose graph was walked when they ran first."""
        self._next_finite = 1 + SOONEST
        """The backward before which parameters are looked at, whether they are finite."""
        self._tensor, self._parameter = torch.Tensor, torch.nn.Parameter
        self._graph_task = torch._C._current_graph_task_id
        self._places = events.places
        self._events = events
        posting = Posting(judge)
        self._post = posting.post
        source = ProgramSource()
        self._lives = OptimizerLives()
        self._idle = IdleOptimizers(self._events, posting, self._lives)
        names = OptimizerNames(source, home)
        self.lanes = Lanes(
            torch,
            judge,
            self._events,
            posting,
            self._count,
            self.heard,
            names,
            self._lives,
            self._idle,
            look=self._look_in_loop,
        )
        self.here = self.lanes.here
        self._subjects = self.lanes.subjects
        self.sync = RankSync(
            torch,
            self._places,
            self._events,
            met=host.ranks_met,
            shares_more=self.lanes.leave_loops,
            heard=self.heard,
        )
        self.scaling = Scaling(self._places, self._events, posting, self.lanes)
        self.replicas = Replicas(torch, scaler=self.scaling.last_scaler, problem=host.problem)
        self._probe = GradientProbe(self._events, posting, self.sync, self.heard)
        self._finite = FiniteCheck(torch, self._norm)
        self._detach = MissingDetach(torch)
        self._untrained = UntrainedParameters(self._subjects)
        self._steps = StepAndClear(
            torch,
            self._events,
            posting,
            self.lanes,
            self.sync,
            self.replicas,
            self._finite,
            self._detach,
            self._lives,
            StepGuards(self._places, source),
            lambda: self._count.backwards,
            host.rank_stepped,
        )
        self._orphans = Orphans(torch, self._subjects, self._post_for_nobody)

    # What the host asks for

    def expect(self, length: int) -> None:
        """From now on windows are meant to be so long; 0 is that nothing is said."""
        self.lanes.leave_loops()
        self._steps.expect(length)

    def allow(self, codes: tuple[str, ...]) -> None:
        """From now on these rules are silenced."""
        self.lanes.leave_loops()
        self._events.allow(codes)

    def record(self, meter: Meter | None) -> None:
        """From now on events are recorded, with what is measured at them; None: no more."""
        self.lanes.leave_loops()
        self._meter = meter
        self._judge.recorder = meter
        self._probe.thorough = meter is not None

    def _norm(self, subject: Subject) -> Tensor | None:
        """The norm that a step uses, if it is recorded."""
        return None if self._meter is None else self._meter.norm(subject)

    def end_after(self, steps: int) -> None:
        """Nothing is watched any more at the first backward after so many steps; 0: to the end."""
        self._most_steps = steps
        self._count.next_look = 0

    # Backward

    def backward_begins(
        self, frame: Any, outputs: Any, gradients: Any = ()
    ) -> ExpectedCall | RunningBackward | None:
        """A backward that accumulates is about to run. None: `backward_ended` is not called for it."""
        if self._graph_task() != OUTSIDE:
            return None  # one inside another, as in checkpointing, is part of it
        lane, count = self.here.lane, self._count
        if count.backwards >= count.next_look and not self._failed:
            self._look(lane, count.backwards + 1, outputs, frame)
        if lane.loop.is_followed:
            expected = lane.loop.backward_begins(frame, may_read=True)
            if expected is not None:
                return expected
            lane.loop.leave()
        count.backwards += 1
        return self._backward_begins(lane, frame, outputs, gradients)

    def _backward_begins(
        self, lane: ThreadLane, frame: Any, outputs: Any, gradients: Any
    ) -> RunningBackward | None:
        if self._failed:
            return None
        if lane.pending:
            self.lanes.register(lane)
        if self.unseen.stepped:
            self._stepped_unseen(lane)
        scaled: bool | None = False
        if self.scaling.active:
            scaled = self.scaling.is_scaled(outputs, gradients, frame)
        event = self._events.backward(frame, scaled)
        if gradients and gradients[0] is outputs[0] and outputs[0].numel() == 1:
            event = self._events.variant(event, own_gradient=True)
        if id(event) not in self._walked and len(self._walked) < MOST_WALKED:
            self._walk(lane, self._count.backwards, outputs, frame)
            self._walked[id(event)] = event
        self.sync.begins(event)
        for subject in lane.probed:
            if subject.stepping.depth:
                self._steps.backward_in_step(subject)
        if len(lane.probed) > 1:
            self._detach.before_backward(lane.probed, event, outputs)
        looks = self._probe.before(lane, event)
        if len(lane.probed) == 1:
            clear = lane.probed[0].probe.cleared
            if clear is not None:
                self._note(lane.probed[0], clear, frame)
        return event, looks, lane.probed, frame

    def _look(self, lane: ThreadLane, number: int, outputs: Any, frame: Any) -> None:
        """The looks that are due before some of the backward calls."""
        if self._most_steps and self._judge.steps >= self._most_steps:
            self._most_steps = 0
            self._host.enough()
            return
        if number >= self._next_finite:
            if self._meter is None and self._finite.look(lane.probed):
                lane.loop.leave()
            self._next_finite = self._finite.next(number)
        if number >= self._next_walk:
            if self._orphans.is_due(self._judge.steps):
                self._walk(lane, number, outputs, frame)
            else:
                self._next_walk = number + 1
        self._plan(number)

    def _look_in_loop(self, subjects: Iterable[Subject]) -> bool:
        """The same before a backward of a followed loop; False if more is due than to read some numbers."""
        number = self._count.backwards + 1
        if number >= self._next_walk or self._most_steps:
            return False
        if not all(map(self._finite.look_in_loop, subjects)):
            return False
        self._next_finite = self._finite.next(number)
        self._plan(number)
        return True

    def _plan(self, number: int) -> None:
        """Set the backward before which something is due again: with a limit on steps, that is the next one."""
        self._count.next_look = (
            number if self._most_steps else min(self._next_walk, self._next_finite) - 1
        )

    def _walk(self, lane: ThreadLane, number: int, outputs: Any, frame: Any) -> None:
        """Follow the graph to the parameters that it reaches and no optimizer has."""
        if lane.pending:
            self.lanes.register(lane)
        leaves = autograd_graph.leaves(outputs)
        strangers = self._strangers(leaves)
        if strangers and not self.lanes.searched:
            self.lanes.search(lane, leaves)
            strangers = self._strangers(leaves)
        site = self._places.site(frame)
        self._orphans.look(strangers, site, self._judge.steps)
        for missed in self._untrained.look(leaves, strangers):
            event = self._events.variant(self._events.event(Backward, site), missed=missed)
            self._post_for_nobody(event)
        self._next_walk = min(self._orphans.next(number), self._untrained.next(number))
        self._plan(number)

    def _strangers(self, leaves: list[Any]) -> list[Any]:
        """The leaves of a graph that are parameters of no optimizer seen so far."""
        return [one for one in self._subjects.strangers(leaves) if isinstance(one, self._parameter)]

    def _post_for_nobody(self, event: Event) -> None:
        """An event of parameters that belong to no subject."""
        self._judge.post(self._judge.track(""), event)

    def backward_ended(self, running: ExpectedCall | RunningBackward, failed: bool) -> None:
        """A backward has run."""
        if isinstance(running, ExpectedCall):
            lane = running.subject.lane
            if not failed and lane.loop.backward_ends(running):
                return
            looks = running.hand_over()
            lane.loop.leave()
            running = (running.event, looks, lane.probed, None)
        self._backward_ended(running, failed)

    def _backward_ended(self, running: RunningBackward, failed: bool) -> None:
        event, looks, subjects, frame = running
        if self._failed:
            close(looks)
            return
        posted = self._probe.after(subjects, looks, event, failed=failed)
        self.here.lane.looks = NO_LOOKS
        for subject in subjects:
            if subject.probe.hit and not failed:
                self._steps.backward_reached(subject)
            if event.scaled and subject.probe.reached:
                self.scaling.backward_reached(subject)
            if subject.name not in posted:
                if subject.probe.reached and not failed:
                    self._post(subject, self.sync.annotate(subject, event))
                else:
                    self._post(subject, self._events.variant(event, may=True))
        if len(subjects) > 1 and not failed:
            self._detach.after_backward(subjects, event)
        if len(subjects) == 1:
            plain = not looks and not failed and subjects[0].probe.hit
            self._note(subjects[0], event, frame if plain else None)
        elif subjects:
            self._note_together(subjects, looks, event, None if failed else frame)

    def _note_together(
        self, subjects: list[Subject], looks: Sequence[Look], event: Backward, frame: Any
    ) -> None:
        """A backward that several subjects were compared with has run."""
        loop = self.here.lane.loop
        if loop.round is not None:
            parts: list[BackwardOnSubject] = []
            if frame is not None and all(look.exact is None for look in looks):
                of = {look.subject.name: look for look in looks}
                if all(one.name in of or one.probe.misses_all(event) for one in subjects):
                    parts = [BackwardOnSubject(one, of.get(one.name)) for one in subjects]
            self._note(subjects[0], event, frame if parts else None, parts=parts)

    # Steps

    def step_begins(self, optimizer: Any) -> None:
        if self._failed:
            return
        lane = self.here.lane
        if self.unseen.stepped:
            self._stepped_unseen(lane)
        subject = self._subjects.of(optimizer)
        if subject is not None:
            subject.leave_loop()
            self._steps.begin_step(subject, optimizer)
            if subject.used.mixed or subject.track.node.crossed is not None:
                self._probe.before_step(subject)
                self._steps.measure(subject, optimizer, scaled=lane.scaling is not None)

    def step_ended(self, frame: Any, optimizer: Any) -> None:
        lane = self.here.lane
        if self._failed or (lane.loop.is_followed and lane.loop.step_ends(frame, optimizer)):
            return
        subject = self._subjects.known(optimizer)
        if subject is None:
            return
        if not subject.stepping.depth:
            self._steps.begin_step(subject, optimizer)  # it has begun in compiled code
        scaled = lane.scaling is not None
        if self.scaling.active and not scaled:
            self.scaling.before_use(subject, frame)
        event = self._steps.end_step(subject, optimizer, scaled, frame)
        if event is not None:
            of = subject.stepping.optimizer
            self._note(subject, event, frame, of)
            several = len(subject.lane.probed) > 1
            if subject.lane.loop.round_ends(subject, several=several):
                if self._is_plain(subject, lane, several=several):
                    beside = lane.probed if several else ()
                    subject.lane.loop.follow(self._subjects.groups, beside)

    def _stepped_unseen(self, lane: ThreadLane) -> None:
        """Compiled code has stepped: nothing is known any more of the gradients that it may have used."""
        self.unseen.stepped = False
        self.lanes.leave_loops()
        moved = [
            subject
            for subject in self._subjects.all
            if subject.track.node.grads is not Grads.SPENT
            and subject.last_backward.weights_version not in (-1, subject.probe.param._version)
        ]
        for subject in moved or lane.probed:
            self.compiled.add(self.lanes.names.title(subject.name))
            subject.stepping.depth = 0
            self._post(subject, self._events.event(Unknown, NOWHERE))

    def grouped(self, optimizer: Any) -> bool:
        """An optimizer got parameters; whether some of them are under FSDP2."""
        if self._failed:
            return False
        self._subjects.changed(optimizer)
        lane = self.here.lane
        lane.loop.leave()
        lane.pending.append(_ref(optimizer))
        self._lives.made(optimizer, self._places.site(_frame(1)))
        return self.sync.grouped(optimizer.param_groups[-1]["params"])

    # Clears and clips

    def zeroed(self, frame: Any, optimizer: Any, to_none: bool) -> None:
        if self._failed:
            return
        if self.unseen.stepped:
            self._stepped_unseen(self.here.lane)
        subject = self._subjects.known(optimizer)
        if subject is None:
            return
        if subject.lane is None and not self.lanes.in_backward:
            self.lanes.adopt(subject)
        if subject.track.node.grads is Grads.LIVE and not subject.track.steps:
            self._idle.cleared(subject, optimizer, frame)
        event = self._events.zero(frame, to_none)
        for one in (subject, *subject.covers):
            self._clear(one, event, frame)
        self._note(subject, event, frame, id(optimizer))

    def module_zeroed(self, frame: Any, module: Any, to_none: bool) -> None:
        if self._failed:
            return
        lane = self.here.lane
        if lane.pending:
            self.lanes.register(lane)
        if self.unseen.stepped:
            self._stepped_unseen(lane)
        subjects = self._subjects.covered(module)
        if subjects:
            event = self._events.zero(frame, to_none)
            for subject in subjects:
                self._clear(subject, event, frame)
            self._note_each(subjects, event, frame, _ref(module))

    def _clear(self, subject: Subject, event: Zero, frame: Any) -> None:
        subject.leave_loop()
        self._steps.clear(subject, event, frame)
        if self.lanes.is_driven_elsewhere(subject):
            self._post(subject, self._events.event(Unknown, NOWHERE))

    def clipped(self, params: Any) -> None:
        """The gradients of one parameter, or of several, are about to be clipped."""
        if self._failed or not isinstance(params, Iterable):
            return
        params = [params] if isinstance(params, self._tensor) else list(params)
        if not params:
            return
        frame = self._places.outside_torch(_frame(ABOVE_PATCH))
        key = (id(params[0]), id(params[-1]), len(params), self._subjects.generation)
        lane = self.here.lane
        if lane.loop.clips(frame, key):
            return
        if lane.pending:
            self.lanes.register(lane)
        if self.unseen.stepped:
            self._stepped_unseen(lane)
        among = self._subjects.clipped(key, params)
        clipped = among.now()
        for subject in clipped:
            subject.leave_loop()
        subjects = self._steps.before_clip(clipped, strangers=among.strangers)
        if subjects:
            event = self._events.event(Clip, self._places.site(frame))
            for subject in subjects:
                if self.scaling.active:
                    self.scaling.before_use(subject, frame)
                elsewhere = self.lanes.is_driven_elsewhere(subject)
                self._post(subject, self._events.event(Unknown, NOWHERE) if elsewhere else event)
            self._note_each(subjects, event, frame, key)

    # Scalers

    def scaled(self, scaler: Any, outputs: Any) -> None:
        self.scaling.scaled(scaler, outputs)

    def unscaling(self, scaler: Any, optimizer: Any) -> None:
        if not self._failed:
            self.scaling.unscale_begins(scaler, optimizer, _frame(ABOVE_PATCH))

    def scaler_step_begins(self, scaler: Any, optimizer: Any) -> None:
        if not self._failed:
            self.scaling.step_begins(scaler, optimizer, _frame(ABOVE_PATCH))

    def scaler_step_ended(self, optimizer: Any, failed: bool) -> None:
        """A scaler has stepped an optimizer, or has skipped the step."""
        skipped = None if self._failed else self.scaling.step_ended(optimizer, failed)
        if skipped is not None:
            self._steps.skip(skipped, _frame(ABOVE_PATCH))

    def updated(self) -> None:
        if not self._failed:
            self.scaling.updated(_frame(ABOVE_PATCH))

    # The end

    def ends(self, *, clean: bool) -> None:
        """The run is over; a run that was stopped is not blamed for what it has not come to."""
        self.lanes.leave_loops()
        if self.unseen.stepped:
            self._stepped_unseen(self.here.lane)
        for subject in self._subjects.all:
            if subject.finite.suspicious and self._finite.is_restored(subject):
                self._post(subject, self._events.event(End, NOWHERE, restored=True))
            self._idle.over(subject, blamed=clean)

    def stop(self) -> None:
        """Nothing is watched any more, whatever is running."""
        self._failed = True
        self.lanes.leave_loops()
        self.lanes.stop()

    # Faults of ours

    def fault(self, error: BaseException) -> bool:
        """Our code has raised an error. If it is ours, say so once, and watch no more; else False."""
        if isinstance(error, self._passing):
            return False
        if not is_ours(error):
            self._interrupted()
            return False
        if self._failing.acquire(blocking=False):
            self._failed = True
            self.lanes.keep_names()
            self.lanes.stop()
            self._host.failed(error)
        return True

    def _interrupted(self) -> None:
        """An exception has interrupted our code: what it had begun to note is not known."""
        lane = self.here.lane
        close(lane.looks)
        lane.looks = NO_LOOKS
        for subject in lane.probed:
            subject.stepping.depth = 0
            self._post(subject, self._events.event(Unknown, NOWHERE))

    # Steady loops

    def _note_each(self, subjects: list[Subject], event: Event, frame: Any, of: object) -> None:
        """Note a call for several subjects once in the loop of each thread that drives some of them."""
        for subject in {id(one.lane): one for one in subjects}.values():
            self._note(subject, event, frame, of)

    def _note(
        self,
        subject: Subject,
        event: Event,
        frame: Any,
        of: object = 0,
        parts: Sequence[BackwardOnSubject] = (),
    ) -> None:
        """Note the call of a posted event: it may be part of a loop that repeats itself."""
        lane = subject.lane
        if lane is not None and lane.loop.round is not None:
            position = None
            if frame is not None and lane is self.here.lane:
                position = self._places.position(frame)
            beside = lane.probed if len(lane.probed) > 1 else ()
            lane.loop.add(subject, event, position, of, parts, beside)

    def _is_plain(self, subject: Subject, lane: ThreadLane, *, several: bool) -> bool:
        """Whether there is nothing about a subject that has to be looked at in every round."""
        windows, used = subject.track.windows, subject.used
        return (windows.steady or (windows.even and not several)) and not (
            self.sync.active
            or self.scaling.active
            or self._steps.length
            or self._judge.recorder
            or lane.pending
            or lane.scaling
            or subject.stepping.depth
            or (not several and (used.met or used.mixed or not is_calm(subject)))
        )
