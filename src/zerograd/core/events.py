"""What happens to gradients, as data: one class of event for each kind of call.

An event is plain, frozen and hashable, and is what one subject sees. It never judges and knows nothing
of torch or of source trees.
"""

from __future__ import annotations

from enum import Enum
from typing import ClassVar

from zerograd.core.records import NamedReason, Record, dataclass


@dataclass(frozen=True)
class Site:
    """Where the user's call is; lines and columns count from 1, `cell` from 1 in notebooks."""

    path: str
    line: int
    column: int = 1
    end_line: int = 0
    end_column: int = 0
    cell: int | None = None
    iteration: int | None = None
    via: str = ""
    """The place in a library that the user's call has led to, where a library does the work."""


class Measured(Record):
    """What a run saw of a step that uses more than it should: norms of gradients, and whose they are."""

    expected: float
    """The norm of what a step should have used."""
    got: float
    """The norm of what it used."""
    names: tuple[str, ...] = ()
    """The first few parameters concerned."""
    count: int = 0
    """How many are concerned."""
    shard: bool = False
    """Only what this rank holds of them was measured."""


class Diverged(Record):
    """What ranks that ought to do the same do differently, and which of them."""

    what: str
    """`parameters`, `gradients`, `steps`, `learning rate` or `scale`."""
    step: int
    ranks: tuple[int, ...]
    """Those that differ from the others."""
    than: int
    """One of the others."""
    names: tuple[str, ...] = ()
    """The first few parameters among which the difference is."""
    count: int = 0
    """How many those are."""
    here: str = ""
    there: str = ""
    """The two values, if they are worth printing."""


@dataclass(frozen=True)
class Decided:
    """What the source around a call says about when the call is made, where a run has read it."""

    guard: Site | None = None
    """The test of a counter that decides; None if there is none."""
    length: int = 0
    """N, if the guard is true every N times; 0 if that is not known."""
    chosen: bool = False
    """A test of something else decides, or an exception: a loss that is not finite, a large norm."""


class Untrained(Record):
    """A module whose parameters an optimizer has and no loss reaches, as source shows it."""

    name: str
    optimizer: Site
    """Where the optimizer gets them."""
    replaced: bool = False
    """The name got another module later; else its output is detached where it is read."""
    backward: Site | None = None
    """The backward that does not reach it."""


class ReadBy(Enum):
    """What the modules of another subject read, for the loss of one backward."""

    ONLY = "only"
    """What this subject has computed, and nothing else."""
    AND_MORE = "and-more"
    """That, and in another call something else: real data besides generated data."""


class Reads(Enum):
    """What the modules of a subject read of another's, for the loss of one backward."""

    DETACHED = "detached"
    """What the other has computed, detached: the loss is for this subject alone."""
    ATTACHED = "attached"
    """What the other has computed: the gradients run through this subject to the other."""


class Excuse(NamedReason):
    """Why an event that looks wrong is not reported. The value is its name in recordings."""

    IN_STEP = "in-step", "the optimizer's own step clears the gradients, as a closure does"
    WEIGHTS_MOVED = "weights-moved", "the weights have changed since: something used the gradients"
    UNSEEN = "unseen", "no call was seen: the gradients were gone when zerograd looked at them"
    ONE_MODULE = "one-module", "it clears one of several modules that the optimizer steps"
    CHOSEN = "chosen", "a test asks for the clear: a batch is kept from the step on purpose"
    NOT_FINITE = "not-finite", "what it drops is inf or nan: no step should use it"
    OTHER_ARM = "other-arm", "the other arm of the test lets the wrapper run the backward"
    MAY_BE_WHOLE = "may-be-whole", "the loss may already be that of the whole window"
    STATIC_GRAPH = "static-graph", "DDP synchronises all of a static graph's first window"
    UNRECORDED = "unrecorded", "a recording of format 2 says that there was a reason, not which"


