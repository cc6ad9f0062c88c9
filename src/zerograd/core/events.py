"""What happens to gradients, as data: the letters that training runs and training code are written in.

An event is plain, frozen and hashable. It never judges and knows nothing of torch or of source trees.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum


class Kind(Enum):
    """The letters. HOLD, ENTER and UNKNOWN come from readers of source, END from both readers."""

    ZERO = "zero"
    BACKWARD = "backward"
    ASSIGN = "assign"
    UNSCALE = "unscale"
    CLIP = "clip"
    STEP = "step"
    UPDATE = "update"
    SYNC = "sync"
    HOLD = "hold"  # an accumulation guard kept the window open
    ENTER = "enter"  # a loop over the data begins
    NEW = "new"  # the parameters were just made
    UNKNOWN = "unknown"  # something unseen may have touched the gradients
    END = "end"


@dataclass(frozen=True)
class Site:
    """Where the user's call stands; lines and columns count from 1, `cell` from 1 in notebooks."""

    path: str
    line: int
    column: int = 1
    end_line: int = 0
    end_column: int = 0
    cell: int | None = None
    iteration: int | None = None
    via: str = ""
    """The place in a library that the user's call has led to, where a library does the work."""


@dataclass(frozen=True)
class Measured:
    """What a run saw where two contributions met: norms of the gradients, and whose they are."""

    expected: float
    """The norm of what this backward brought."""
    got: float
    """The norm of what was there afterwards."""
    names: tuple[str, ...] = ()
    """The first few parameters concerned."""
    count: int = 0
    """How many are concerned."""
    shard: bool = False
    """Only what this rank holds of them was measured."""


@dataclass(frozen=True)
class Diverged:
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
    """The two values, where they say something."""


@dataclass(frozen=True)
class Event:
    """One letter, as one subject sees it."""

    kind: Kind
    site: Site
    call: str = ""
    """The user's call as a reader would name it: `loss.backward()`."""
    subject: str = ""
    foreign: bool = False
    """Another subject's event, told to this one because it may have used this one's gradients."""
    may: bool = False
    """It may reach this subject, and it may not: enough to excuse, not enough to accuse."""
    scaled: bool | None = False
    """backward: of a scaled loss (None: not known). step, unscale, update: through a scaler."""
    to_none: bool = True
    """zero: leaves None behind, not zeros."""
    bare: bool = False
    """Uses `.grad` without asking whether it is None."""
    loop: int = 0
    """The innermost loop around the call; 0 is none."""
    fed: bool = True
    """step: a backward that may reach this subject stands in the same loop."""
    idle_loss: Site | None = None
    """step: a loss is computed in the same loop and handed to nothing."""
    alone: bool = False
    """backward: reaches this subject and no other."""
    own_gradient: bool = False
    """backward: the tensor is handed in as its own gradient."""
    bypasses: str = ""
    """backward: the wrapper that had to run it."""
    divisor: int | None = 0
    """backward: what the loss was divided by; None where it was not, 0 where that is not known."""
    length: int = 0
    """How many backward calls the guard means a window to have; 0 is not known."""
    last: bool = False
    """step: in the last iteration of its loop, where a short window is right."""
    guard: Site | None = None
    """step, hold: the test that decides whether the window closes."""
    leftover: bool | None = None
    """backward: whether it adds onto used gradients, where a run has looked; else the state says."""
    measured: Measured | None = None
    """backward: the numbers, where a run has looked."""
    orphan: bool = False
    """backward: fills gradients that no optimizer steps or clears, as it did the times before."""
    part: bool = False
    """step: of another optimizer, which shares parameters with this one."""
    inner: bool = False
    """Inside a step of the optimizer itself, as in a closure. zero: of a part, or asked for."""
    again: bool = False
    """step: there was nothing to use the last time, either, and no backward in between."""
    synced: bool | None = None
    """backward: whether the ranks have shared its gradients; None where they have nothing to share."""
    unsynced: str = ""
    """backward: what kept them from it: `no_sync()`, `.module`."""
    off: Site | None = None
    """backward: and where that was said."""
    volume: int = 0
    """backward: how many bytes of gradients each rank has shared, where it need not have yet."""
    diverged: Diverged | None = None
    """sync: what a comparison of the ranks has shown."""

    allowed: tuple[str, ...] = ()
    """The codes of the rules that the program silences where it happens."""

    def __hash__(self) -> int:
        # Explorers hash events millions of times; the place and the call tell them apart.
        return hash((self.site.line, self.site.column, self.call))
