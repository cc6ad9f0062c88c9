"""What an event does to the gradients of one subject: the state before, the event, the state after.

`advance` is pure, defined for every state and event, and never judges. `State` is frozen and hashable,
so that a reader of source can fork it and a watched run can be folded into it.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum
from typing import Any

from zerograd.core.events import (
    Assign,
    Backward,
    Clip,
    Enter,
    Event,
    Excuse,
    Hold,
    New,
    Reads,
    Step,
    Sync,
    Unknown,
    Unscale,
    Update,
    Zero,
)
from zerograd.core.records import dataclass, fields, replace


class Grads(Enum):
    """What `.grad` holds."""

    __hash__ = object.__hash__  # Enum has one in Python, which is slow

    NONE = "none"
    ZERO = "zero"
    LIVE = "live"
    SPENT = "spent"
    STALE = "stale"
    UNKNOWN = "unknown"


class Scale(Enum):
    """By what the contributions are multiplied."""

    __hash__ = object.__hash__  # Enum has one in Python, which is slow

    PLAIN = "plain"
    SCALED = "scaled"
    MIXED = "mixed"
    UNKNOWN = "unknown"


EMPTY = (Grads.NONE, Grads.ZERO)
LONGEST_WINDOW = 16


@dataclass(frozen=True)
class State:
    """The gradients of one subject now, and the few past events that rules cite as evidence."""

    grads: Grads = Grads.UNKNOWN
    scale: Scale = Scale.UNKNOWN
    window: int = 0
    """Backward calls since the clear, at most LONGEST_WINDOW."""
    cleared: Zero | None = None
    """The clear after which nothing was added."""
    backward: Backward | None = None
    """The latest backward since the clear or the step."""
    used: Step | None = None
    """The step that used what is still there."""
    shared: bool = False
    """That step was another optimizer's, which shares parameters with this subject."""
    mixed: Backward | None = None
    """The backward that added onto used gradients."""
    others: tuple[Backward, Step] | None = None
    """A backward that added onto used gradients, and the other subject's step that it was for."""
    maybe: Backward | None = None
    """The latest backward that may have added onto used gradients."""
    dropped: tuple[Backward, Zero] | None = None
    """The backward whose gradients a clear dropped, and the clear."""
    clipped: Clip | None = None
    reclipped: Clip | None = None
    """A clip that was followed by another backward in its window."""
    early: Clip | None = None
    """A clip of empty gradients."""
    unscaled: Unscale | None = None
    """The unscale since the last update."""
    stepped: Step | None = None
    """The step through a scaler since the last update."""
    plain: Backward | None = None
    """A backward of a loss that was not scaled."""
    held: Hold | None = None
    """The guard that kept the window open."""
    cut: bool = False
    """A clear has dropped the beginning of the window."""
    carried: bool = False
    """The window was open when the loop over the data began anew."""
    lent: tuple[Backward, Step] | None = None
    """A backward whose contribution another subject's step used, and that step."""
    crossed: Backward | None = None
    """The subject's own backward that added onto a lent contribution."""
    apart: Backward | None = None
    """The subject's own backward, whose loss reads detached what another subject has computed."""
    passing: Backward | None = None
    """A backward that runs through the subject to another one."""
    divisors: frozenset[int | None] = frozenset()
    """What the window's losses were divided by."""
    local: Backward | None = None
    """The latest backward of the window that the ranks have not shared, nor anything after it."""
    syncs: int = 0
    """Backward calls of the window whose gradients the ranks have shared, at most LONGEST_WINDOW."""


FIELDS = frozenset(one.name for one in fields(State))
START = State()
NEW = State(grads=Grads.NONE, scale=Scale.PLAIN)
"""A subject whose parameters were just made."""


def advance(state: State, event: Event) -> State:
    """The state after the event."""
    return _MOVES.get(type(event), _stay)(state, event)


def _stay(state: State, event: Event) -> State:
    return state


def _zero(state: State, event: Zero) -> State:
    if event.may:
        # Gradients that are None stay None, whether the clear is theirs or not.
        return state if state.grads is Grads.NONE else _unknown(state, event)
    dropped = state.dropped if state.grads in EMPTY else None
    shared = state.shared and state.grads is not Grads.STALE
    if state.backward is not None and not state.backward.may:
        # Gradients that another subject's step has used, or that were used unseen, are not lost.
        dropped = None if state.lent or shared or event.excuse else (state.backward, event)
    return State(
        grads=Grads.NONE if event.to_none else Grads.ZERO,
        scale=Scale.PLAIN,
        cleared=event,
        dropped=dropped,
        cut=state.held is not None or (state.cut and state.grads in EMPTY),
        unscaled=state.unscaled,
        stepped=state.stepped,
    )


