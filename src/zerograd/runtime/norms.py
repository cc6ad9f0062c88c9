"""Measures the norm of the gradients that every step uses. Only recordings need it.

It computes on the device and fetches the numbers in batches. Where a step uses more than it should,
its event has the numbers (`step_sums`).
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

from zerograd.core.events import Event, Step
from zerograd.core.interruptions import Tolerating
from zerograd.recording.writer import Recorder
from zerograd.runtime.gradient_values import holding, numbers, plain
from zerograd.runtime.optimizer_names import OptimizerNames
from zerograd.runtime.subjects import Subject

if TYPE_CHECKING:
    from torch import Tensor

BATCH = 128
"""How many norms are fetched at once; a crash loses no more than these."""


class _Measurements:
    """What is measured of one subject."""

    def __init__(self, parameters: int) -> None:
        self.parameters = parameters
        """How many parameters the subject has."""
        self.first = 1
        """The number of the step that the first norm in `used` belongs to."""
        self.used: list[Tensor] = []
        self.rights: dict[int, Tensor] = {}
        """By index in `used`: what the norm should have been."""
        self.now: Tensor | None = None
        """The norm of the step that is about to be recorded, if it was asked for."""


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

    def norm(self, subject: Subject) -> Tensor | None:
        """The norm that a step, which is about to be recorded, uses; None if the subject is new."""
        known = self._known.get(subject.name)
        if known is None:
            return None
        known[1].now = self._norm_of(subject)
        return known[1].now

    def flush(self) -> None:
        """Write all norms that were not written yet, and the titles of subjects that have changed."""
        for name in tuple(self._known):
            self._write_rest(name)

    def _gone(self, name: str) -> None:
        if name in self._known:
            self._write_rest(name)
            del self._known[name]

    def _write_rest(self, name: str) -> None:
        if self._names.title(name) != self._titles[name]:
            self._write_title(name)
        self._write_norms(name)

    def _first_event(self, name: str) -> tuple[weakref.ref[Subject], _Measurements] | None:
        """Record the title of a subject at its first event."""
        for subject in self._subjects:
            if subject.name == name:
                ref = weakref.ref(subject, lambda _: self._heard(self._gone, name))
                self._known[name] = (ref, _Measurements(len(subject.params)))
                self._write_title(name)
                return self._known[name]
        return None

    def _write_title(self, name: str) -> None:
        self._titles[name] = self._names.title(name)
        called = self._names.called(name)
        self._recorder.title(name, self._titles[name], self._known[name][1].parameters, called)

    def _step(self, subject: Subject, notes: _Measurements, event: Step) -> None:
        used, notes.now = self._norm_of(subject) if notes.now is None else notes.now, None
        if event.measured is not None:
            used = self._torch.tensor(event.measured.got, dtype=self._torch.float64)
            right = self._torch.tensor(event.measured.expected, dtype=self._torch.float64)
            notes.rights[len(notes.used)] = right
        notes.used.append(used)
        if len(notes.used) >= BATCH:
            self._write_norms(subject.name)

    def _norm_of(self, subject: Subject) -> Any:
        held = holding(subject.params)
        with self._torch.no_grad():
            with Tolerating(RuntimeError):  # no memory, or gradients of a kind that has no norm
                grads = [plain(one.grad) for one in held if one.grad is not None]
                return gradient_norm(self._torch, grads)
            return self._torch.tensor(float("nan"))

    def _write_norms(self, name: str) -> None:
        notes = self._known[name][1]
        if notes.used:
            used = numbers(notes.used)
            rights: list[float | None] = [None] * len(used)
            found = numbers(list(notes.rights.values()))
            for at, right in zip(notes.rights, found, strict=True):
                rights[at] = right
            self._recorder.norms(name, notes.first, used, rights)
            notes.first += len(used)
            notes.used, notes.rights = [], {}


def gradient_norm(torch: Any, grads: Iterable[Tensor]) -> Any:
    """The norm of all gradients together, on whatever devices they are; a tensor, not yet fetched."""
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


def _wide(torch: Any, grad: Tensor) -> Any:
    return torch.float32 if grad.dtype in (torch.float16, torch.bfloat16) else None