class Event(Record):
    """What all events have. The kinds are its subclasses."""

    kind: ClassVar[str]
    """The kind in recordings and pages."""

    site: Site
    call: str = ""
    """The user's call as a reader would name it: `loss.backward()`."""
    may: bool = False
    """It may reach this subject, and it may not: enough to excuse, not enough to accuse."""
    loop: int = 0
    """The innermost loop around the call; 0 is none."""
    allowed: tuple[str, ...] = ()
    """The codes of the rules that the program silences where it happens."""

    def __hash__(self) -> int:
        # The place and the call are enough to distinguish events, and explorers hash events millions of times.
        return hash((self.site.line, self.site.column, self.call))


class Zero(Event):
    """Gradients are cleared."""

    kind = "zero"
    to_none: bool = True
    """It leaves None behind, not zeros."""
    bare: bool = False
    """It uses `.grad` without asking whether that is None."""
    length: int = 0
    """How many backward calls the guard means a window to have; 0 is not known."""
    excuse: Excuse | None = None
    """Why it drops nothing that a step should have used, although it comes before the step."""


class Backward(Event):
    """A backward adds to the gradients."""

    kind = "backward"
    scaled: bool | None = False
    """Of a scaled loss; None where that is not known."""
    alone: bool = False
    """It reaches this subject and no other."""
    own_gradient: bool = False
    """The tensor is handed in as its own gradient."""
    bypasses: str = ""
    """The wrapper that had to run it."""
    divisor: int | None = 0
    """What the loss was divided by; None where it was not, 0 where that is not known."""
    leftover: bool | None = None
    """Whether it adds onto used gradients, where a run has looked; else the state says."""
    measured: Measured | None = None
    """The parameters concerned, where a run has looked."""
    read_by: ReadBy | None = None
    """Whether it goes through another subject's module that reads what this one has computed."""
    reads: Reads | None = None
    """Whether it goes through this subject's module that reads what another one has computed."""
    missed: Measured | None = None
    """Parameters of an optimizer that no backward reaches; parameters of their shapes, which no
    optimizer has, are reached."""
    untrained: Untrained | None = None
    """The module that it does not reach, although an optimizer has its parameters."""
    orphan: bool = False
    """It fills gradients that no optimizer steps or clears, as it did the times before."""
    synced: bool | None = None
    """Whether the ranks have shared its gradients; None where they have nothing to share."""
    unsynced: str = ""
    """What kept them from it: `no_sync()`, `.module`."""
    off: Site | None = None
    """Where the program says so."""
    volume: int = 0
    """How many bytes of gradients each rank has shared, where it need not have yet."""
    excuse: Excuse | None = None
    """Why it may bypass a wrapper, take a whole loss, or share gradients too often."""


class Assign(Event):
    """Gradients are put in place by hand."""

    kind = "assign"
    bare: bool = False
    """It uses `.grad` without asking whether that is None."""
    adds: bool = False
    """Something is added to what they hold."""


class Unscale(Event):
    """Gradients are divided by the scale."""

    kind = "unscale"
    scaled: bool | None = False
    """By a scaler; None where that is not known."""
    bare: bool = False
    """It uses `.grad` without asking whether that is None."""


class Clip(Event):
    """Gradients are clipped."""

    kind = "clip"
    bare: bool = False
    """It uses `.grad` without asking whether that is None."""


