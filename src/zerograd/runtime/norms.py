"""Measures what steps use: the norm of the gradients of every step, for recordings alone.

It reads and never writes, on the device, and asks for the numbers in batches. Where a backward adds
onto gradients that were used, it keeps those, so that what should have been used is the difference.
"""

from __future__ import annotations

import weakref
from collections.abc import Iterable
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from zerograd.core.events import Assign, Backward, Clip, Event, New, Step, Unknown, Zero
from zerograd.core.lifecycle import Grads
from zerograd.recording.writer import Recorder
from zerograd.runtime.gradient_values import copies, holding, plain
from zerograd.runtime.subjects import Subject

if TYPE_CHECKING:
    from torch import Tensor

BATCH = 128
"""So many norms are asked for at once: a crash loses no more."""

_FORGETTING = (Zero, Assign, New, Unknown)


class _Notes:
    """What is noted of one subject."""

    __slots__ = ("base", "clipped", "first", "got", "right", "rights", "used")

    def __init__(self) -> None:
        self.first = 1
        """The step that the first of the waiting norms belongs to."""
        self.used: list[Tensor] = []
        self.rights: dict[int, Tensor] = {}
        """By number among those: what they should have been."""
        self.base: dict[int, Tensor] = {}
        """What parameters hold that was used, and a backward is about to add to; by identity."""
        self.right: Tensor | None = None
        """The norm of what came onto it, when the last backward had run."""
        self.got: Tensor | None = None
        """The norm of all of it, then."""
        self.clipped = False


class Meter:
    """Stands between a judge and a recorder, and adds what it measures."""

    def __init__(self, recorder: Recorder, torch: Any, subjects: Iterable[Subject]) -> None:
        self._recorder = recorder
        self._torch = torch
        self._subjects = subjects
        self._known: dict[str, tuple[weakref.ref[Subject], _Notes]] = {}
        """Subjects are not kept alive: a model that the program drops is gone."""

    def write(self, subject: str, event: Event) -> None:
        """Keep one event, and what is measured at it."""
        known = self._known.get(subject) or self._meet(subject)
        self._recorder.write(subject, event)
        who = None if known is None else known[0]()
        if known is None or who is None:
            return
        if isinstance(event, Step):
            if not event.foreign:
                self._step(who, known[1], event)
        elif known[1].base:
            self._follow(who, known[1], event)

    def before(self, subjects: Iterable[Subject]) -> None:
        """A backward is about to run; the subjects hold gradients that were used."""
        for subject in subjects:
            known = self._known.get(subject.name)
            if known is not None and not known[1].base:
                known[1].base = copies(subject.params)

    def flush(self) -> None:
        """Hand on what waits."""
        for name in tuple(self._known):
            self._hand_on(name)

    def _gone(self, name: str) -> None:
        self._hand_on(name)
        self._known.pop(name, None)

    def _meet(self, name: str) -> tuple[weakref.ref[Subject], _Notes] | None:
        """A subject that shows itself for the first time."""
        for subject in self._subjects:
            if subject.name == name:
                self._recorder.title(name, subject.title, len(subject.params))
                ref = weakref.ref(subject, lambda _: self._gone(name))
                self._known[name] = (ref, _Notes())
                return self._known[name]
        return None

    def _follow(self, subject: Subject, notes: _Notes, event: Event) -> None:
        """Something happened to gradients that hold what was used."""
        if isinstance(event, _FORGETTING):
            _forget(notes)
        elif isinstance(event, Clip):
            notes.clipped = True
        elif isinstance(event, Backward):
            with suppress(RuntimeError), self._torch.no_grad():
                came = []
                for param in holding(subject.params):
                    assert param.grad is not None
                    grad, kept = plain(param.grad), notes.base.get(id(param))
                    came.append(grad if kept is None else grad - kept)
                notes.right = self._norm(came)
                notes.got = self._norm_of(subject)

    def _step(self, subject: Subject, notes: _Notes, event: Step) -> None:
        state = subject.track.node.state
        used = self._norm_of(subject)
        if state.grads is Grads.STALE or state.crossed is not None:
            right = self._right(notes, used, event)
            if right is not None:
                notes.rights[len(notes.used)] = right
        notes.used.append(used)
        _forget(notes)
        if len(notes.used) >= BATCH:
            self._hand_on(subject.name)

    def _right(self, notes: _Notes, used: Tensor, event: Step) -> Any:
        """What should have been used, after all that was done to what was."""
        if notes.right is None or notes.got is None:
            return None
        if notes.clipped:
            if event.scaled:
                return None  # two factors, and only their product is known
            # If the clip had to act, its limit is what was used.
            smaller = self._torch.minimum(notes.right, used)
            return self._torch.where(used < notes.got * (1 - 1e-6), smaller, notes.right)
        return notes.right * (used / notes.got) if event.scaled else notes.right

    def _norm_of(self, subject: Subject) -> Any:
        held = holding(subject.params)
        with self._torch.no_grad():
            try:
                return self._norm([plain(one.grad) for one in held if one.grad is not None])
            except RuntimeError:  # no memory, or gradients of a kind that has no norm
                return self._torch.tensor(float("nan"))

    def _norm(self, grads: list[Tensor]) -> Any:
        """The norm of some gradients together, wherever each of them is."""
        torch = self._torch
        alike: dict[object, list[Tensor]] = {}
        for grad in grads:
            if grad.numel():
                alike.setdefault((grad.device, grad.dtype), []).append(grad)
        if not alike:
            return torch.zeros(())
        # Small floats would overflow: they are added up as larger ones.
        norms = [
            torch.stack(list(torch._foreach_norm(few, 2, _wide(torch, few[0])))).float()
            for few in alike.values()
        ]
        if len(norms) > 1:
            norms = [torch.cat([norm.to(norms[0].device) for norm in norms])]
        return torch.linalg.vector_norm(norms[0])

    def _hand_on(self, name: str) -> None:
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


def _forget(notes: _Notes) -> None:
    notes.base, notes.right, notes.got, notes.clipped = {}, None, None, False
