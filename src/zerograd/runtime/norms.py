"""Measures the norm of the gradients that every step uses. Only recordings need it.

It computes on the device and fetches the numbers in batches. Where a backward adds to gradients that
were used, it copies those first: what the step should have used is the difference.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

from zerograd.core.events import Assign, Backward, Clip, Event, New, Step, Unknown, Zero
from zerograd.core.interruptions import Tolerating
from zerograd.core.lifecycle import Grads
from zerograd.recording.writer import Recorder
from zerograd.runtime.gradient_values import copies, holding, plain
from zerograd.runtime.optimizer_names import OptimizerNames
from zerograd.runtime.subjects import Subject

if TYPE_CHECKING:
    from torch import Tensor

BATCH = 128
"""How many norms are fetched at once; a crash loses no more than these."""

_FORGETTING = (Zero, Assign, New, Unknown)


class _Measurements:
    """What is measured of one subject."""

    __slots__ = ("base", "clipped", "first", "got", "now", "right", "rights", "used")

    def __init__(self) -> None:
        self.first = 1
        """The number of the step that the first norm in `used` belongs to."""
        self.used: list[Tensor] = []
        self.rights: dict[int, Tensor] = {}
        """By index in `used`: what the norm should have been."""
        self.base: dict[int, Tensor] = {}
        """Copies of used gradients that a backward is about to add to, by the identity of the parameter."""
        self.right: Tensor | None = None
        """The norm of what was added to them, after the last backward."""
        self.got: Tensor | None = None
        """The norm of the sum, then."""
        self.now: Tensor | None = None
        """The norm of the step that is about to be recorded, if it was asked for."""
        self.clipped = False


class Meter:
    """A recorder that measures, and hands events and norms to the recorder that writes them."""

    def __init__(
        self,
        recorder: Recorder,
        torch: Any,
        subjects: Iterable[Subject],
        heard: Callable[..., Any],
        names: OptimizerNames,
    ) -> None:
        self._recorder = recorder
        self._heard = heard
        self._torch = torch
        self._subjects = subjects
        self._names = names
        self._titles: dict[str, str] = {}
        """By the names of subjects: as they were recorded."""
        self._known: dict[str, tuple[weakref.ref[Subject], _Measurements]] = {}
        """By the names of subjects, which are not kept alive: a model that the program drops is freed."""

    def write(self, subject: str, event: Event) -> None:
        """Record an event, and measure what it uses."""
        known = self._known.get(subject) or self._first_event(subject)
        self._recorder.write(subject, event)
        measured = None if known is None else known[0]()
        if known is None or measured is None:
            return
        if isinstance(event, Step):
            if not event.foreign:
                self._step(measured, known[1], event)
        elif known[1].base:
            self._follow(measured, known[1], event)

    def before(self, subjects: Iterable[Subject]) -> None:
        """A backward is about to run; the subjects hold gradients that were used."""
        for subject in subjects:
            known = self._known.get(subject.name)
            if known is not None and not known[1].base:
                known[1].base = copies(subject.params)

    def norm(self, subject: Subject) -> Tensor | None:
        """The norm that a step, which is about to be recorded, uses; None if the subject is new."""
        known = self._known.get(subject.name)
        if known is None:
            return None
        known[1].now = self._norm_of(subject)
        return known[1].now

    def flush(self) -> None:
        """Write all norms that were not written yet, and the titles of subjects that have changed."""
        for name, title in tuple(self._titles.items()):
            known = self._known.get(name)
            subject = None if known is None else known[0]()
            if subject is not None and self._names.title(name) != title:
                self._write_title(subject)
        for name in tuple(self._known):
            self._write_norms(name)

    def _gone(self, name: str) -> None:
        self._write_norms(name)
        self._known.pop(name, None)

    def _first_event(self, name: str) -> tuple[weakref.ref[Subject], _Measurements] | None:
        """Record the title of a subject at its first event."""
        for subject in self._subjects:
            if subject.name == name:
                self._write_title(subject)
                ref = weakref.ref(subject, lambda _: self._heard(self._gone, name))
                self._known[name] = (ref, _Measurements())
                return self._known[name]
        return None

    def _write_title(self, subject: Subject) -> None:
        name = subject.name
        self._titles[name] = self._names.title(name)
        called = self._names.called(name)
        self._recorder.title(name, self._titles[name], len(subject.params), called)

    def _follow(self, subject: Subject, notes: _Measurements, event: Event) -> None:
        """Something happened to gradients that a backward has added to although they were used."""
        if isinstance(event, _FORGETTING):
            _forget(notes)
        elif isinstance(event, Clip):
            notes.clipped = True
        elif isinstance(event, Backward):
            with Tolerating(RuntimeError), self._torch.no_grad():
                came = []
                for param in holding(subject.params):
                    assert param.grad is not None
                    grad, kept = plain(param.grad), notes.base.get(id(param))
                    came.append(grad if kept is None else grad - kept)
                notes.right = self._norm(came)
                notes.got = self._norm_of(subject)

    def _step(self, subject: Subject, notes: _Measurements, event: Step) -> None:
        state = subject.track.node.state
        used, notes.now = self._norm_of(subject) if notes.now is None else notes.now, None
        if state.grads is Grads.STALE or state.crossed is not None:
            right = self._right(notes, used, event)
            if right is not None:
                notes.rights[len(notes.used)] = right
        notes.used.append(used)
        _forget(notes)
        if len(notes.used) >= BATCH:
            self._write_norms(subject.name)

    def _right(self, notes: _Measurements, used: Tensor, event: Step) -> Any:
        """The norm that should have been used, after clips and unscaling."""
        if notes.right is None or notes.got is None:
            return None
        if notes.clipped:
            if event.scaled:
                return None  # clipped and unscaled: only the product of both factors is known
            # If the clip had an effect, the norm that was used is its limit.
            smaller = self._torch.minimum(notes.right, used)
            return self._torch.where(used < notes.got * (1 - 1e-6), smaller, notes.right)
        return notes.right * (used / notes.got) if event.scaled else notes.right

    def _norm_of(self, subject: Subject) -> Any:
        held = holding(subject.params)
        with self._torch.no_grad():
            with Tolerating(RuntimeError):  # no memory, or gradients of a kind that has no norm
                return self._norm([plain(one.grad) for one in held if one.grad is not None])
            return self._torch.tensor(float("nan"))

    def _norm(self, grads: list[Tensor]) -> Any:
        """The norm of all gradients together, on whatever devices they are."""
        torch = self._torch
        alike: dict[object, list[Tensor]] = {}
        for grad in grads:
            if grad.numel():
                alike.setdefault((grad.device, grad.dtype), []).append(grad)
        if not alike:
            return torch.zeros(())
        # Half precision would overflow: these are summed in single precision.
        norms = [
            torch.stack(list(torch._foreach_norm(few, 2, _wide(torch, few[0])))).float()
            for few in alike.values()
        ]
        if len(norms) > 1:
            norms = [torch.cat([norm.to(norms[0].device) for norm in norms])]
        return torch.linalg.vector_norm(norms[0])

    def _write_norms(self, name: str) -> None:
        notes = self._known[name][1]
        if notes.used:
            used = self._numbers(notes.used)
            rights: list[float | None] = [None] * len(used)
            found = self._numbers(list(notes.rights.values()))
            for at, right in zip(notes.rights, found, strict=True):
                rights[at] = right
            self._recorder.norms(name, notes.first, used, rights)
            notes.first += len(used)
            notes.used, notes.rights = [], {}

    def _numbers(self, norms: list[Tensor]) -> list[float]:
        if len({norm.device for norm in norms}) > 1:
            return [float(norm) for norm in norms]
        found: list[float] = self._torch.stack(norms).tolist() if norms else []
        return found


def _wide(torch: Any, grad: Tensor) -> Any:
    return torch.float32 if grad.dtype in (torch.float16, torch.bfloat16) else None


def _forget(notes: _Measurements) -> None:
    notes.base, notes.right, notes.got, notes.clipped = {}, None, None, False