def _backward(state: State, event: Backward) -> State:
    if event.may and state.grads not in EMPTY:
        # Not enough to say what the gradients hold, unless this subject's step comes next.
        maybe = event if state.grads is Grads.SPENT else None
        return replace(state, maybe=maybe)
    grads, mixed = state.grads, state.mixed
    if event.leftover or (event.leftover is None and grads in (Grads.SPENT, Grads.STALE)):
        grads = Grads.STALE
        if mixed is None or _is_others(state, event):
            mixed = event
    elif grads in EMPTY or grads is Grads.SPENT:
        grads = Grads.LIVE
    crossed = state.crossed
    if event.alone and grads is not Grads.STALE and _is_foreign(state, event):
        crossed = event
    return replace(
        state,
        grads=grads,
        scale=_scale_after_backward(state, event),
        window=min(state.window + 1, LONGEST_WINDOW),
        cleared=None,
        backward=event,
        mixed=mixed,
        maybe=None,
        dropped=None,
        clipped=None,
        reclipped=state.clipped or state.reclipped,
        plain=event if event.scaled is False and not event.may else state.plain,
        held=None,
        crossed=crossed,
        apart=event if event.reads is Reads.DETACHED else state.apart,
        passing=event if event.reads is Reads.ATTACHED else state.passing,
        divisors=state.divisors if event.may else state.divisors | {_divisor(event)},
        local=_local(state, event),
        syncs=min(state.syncs + bool(event.synced), LONGEST_WINDOW),
    )


def _is_foreign(state: State, event: Backward) -> bool:
    """Whether the gradients were meant for the other subject alone: a shared trunk learns from both."""
    if state.lent is None:
        return False
    left, step = state.lent
    # What reaches this subject alone was not meant for the step of the other one.
    return not left.alone and step.through is not False


def _is_others(state: State, event: Backward) -> bool:
    """Whether an earlier backward was for another subject, and this backward is for this one."""
    if state.others is None or state.others[0] != state.mixed:
        return False
    return event.alone or bool(state.others[1].through)


def _divisor(event: Backward) -> int | None:
    return 0 if event.excuse is Excuse.MAY_BE_WHOLE else event.divisor


def _local(state: State, event: Backward) -> Backward | None:
    """The latest unshared backward: a synchronised one shares all that `.grad` holds."""
    if event.synced is None:
        return state.local
    return None if event.synced else event


def _scale_after_backward(state: State, event: Backward) -> Scale:
    if event.scaled is None:
        return Scale.UNKNOWN
    adds = state.backward is not None and not state.backward.may
    if not event.scaled:
        return state.scale if adds else Scale.PLAIN
    if adds and state.unscaled is not None and state.scale is Scale.PLAIN:
        return Scale.MIXED
    return Scale.SCALED


def _step(state: State, event: Step) -> State:
    if event.part:
        # Another optimizer has used all these gradients, and a backward adds to them: this one may still step.
        live = state.grads in (Grads.LIVE, Grads.STALE)
        grads = Grads.SPENT if event.whole and live else state.grads
        return replace(state, grads=grads, used=event, shared=True)
    if event.foreign:
        if state.grads is Grads.STALE and state.mixed is not None and event.through is not False:
            return replace(state, others=(state.mixed, event))
        unsure = state.backward is None or state.backward.may
        if unsure or state.held is not None or state.grads in (Grads.SPENT, Grads.STALE):
            # Gradients that wait for the end of their own window were not meant for the step of the other optimizer.
            return state
        assert state.backward is not None
        return replace(state, lent=(state.backward, event))
    if event.may:
        return _unknown(state, event)
    stepped = event if event.scaled else state.stepped
    if state.grads in EMPTY:
        return replace(state, dropped=None, early=None, stepped=stepped)
    return State(
        grads=Grads.SPENT,
        scale=Scale.PLAIN,
        used=event if event.measured is None else replace(event, measured=None),
        unscaled=state.unscaled,
        stepped=stepped,
    )


def _clip(state: State, event: Clip) -> State:
    if event.may or state.grads is Grads.SPENT:
        return state
    if state.grads in EMPTY:
        return replace(state, early=event)
    if state.backward is None:
        return state
    return replace(state, clipped=event, early=None)


def _unscale(state: State, event: Unscale) -> State:
    if event.may:
        return replace(state, scale=Scale.UNKNOWN, divisors=frozenset({0}))
    scale = Scale.UNKNOWN if state.scale is Scale.UNKNOWN else Scale.PLAIN
    unscaled = event if event.scaled else state.unscaled
    plain = state.plain if event.scaled else None
    return replace(state, scale=scale, unscaled=unscaled, plain=plain)


def _update(state: State, event: Update) -> State:
    return replace(state, unscaled=None, stepped=None)


def _hold(state: State, event: Hold) -> State:
    if state.backward is None:
        return state
    if state.grads is Grads.STALE and not state.backward.alone:
        # What another optimizer's backward leaves after the step opens no window.
        return state
    return replace(state, held=event)


def _enter(state: State, event: Enter) -> State:
    return replace(state, carried=state.grads is Grads.LIVE)


def _assign(state: State, event: Assign) -> State:
    if event.adds and state.grads not in (*EMPTY, Grads.SPENT):
        return replace(state, scale=Scale.UNKNOWN, divisors=frozenset({0}))
    if event.may or event.adds:
        return _unknown(state, event)
    return State(grads=Grads.LIVE, window=1, unscaled=state.unscaled, stepped=state.stepped)


def _sync(state: State, event: Sync) -> State:
    return state if event.diverged is not None else replace(state, local=None)


def _new(state: State, event: New) -> State:
    return NEW


def _unknown(state: State, event: Event) -> State:
    return START


_MOVES: dict[type[Event], Callable[[State, Any], State]] = {
    Zero: _zero,
    Backward: _backward,
    Step: _step,
    Clip: _clip,
    Unscale: _unscale,
    Update: _update,
    Hold: _hold,
    Enter: _enter,
    Assign: _assign,
    Sync: _sync,
    New: _new,
    Unknown: _unknown,
}
