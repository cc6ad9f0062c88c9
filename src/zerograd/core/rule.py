"""What a rule is: a check of one edge of the state machine, with its page of documentation.

`check(before, event)` is pure: it sees the state before the event and the event, nothing else.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum
from typing import Literal

from zerograd.core.events import (
    Backward,
    End,
    Event,
    Excuse,
    Hold,
    Measured,
    Observation,
    Site,
    Step,
    Unscale,
)
from zerograd.core.finding import Finding, Note
from zerograd.core.lifecycle import FIELDS, State
from zerograd.core.records import Record, dataclass
from zerograd.core.wording import listed


class Violation(Record):
    """One broken edge: where it shows, why, and since which earlier event."""

    site: Site
    message: str
    label: str = ""
    notes: tuple[Note, ...] = ()
    help: str = ""
    step: Site | None = None
    """The step at which it shows, where that is not the site itself."""
    measured: Measured | None = None
    """The gradient norms in the message, where a run has measured them."""
    remark: str = ""
    """What the summary of a run says about steps that break the rule and are not reported."""
    reported: bool = True
    """False if only the remark is printed."""


class Windows(Enum):
    """What a rule judges about accumulation windows."""

    CONTENTS = "which micro-batches it holds, and how they are weighted"
    LENGTH = "how many micro-batches it holds"
    REMAINDER = "what becomes of the last, partial one"


class Feature(Enum):
    """What a program may use, and many do not."""

    SCALER = "a gradient scaler"
    SEVERAL_OPTIMIZERS = "more than one optimizer"
    SHARED_GRADIENTS = "gradients that ranks average"
    REPLICAS = "ranks that hold the same parameters"


@dataclass(frozen=True, kw_only=True, eq=False)
class Page:
    """What can be selected and explained: a rule without its check."""

    code: str
    name: str
    doc: str
    level: Literal["error", "advice"] = "error"
    only: Literal["both", "static", "runtime"] = "both"
    windows: Windows | None = None
    """What it judges about accumulation windows; None if it is not about them."""
    applies_to: Feature | None = None
    """What a program must use for the rule to apply; None for every training loop."""
    excuses: tuple[Excuse, ...] = ()
    """The reasons for which it does not report what looks wrong. `explain` prints them."""

    @property
    def summary(self) -> str:
        """The first line of the page."""
        return self.doc.strip().split("\n", 1)[0]

    @property
    def judges_ends(self) -> bool:
        """Whether it is about where windows end."""
        return self.windows in (Windows.LENGTH, Windows.REMAINDER)


@dataclass(frozen=True, kw_only=True, eq=False)
class Rule(Page):
    """A rule about the edges of the state machine."""

    check: Callable[[State, Event], Violation | None]
    reads: frozenset[str]
    """The fields of `State` that the check reads, or that lead to them."""
    most_decisions: int = 2
    """How many branch decisions a finding in source may depend on."""
    needs: tuple[Callable[[Event], bool], ...] = ()
    """Tests of an event: in each sequence that breaks the rule, some event passes each of them.

    A flow without such an event is not explored for the rule: else 70 training files would take 1.19 times as long.
    """
    in_a_row: int = 0
    """How many steps in a row, the last ones of a run, must break it; 0: each violation is reported."""
    single: bool = False
    """Whether it is also sought with windows of one micro-batch, which some guards never close."""
    outlives_calls: bool = False
    """Whether the next call of the same function can break it, by what an earlier call leaves."""
    misses_backward: bool = False
    """Whether a backward that is not seen would keep it."""
    pairs_scaling: bool = False
    """Whether it compares how a loss is scaled with how its step divides."""
    yields_to: Rule | None = None
    """The rule that says more: where it finds something at the same place, this one is silent."""

    def __post_init__(self) -> None:
        unknown = self.reads - FIELDS
        if unknown:
            raise ValueError(f"{self.code} reads {sorted(unknown)}, which State does not have")


def finding_of(rule: Rule, violation: Violation) -> Finding:
    """The finding that says what a violation is."""
    return Finding(
        code=rule.code,
        name=rule.name,
        level=rule.level,
        message=violation.message,
        site=violation.site,
        label=violation.label,
        notes=violation.notes,
        help=violation.help,
        measured=violation.measured,
    )


def of_kind(*kinds: type[Event]) -> Callable[[Event], bool]:
    """A need: an event of one of these kinds."""
    return lambda event: isinstance(event, kinds)


def scaler(event: Event) -> bool:
    """A need: something that is done through a scaler, or to a scaled loss."""
    return isinstance(event, (Backward, Step, Unscale)) and bool(event.scaled)


def guarded(event: Event) -> bool:
    """A need: an accumulation guard, or the end or an observation of windows that are counted."""
    if isinstance(event, Step):
        return event.guard is not None
    return isinstance(event, (Hold, End, Observation))


def place(event: Event, seen_from: Event) -> str:
    """Where an earlier event is, as seen from a later one: `, in the previous iteration`."""
    if event.loop and event.loop == seen_from.loop and event.site.line >= seen_from.site.line:
        return ", in the previous iteration"
    return ""


def follows(event: Event, other: Event) -> bool:
    """Whether an event comes after another one in their loop, as the source is written."""
    same = event.loop == other.loop and event.site.path == other.site.path
    return same and event.site.line > other.site.line


def numbers(event: Backward | Step) -> str:
    """What a run has measured: `: expected |grad| 5, got 8 (weight, bias and 4 more)`."""
    seen = event.measured
    if seen is None:
        return ""
    expected, got = f"{seen.expected:.6g}", f"{seen.got:.6g}"
    if expected == got:
        return named(event)  # clipped to the same norm: the direction is another
    where = " in this rank's shard" if seen.shard else ""
    return f": expected |grad| {expected}, got {got}{where}{named(event)}"


def named(event: Backward | Step) -> str:
    """The parameters concerned: ` (weight, bias and 4 more)`."""
    seen = event.measured
    return "" if seen is None else in_brackets(seen.names, seen.count)


def in_brackets(names: tuple[str, ...], count: int) -> str:
    """The first of so many parameters: ` (weight, bias and 4 more)`."""
    return f" ({listed(names, count)})" if names else ""