class Step(Event):
    """An optimizer uses the gradients."""

    kind = "step"
    scaled: bool | None = False
    """Through a scaler; None where that is not known."""
    foreign: bool = False
    """Of another subject, which may have used this one's gradients."""
    part: bool = False
    """Of another optimizer, which shares parameters with this one."""
    whole: bool = False
    """The other optimizer steps the same parameters as this one."""
    ahead: bool = False
    """It only looks ahead: the next step puts back what it has moved."""
    through: bool | None = None
    """Whether the other subject's gradients came through this one; None where that is not known."""
    fed: bool = True
    """A backward that may reach this subject is in the same loop."""
    again: bool = False
    """There was nothing to use the last time, either, and no backward in between."""
    lost: Site | None = None
    """The backward whose gradients were gone before it, as before all earlier steps, and no call has cleared them."""
    idle_loss: Site | None = None
    """A loss that is computed in the same loop and handed to nothing."""
    length: int = 0
    """How many backward calls a window is meant to have; 0 is not known."""
    last: bool = False
    """In the last iteration of its loop, where a short window is right."""
    guard: Site | None = None
    """The test that decides whether the window closes."""
    finite: bool | None = None
    """Whether the gradients that it uses are finite, as far as is known then; None if they were not looked at."""
    skipped: bool = False
    """A scaler has skipped it, because the gradients are inf or nan."""
    decided: Decided | None = None
    """What decides about the step, where a run has read the source."""
    remade: Site | None = None
    """Where its optimizer is made, if each of the latest steps had an optimizer of its own."""
    leaked: bool = False
    """It uses gradients of another subject's backward that point against its own, as steps before it did."""
    measured: Measured | None = None
    """The norms of what it should have used and of what it used, where a run has looked."""
    repeated: tuple[str, ...] = ()
    """Some parameters whose used gradients it uses once more, where the others have new ones."""
    repeated_count: int = 0
    """How many there are."""


class Update(Event):
    """A scaler ends its round."""

    kind = "update"


class Sync(Event):
    """The ranks share gradients outside of a backward, or compare what they hold."""

    kind = "sync"
    diverged: Diverged | None = None
    """What a comparison of the ranks has shown."""


class Hold(Event):
    """An accumulation guard keeps the window open. Only source code shows it."""

    kind = "hold"
    guard: Site | None = None
    """The test that decides whether the window closes."""


class Enter(Event):
    """A loop over the data begins. Only source code shows it."""

    kind = "enter"


class New(Event):
    """The parameters were just made."""

    kind = "new"


class Unknown(Event):
    """Something unseen may have touched the gradients."""

    kind = "unknown"


class End(Event):
    """The program ends."""

    kind = "end"
    length: int = 0
    """How many backward calls a window is meant to have; 0 is not known."""
    idle_loss: Site | None = None
    """A backward whose gradients no step uses."""
    restored: bool = False
    """The parameters held inf or nan after a step, and are finite again."""


class Observation(Event):
    """What only repetition shows about the windows of a run: a run has no guards to read.

    It follows from the events before it, so that it is not recorded, and it changes no state.
    """

    guard: Site | None = None
    """The test that decides whether a window closes, where a run has read it."""


class LongWindow(Observation, kw_only=True):
    """A step used more backward calls than the windows before it had, and fewer than two windows."""

    kind = "long-window"
    window: int
    meant: int = 0
    """N, as the code or the user says; 0 if that is not known."""


class OddWindow(Observation, kw_only=True):
    """A step closed a window of another length than is meant, and not by exception."""

    kind = "odd-window"
    window: int
    backward: Site
    """The last backward of the window."""
    meant: int = 0
    """N, as the code or the user says; 0 if that is not known."""


class PartialWindow(Observation, kw_only=True):
    """A part of a window was never used. The site is the step that closes the other windows."""

    kind = "partial-window"
    backward: Site
    """The last backward of the part."""
    cleared: Site | None = None
    """The clear that dropped it; None if it was left when the run ended."""


class CutWindows(Observation, kw_only=True):
    """A clear drops the same part of one window after another.

    The site is the clear, or the backward if no call has cleared the gradients.
    """

    kind = "cut-windows"
    backward: Site
    """The backward whose gradients are dropped."""
    step: Site
    """The step that closes the windows."""


KINDS = {kind.kind: kind for kind in Event.__subclasses__() if kind is not Observation}
"""The kinds of events that recordings hold, by their names."""
