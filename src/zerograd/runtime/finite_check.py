"""Whether steps use finite gradients: looks at few numbers, and never waits for a device.

A step that uses inf or nan makes parameters inf or nan, and they stay so. So some numbers of one
parameter are looked at now and then. Where they are not finite, the gradients that each step uses are
looked at, until they are finite again.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

from zerograd.runtime.gradient_values import has_finite_bytes, holding, plain
from zerograd.runtime.subjects import Subject

if TYPE_CHECKING:
    from torch import Tensor

SHARE, SOONEST, LATEST = 2, 4, 32
"""The next look comes after half as many backward calls as there were so far, within these bounds."""
FEW = 64
"""How many numbers of a parameter are checked."""


class FiniteCheck:
    """Looks at the parameters of subjects, and at the gradients of steps."""

    def __init__(self, torch: Any, norm: Callable[[Subject], Tensor | None]) -> None:
        """`norm` is the norm that a step uses, where it is measured anyway; None where it is not."""
        self._torch = torch
        self._modes = torch._C._len_torch_dispatch_stack
        self._norm = norm

    def next(self, backwards: int) -> int:
        """The number of the backward before which parameters are looked at again."""
        return backwards + min(max(backwards // SHARE, SOONEST), LATEST)

    def look(self, subjects: Iterable[Subject]) -> bool:
        """Look at some numbers of each subject; whether one of them has become suspicious."""
        if self._modes():
            return False  # the program listens to all operations: it must not hear ours
        found = False
        for subject in subjects:
            if not subject.finite.suspicious:
                self._look(subject)
                found |= subject.finite.suspicious
        return found

    def look_in_loop(self, subject: Subject) -> bool:
        """Look at some numbers of a subject in memory; False if that is not possible, or they are not finite."""
        finite = subject.finite
        if finite.fetching or finite.skip or finite.suspicious:
            return False
        params = subject.params
        if not has_finite_bytes(params[-(finite.turn + 1) % len(params)], FEW):
            return False
        finite.turn += 1
        return True

    def of_step(self, subject: Subject) -> bool | None:
        """Whether the gradients that a step uses are finite, as far as is known; None if they were not looked at."""
        finite = subject.finite
        if not finite.suspicious:
            norm = self._norm(subject)
            if norm is not None:
                finite.fetching.append(Fetched(self._torch, [norm]))
                while finite.fetching and (arrived := finite.fetching[0].finite) is not None:
                    finite.fetching.pop(0)
                    finite.suspicious |= not arrived
        if not finite.suspicious:
            return None
        if not self._modes():
            finite.fetching.append(self._largest(holding(subject.params)))
        while finite.fetching and (arrived := finite.fetching[0].finite) is not None:
            finite.fetching.pop(0)
            finite.known = arrived
        if finite.known:
            finite.calm()
            return True
        return finite.known

    def is_restored(self, subject: Subject) -> bool:
        """At the end of a run: whether all parameters of a suspicious subject are finite again."""
        held = [one for one in map(_local, subject.params) if self._is_plain(one)]
        return bool(held) and Fetched(self._torch, self._norms(held), wait=True).finite is True

    def _look(self, subject: Subject) -> None:
        finite = subject.finite
        if finite.fetching:
            arrived = finite.fetching[0].finite
            if arrived is None:
                return
            finite.fetching.clear()
            finite.suspicious = not arrived
        if finite.skip:
            finite.skip -= 1
        elif not finite.suspicious:
            finite.turn += 1
            param = _local(subject.params[-finite.turn % len(subject.params)])
            finite_here = has_finite_bytes(param, FEW)
            if finite_here is not None:
                finite.suspicious = not finite_here
            elif self._is_plain(param):
                few = param.detach().as_strided((min(FEW, param.numel()),), (1,))
                finite.fetching.append(Fetched(self._torch, [few.sum()]))
                if finite.fetching[0].finite is not None:
                    finite.suspicious = not finite.fetching.pop().finite

    def _largest(self, params: list[Tensor]) -> Fetched:
        grads = [plain(param.grad) for param in params if param.grad is not None]
        return Fetched(self._torch, self._norms([grad for grad in grads if grad.numel()]))

    def _norms(self, tensors: list[Tensor]) -> list[Tensor]:
        """The largest number in the tensors of a device; inf or nan if one of them contains it."""
        alike: dict[object, list[Tensor]] = {}
        for one in tensors:
            alike.setdefault((one.device, one.dtype), []).append(one.detach())
        torch = self._torch
        return [torch.stack(torch._foreach_norm(few, math.inf)).max() for few in alike.values()]

    def _is_plain(self, param: Tensor) -> bool:
        """Whether its numbers are in one piece, on a device from which they come without waiting."""
        torch = self._torch
        if type(param) not in (torch.Tensor, torch.nn.Parameter) or not param.is_contiguous():
            return False
        if not param.is_floating_point() or not param.numel():
            return False
        if param.device.type == "cuda":
            return not torch.cuda.is_current_stream_capturing()
        return param.device.type == "cpu"


class Fetched:
    """Numbers on their way from a device. Nothing waits for them."""

    def __init__(self, torch: Any, numbers: list[Tensor], *, wait: bool = False) -> None:
        # From a GPU to memory that torch pins for the purpose: the copy takes its place in the stream.
        self._numbers = [number.to("cpu", non_blocking=True) for number in numbers]
        self._arrival = []
        for device in {number.device for number in numbers if number.device.type == "cuda"}:
            event = torch.cuda.Event()
            event.record(torch.cuda.current_stream(device))
            if wait:
                event.synchronize()
            self._arrival.append(event)

    @property
    def finite(self) -> bool | None:
        """Whether all of them are finite; None while they have not arrived."""
        if not all(event.query() for event in self._arrival):
            return None
        return all(math.isfinite(number) for number in self._numbers)


def _local(param: Tensor) -> Tensor:
    """What this process holds of a parameter."""
    local: Tensor = getattr(param, "_local_tensor", param)
    return local
