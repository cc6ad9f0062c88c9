"""A training loop of the source, and the verdict on it: right, wrong, or not followed and why.

A loop is where a step is repeated: the innermost loop around it, in its own function or up the calls that lead
to it. A step without a loop belongs to the function that a framework calls, or that no code calls, or to the
file.
"""

from __future__ import annotations

from typing import Literal

from zerograd.core.events import Site
from zerograd.core.records import NamedReason, Record, dataclass, replace

Kind = Literal["loop", "per-batch", "function", "module", "notebook"]
"""A loop; a function that a framework calls for each batch; one that no code calls; a whole file."""
VerdictName = Literal["right", "wrong", "not followed"]


class NotFollowed(NamedReason):
    """Why a loop is neither right nor wrong. `{subject}` in a reason is what is stepped."""

    UNSEEN_CALL = "unseen-call", "{subject} is handed to `{call}`, which is not in this project"
    UNFOLLOWED_CALL = (
        "unfollowed-call",
        "{subject} is handed to `{call}`, a generator, a recursion, or too many calls deep",
    )
    UNSEEN_STEP = "unseen-step", "`{call}` may do more than a step: its code cannot be seen"
    RESTORED_WEIGHTS = "restored-weights", "`{call}` sets weights back that {subject} has stepped"
    UNCLEAR_OBJECT = "unclear-object", "which optimizer {subject} is depends on a test"
    UNCLEAR_CLEAR = "unclear-clear", "`{call}` may or may not clear the gradients of {subject}"
    UNCLEAR_BACKWARD = "unclear-backward", "`{call}` may or may not reach what {subject} steps"
    UNCLEAR_ASSIGNMENT = (
        "unclear-assignment",
        "an assignment to `.grad` may or may not set the gradients of {subject}",
    )
    LEFT_TO_SUBCLASS = (
        "left-to-subclass",
        "`{call}` is left to subclasses, which may clear, run a backward, or compute its loss",
    )
    LEFT_TO_CALLER = (
        "left-to-caller",
        "it cannot be seen what callers do between two calls or yields of the code that steps {subject}",
    )
    NO_BACKWARD = "no-backward", "no backward was found that reaches what {subject} steps"
    TOO_LARGE = "too-large", "there are too many ways through the code to follow all of them"
    POSSIBLE = "possible", "{call} is possible here, but not certain; --pedantic shows it"
    ADVICE = "advice", "there is advice on it ({call}), and no error"


class Gap(Record):
    """What was not followed in a loop, and where its cause is."""

    why: NotFollowed
    site: Site
    subject: str = ""
    call: str = ""

    @property
    def reason(self) -> str:
        """The reason as a sentence."""
        return self.why.reason.format(subject=self.subject, call=self.call)


@dataclass(frozen=True)
class LoopStep:
    """A step in a training loop."""

    site: Site
    call: str
    subject: str
    """What is stepped, as the code names it."""


class Found(Record):
    """A finding in a loop, whether a comment allows it or not."""

    code: str
    level: Literal["error", "advice"]
    certain: bool
    site: Site


class Mention(Record):
    """A call that does something to the gradients of one subject."""

    site: Site
    call: str
    sure: bool
    """Whether it certainly concerns the subject."""


class Withheld(Record):
    """What would have been reported, had no decision weighed against it."""

    code: str
    name: str
    message: str
    site: Site
    when: tuple[str, ...]


class Account(Record):
    """How the gradients of one subject go through a loop: what `check --why` explains."""

    subject: str
    params: tuple[str, ...]
    """The modules and tensors that it steps; none if that cannot be seen."""
    backwards: tuple[Mention, ...] = ()
    clears: tuple[Mention, ...] = ()
    clips: tuple[Mention, ...] = ()
    guards: tuple[Mention, ...] = ()
    """The tests that decide when a window closes."""
    assumed: tuple[str, ...] = ()
    withheld: tuple[Withheld, ...] = ()


@dataclass(frozen=True)
class TrainingLoop:
    """All that is known about one loop, whatever the user selects."""

    site: Site
    """Where the loop, the function or the file begins and ends."""
    name: str
    """The function that it is in, or is."""
    kind: Kind
    steps: tuple[LoopStep, ...]
    found: tuple[Found, ...] = ()
    gap: Gap | None = None
    accounts: tuple[Account, ...] = ()
    """Only where an explanation was asked for."""

    def holds(self, path: str, cell: int | None, line: int) -> bool:
        """Whether a line is inside it, or is one of its steps."""
        if any((s.site.path, s.site.cell, s.site.line) == (path, cell, line) for s in self.steps):
            return True
        if path != self.site.path or self.kind in ("module", "notebook"):
            return False
        return cell == self.site.cell and self.site.line <= line <= self.site.end_line

    def joined(self, other: TrainingLoop) -> TrainingLoop:
        """One loop that was read twice, in two contexts: it has the steps, findings and gaps of both."""
        return replace(
            self,
            steps=_sorted({*self.steps, *other.steps}),
            found=tuple(dict.fromkeys((*self.found, *other.found))),
            gap=_open(self.gap, other.gap),
            accounts=tuple(dict.fromkeys((*self.accounts, *other.accounts))),
        )


@dataclass(frozen=True)
class LoopVerdict:
    """A training loop with its verdict under the rules that were selected."""

    loop: TrainingLoop
    verdict: VerdictName
    gap: Gap | None = None
    findings: tuple[int, ...] = ()
    """The indices of the findings in the report."""


def _open(one: Gap | None, other: Gap | None) -> Gap | None:
    """The gap that is left after two contexts: one of them may have seen what the other cannot see."""
    gap = one or other
    if gap is None or (None in (one, other) and gap.why in _SEEN_ELSEWHERE):
        return None
    return gap


_SEEN_ELSEWHERE = (NotFollowed.UNSEEN_STEP, NotFollowed.LEFT_TO_SUBCLASS)


def _sorted(steps: set[LoopStep]) -> tuple[LoopStep, ...]:
    return tuple(
        sorted(steps, key=lambda s: (s.site.path, s.site.line, s.site.column, s.call, s.subject))
    )


def joined(loops: list[TrainingLoop]) -> list[TrainingLoop]:
    """The loops in order, each place once."""
    found: dict[tuple[str, int, int], TrainingLoop] = {}
    for loop in loops:
        place = (loop.site.path, loop.site.cell or 0, loop.site.line)
        known = found.get(place)
        found[place] = loop if known is None else known.joined(loop)
    return list(map(found.__getitem__, sorted(found)))
