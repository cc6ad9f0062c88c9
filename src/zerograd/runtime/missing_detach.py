"""A forgotten `detach()`: a step uses what another subject's backward left, against its own.

In a GAN, the discriminator's loss reads the generator's output. Without `detach()` its backward fills
the generator's gradients, and the generator's step uses them with those of its own backward. Many
right programs look alike by the order of events. So it counts only if, in eight windows in a row,

- the other subject's step had used the contribution already,
- the own backward is another call, and reaches the other subject,
- what that leaves in the other subject is cleared and never used,
- the other subject's window also has a part that does not come through this one (real data),
- and both contributions point against each other: their cosine is negative.

The last is measured only once the others hold.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from zerograd.core.events import Backward, Site
from zerograd.runtime import autograd_graph
from zerograd.runtime.gradient_values import copies, holding, plain
from zerograd.runtime.subjects import Subject

if TYPE_CHECKING:
    from torch import Tensor

ENOUGH = 8
MOST_CALLS = 1024
MOST_WALKS = 3
"""After this many graphs without a part of its own, the other subject is taken to have none."""


class MissingDetach:
    """Follows what subjects leave in each other."""

    def __init__(self, torch: Any) -> None:
        self._torch = torch
        self._passed: dict[Site, set[tuple[str, str]]] = {}
        """By backward call: which subjects its graph passes on its way to which others."""

    def before_backward(self, subjects: Iterable[Subject], event: Backward, outputs: Any) -> None:
        """A backward is about to run. Its graph is walked at the first call, and at calls that have leaked before."""
        if event.site not in self._passed:
            if len(self._passed) >= MOST_CALLS:
                self._passed.clear()
            owners = {key: subject.name for subject in subjects for key in subject.ids}
            self._passed[event.site] = autograd_graph.passed(outputs, owners)
        for subject in subjects:
            leak = subject.leak
            if leak.rounds and not leak.apart and leak.site == event.site:
                lender = _named(leak.lender, subjects)
                if lender is not None and leak.walks < MOST_WALKS:
                    leak.walks += 1
                    leak.apart = autograd_graph.reads_apart(outputs, lender.ids, subject.ids)

    def passes(self, backward: Backward | None, subject: Subject, lender: Subject) -> bool | None:
        """Whether the gradients of another subject came through this one; None if that is not known."""
        pairs = None if backward is None else self._passed.get(backward.site)
        return None if pairs is None else (subject.name, lender.name) in pairs

    def after_backward(self, subjects: list[Subject], event: Backward) -> None:
        """A backward has run: it may have added to what another subject has left."""
        reached = frozenset([one.name for one in subjects if one.probe.reached])
        for subject in subjects:
            if not subject.probe.reached:
                continue
            leak = subject.leak
            leak.together = leak.together & reached if leak.together else reached
            if not leak.lent or leak.site == event.site or leak.lender not in reached:
                continue
            leak.crossed = True
            lender = _named(leak.lender, subjects)
            if lender is not None:
                lender.leak.returned.add(subject.name)
            if leak.kept:
                self._compare(subject)

    def lent(self, subject: Subject, lender: Subject) -> None:
        """The step of another subject has used what its backward left in this one."""
        leak, backward = subject.leak, subject.track.node.state.lent
        if backward is None:
            return
        leak.lend(lender.name, backward[0].site)
        if subject.name not in lender.leak.together:
            leak.apart = True  # another backward of its window does not reach this subject
        if leak.rounds and leak.apart and leak.opposed < ENOUGH:
            leak.kept = copies(holding(subject.params))
            subject.used.sum.take(leak.kept)

    def stepped(self, subject: Subject) -> bool:
        """A subject has stepped: whether it used such a contribution once more."""
        leak = subject.leak
        for other in subject.lane.probed if leak.returned else ():
            if other.name in leak.returned:
                other.leak.rounds = other.leak.opposed = 0  # what it left here is used after all
        if leak.lent and leak.crossed:
            leak.rounds += 1
            if not leak.kept and leak.opposed < ENOUGH:
                leak.opposed = 0
        else:
            leak.rounds = leak.opposed = 0
        leak.forget()
        return leak.opposed >= ENOUGH

    def _compare(self, subject: Subject) -> None:
        """Whether the gradients of its own backward point against those that were there."""
        leak = subject.leak
        before: list[Tensor] = []
        own: list[Tensor] = []
        with self._torch.no_grad():
            for param in holding(subject.params):
                assert param.grad is not None
                now, kept = plain(param.grad), leak.kept.get(id(param))
                own.append((now if kept is None else now - kept).double().flatten())
                before.append(
                    self._torch.zeros_like(own[-1]) if kept is None else kept.double().flatten()
                )
            dots = sum(float(one @ other) for one, other in zip(before, own, strict=True))
        leak.opposed = leak.opposed + 1 if dots < 0 else 0
        if leak.opposed >= ENOUGH:
            subject.used.sum.added(subject.params, subject.params)


def _named(name: str, subjects: Iterable[Subject]) -> Subject | None:
    return next((one for one in subjects if one.name == name), None)
