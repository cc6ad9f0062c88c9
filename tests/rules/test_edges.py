"""What each rule says about one edge of the state machine, to the letter, and the nearest edges it is silent about."""

from __future__ import annotations

from functools import reduce
from typing import NamedTuple

import pytest

from support.event_sequences import at
from zerograd.core.events import (
    Assign,
    Backward,
    Clip,
    CutWindows,
    Decided,
    Diverged,
    End,
    Enter,
    Event,
    Excuse,
    Hold,
    LongWindow,
    Measured,
    New,
    OddWindow,
    PartialWindow,
    ReadBy,
    Reads,
    Step,
    Sync,
    Unscale,
    Untrained,
    Update,
    Zero,
)
from zerograd.core.finding import Note
from zerograd.core.lifecycle import START, Grads, Scale, State, advance
from zerograd.core.records import replace
from zerograd.core.rule import Rule, Violation
from zerograd.rules.catalogue import BY_CODE, RULES

ZERO = Zero(at(1))
BACKWARD = Backward(at(3))
SCALED = Backward(at(3), scaled=True)
STEP = Step(at(5))
CLIP = Clip(at(4))
UNSCALE = Unscale(at(4), scaled=True)
SCALER_STEP = Step(at(5), scaled=True)
OTHERS_STEP = Step(at(8), foreign=True)
HOLD = Hold(at(5), guard=at(6), loop=1)
GUARD = at(6)
NUMBERS = Measured(5.0, 8.0, ("weight", "bias"), 6)
SAID = ": expected |grad| 5, got 8 (weight, bias and 4 more)"


def rule(code: str) -> Rule:
    found = BY_CODE[code]
    assert isinstance(found, Rule)
    return found


def state(*sequence: Event) -> State:
    return reduce(advance, sequence, START)


def verdict(code: str, *sequence: Event) -> Violation | None:
    """What a rule says about the last event of a sequence."""
    return rule(code).check(state(*sequence[:-1]), sequence[-1])


def notes(*pairs: tuple[int, str]) -> tuple[Note, ...]:
    return tuple(Note(at(line), message) for line, message in pairs)


class Broken(NamedTuple):
    """A sequence whose last event breaks a rule, and what the rule says."""

    code: str
    sequence: tuple[Event, ...]
    said: Violation


class Kept(NamedTuple):
    """A sequence that comes close to breaking a rule."""

    code: str
    sequence: tuple[Event, ...]


STALE = Violation(
    at(3),
    "backward() adds to gradients that step() already used",
    "adds to .grad",
    notes((5, "used here")),
    "clear the gradients between the step and the next backward: optimizer.zero_grad()",
    step=at(5),
)
DISCARDED = Violation(
    at(1),
    "the gradients are cleared between backward() and step()",
    "drops the gradients",
    notes((3, "computed by this backward"), (5, "so this step has nothing to use")),
    "clear before the backward or after the step, not between them",
    step=at(5),
)
CUT = Violation(
    at(1),
    "the clear drops gradients of a window that is still open",
    "drops part of the window",
    notes((3, "this micro-batch is lost"), (6, "the guard keeps the window open")),
    "clear only where the window closes, after step()",
)
EMPTY = Violation(
    at(5),
    "step() has no gradients to use: no backward() runs in this loop",
    "no gradients",
    notes((1, "cleared here"), (7, "nothing uses this loss")),
    "call backward() on the loss before step()",
)
REPEATED = Violation(
    at(9),
    "step() uses the same gradients a second time",
    "used again",
    notes((5, "used here")),
    "step once per backward",
)
CROSSED = Violation(
    at(3),
    "backward() adds to gradients that another optimizer's phase left here",
    "adds to .grad",
    notes((7, "left by this backward"), (8, "which was meant for this step")),
    "clear this optimizer before its own backward: optimizer.zero_grad()",
    step=at(5),
)
LEAKED = Violation(
    at(7),
    "backward() also fills the gradients of another optimizer, whose step uses them: detach() is missing",
    "reaches the other optimizer's parameters",
    notes((8, "meant for this step"), (3, "this backward adds the opposite"), (5, "uses the sum")),
    "detach() the other network's output where this loss reads it",
    step=at(5),
)
ON_NONE = Violation(
    at(4),
    ".grad is None here: no backward() has run yet",
    "fails on None",
    notes((1, "set to None here")),
    "test `if p.grad is not None` first, or call zero_grad()",
)
NOT_FINITE = Violation(
    at(5),
    "step() uses gradients that are inf or nan, until the end of the run",
    "nothing is learned any more",
    help="find the first inf or nan: torch.autograd.detect_anomaly(); then lower the learning rate, clip the "
    "gradients, or repair the loss or the data",
    remark="used gradients that are inf or nan",
)
STILL_SCALED = Violation(
    at(4),
    "the gradients are clipped while they are still scaled",
    "clips scaled gradients",
    notes((3, "scaled here")),
    "call scaler.unscale_(optimizer) before the clip",
)
EARLY = Violation(
    at(4),
    "the clip comes before the backward() whose gradients it should limit",
    "nothing to clip yet",
    notes((3, "the step uses these gradients unclipped")),
    "clip after backward() and before step()",
    step=at(5),
)
LATE = Violation(
    at(4),
    "the clip comes after the step() that used the gradients",
    "too late",
    notes((5, "used here")),
    "clip after backward() and before step()",
)
TOO_LATE = replace(LATE, site=at(7))
PART_CLIPPED = Violation(
    at(4),
    "gradients are clipped before their window is complete",
    "clips part of the window",
    notes((7, "a later backward adds to them")),
    "clip once, just before step()",
    step=at(5),
)
PAST_SCALER = Violation(
    at(5),
    "step() uses gradients that are still scaled",
    "bypasses the scaler",
    notes((3, "scaled here")),
    "call scaler.step(optimizer), then scaler.update()",
)
MIXED = Violation(
    at(7),
    "a scaled backward() adds to gradients that are already unscaled",
    "adds scaled gradients",
    notes((4, "unscaled here")),
    "call unscale_() once, after the window's last backward()",
)
NO_UPDATE = Violation(
    at(9),
    "scaler.step() is called again without scaler.update() in between",
    "second call",
    notes((5, "first call")),
    "call scaler.update() once after every scaler.step(), also where the step is skipped",
)
NOT_SCALED = Violation(
    at(3),
    "the loss is not scaled, but the scaler's step divides by the scale",
    "not scaled",
    notes((5, "divided here")),
    "call scaler.scale(loss).backward()",
    step=at(5),
)
ADDED = Violation(
    at(3),
    "the losses of an accumulation window are added, not averaged",
    "adds the full loss",
    notes((5, "one step for the whole window")),
    "divide the loss by the number of micro-batches in the window",
    step=at(5),
)
MISPLACED = Violation(
    at(6),
    "the guard closes a window of more than N micro-batches",
    "closes the window here",
    notes((3, "the window's last backward"), (5, "the step")),
    "count micro-batches from 1: (i + 1) % N == 0",
    step=at(5),
)
NEVER_CLOSED = Violation(
    at(6),
    "the guard does not close a window that is already full",
    "never true when it should be",
    notes((3, "adds to a window that has N micro-batches"), (5, "this step is not reached")),
    "count micro-batches from 1: (i + 1) % N == 0",
)
ODD = Violation(
    at(5),
    "step() closes a window of 3 instead of N micro-batches",
    "closes the window here",
    notes((3, "the window's last backward")),
    "step when a window is full, and not before",
    step=at(5),
)
REMAINDER = Violation(
    at(5),
    "the last, partial window is never stepped",
    "never reached for the remainder",
    notes((3, "the last micro-batches"), (6, "the guard does not close it")),
    "step once more when the loader ends: … or i + 1 == len(loader)",
)
CARRIED = Violation(
    at(5),
    "the step uses micro-batches that the previous epoch left over",
    "uses more than N micro-batches",
    notes((6, "the counter restarts with the loop")),
    "step once more when the loader ends: … or i + 1 == len(loader)",
)
UNSYNCED = Violation(
    at(5),
    "step() uses gradients that were not synchronised between the ranks",
    "each rank steps with its own gradients",
    notes((3, "these gradients stay on their rank")),
    "leave no_sync() before the forward of the window's last micro-batch",
)
WASTED = Violation(
    at(3),
    "the ranks synchronise gradients 2 times for one step(), but once is enough: 80 bytes of needless traffic "
    "per step on each rank",
    "synchronised every time",
    notes((5, "needed here")),
    "put no_sync() around all but the window's last micro-batch, forward and backward",
    step=at(5),
)

LEFT = Backward(at(7))
OWN = Backward(at(3), alone=True)
LENT = (ZERO, LEFT, OTHERS_STEP, OWN)
AND_MORE = replace(LEFT, read_by=ReadBy.AND_MORE)
READING = replace(BACKWARD, read_by=ReadBy.ONLY)
PLAIN = replace(BACKWARD, divisor=None)
CLOSING = Step(at(5), guard=GUARD, length=2)
LOCAL = Backward(at(3), synced=False)
SHARED = Backward(at(3), synced=True, volume=80)
MISSED = Violation(
    at(3),
    "backward() never reaches parameters that an optimizer has, but others of their shapes, which no optimizer "
    "has (weight, bias and 4 more)",
    "fills the gradients of other parameters",
    help="make the optimizer after the model, and give it the parameters that the loss uses",
)


def diverged(what: str, said: str, help_: str, **more: object) -> Broken:
    seen = replace(Diverged(what, 3, (1,), 0), **more)
    return Broken(
        "ZG402",
        (Sync(at(9), diverged=seen),),
        Violation(at(9), said, "the ranks differ here", help=help_),
    )


ALONE = (
    "find what only this rank does to its parameters: a step it takes or skips alone, a change by hand, "
    "a checkpoint that only one rank loads"
)
TOGETHER = "let all ranks decide together whether to step: all_reduce what the decision reads"

JOINT = Violation(
    at(7),
    "backward() also fills the gradients of another optimizer, whose step uses them",
    "reaches the other optimizer's parameters",
    notes((3, "the loss of that optimizer"), (5, "uses the sum")),
    help="step that optimizer before this backward, or clear it and run its own backward after this one",
    step=at(5),
)

BROKEN = {
    "a backward onto used gradients": Broken("ZG101", (BACKWARD, STEP, BACKWARD, STEP), STALE),
    "a step after its own backward and one that only runs through it": Broken(
        "ZG106",
        (
            OTHERS_STEP,
            ZERO,
            replace(BACKWARD, reads=Reads.DETACHED),
            replace(LEFT, reads=Reads.ATTACHED),
            STEP,
        ),
        JOINT,
    ),
    "a step after another's, through whose loss it was reached, and its own backward": Broken(
        "ZG106",
        (
            ZERO,
            replace(LEFT, reads=Reads.ATTACHED),
            OTHERS_STEP,
            replace(BACKWARD, reads=Reads.DETACHED),
            STEP,
        ),
        JOINT,
    ),
    "one in the same loop, whose step comes after it": Broken(
        "ZG101",
        tuple(replace(event, loop=1) for event in (BACKWARD, STEP, BACKWARD, STEP)),
        replace(STALE, notes=notes((5, "used here, in the previous iteration"))),
    ),
    "one that may have reached the subject, just before its step": Broken(
        "ZG101", (BACKWARD, STEP, replace(BACKWARD, may=True), STEP), STALE
    ),
    "a measured one": Broken(
        "ZG101",
        (BACKWARD, STEP, BACKWARD, replace(STEP, measured=NUMBERS)),
        replace(STALE, message=STALE.message + SAID, measured=NUMBERS),
    ),
    "one of an old recording, with the numbers of the backward": Broken(
        "ZG101",
        (BACKWARD, STEP, replace(BACKWARD, measured=NUMBERS), STEP),
        replace(STALE, message=STALE.message + SAID, measured=NUMBERS),
    ),
    "one of which this rank has a shard": Broken(
        "ZG101",
        (BACKWARD, STEP, BACKWARD, replace(STEP, measured=Measured(5.0, 8.5, shard=True))),
        replace(
            STALE,
            message=STALE.message + ": expected |grad| 5, got 8.5 in this rank's shard",
            measured=Measured(5.0, 8.5, shard=True),
        ),
    ),
    "one that was clipped to the same norm": Broken(
        "ZG101",
        (BACKWARD, STEP, BACKWARD, replace(STEP, measured=Measured(1.0, 1.0, ("weight",), 1))),
        replace(
            STALE,
            message=STALE.message + " (weight)",
            measured=Measured(1.0, 1.0, ("weight",), 1),
        ),
    ),
    "one that was for another optimizer": Broken(
        "ZG101",
        (BACKWARD, STEP, LEFT, replace(OTHERS_STEP, through=True), BACKWARD, STEP),
        replace(
            STALE,
            help="clear this optimizer right before its own backward: optimizer.zero_grad()",
        ),
    ),
    "a clear between backward and step": Broken("ZG102", (BACKWARD, ZERO, STEP), DISCARDED),
    "an optimizer that never steps": Broken(
        "ZG102",
        (End(at(9), idle_loss=at(7)),),
        Violation(
            at(9),
            "the optimizer receives gradients, but never steps",
            "never steps",
            notes((7, "these gradients are never used")),
            "call step() after the backward",
        ),
    ),
    "a clear in an open window": Broken("ZG103", (BACKWARD, HOLD, replace(ZERO, loop=1)), CUT),
    "a clear above the backward of its loop": Broken(
        "ZG103",
        (replace(BACKWARD, loop=1), HOLD, replace(ZERO, loop=1)),
        replace(
            CUT,
            notes=notes(
                (3, "this micro-batch is lost, in the previous iteration"),
                (6, "the guard keeps the window open"),
            ),
        ),
    ),
    "a clear in a window that a step without a test of its own keeps open": Broken(
        "ZG103",
        (BACKWARD, replace(HOLD, guard=None), replace(ZERO, loop=1)),
        replace(
            CUT,
            notes=notes((3, "this micro-batch is lost"), (5, "the guard keeps the window open")),
        ),
    ),
    "windows that are cut one after the other": Broken(
        "ZG103",
        (CutWindows(at(1), backward=at(3), step=at(5)),),
        replace(
            CUT,
            notes=notes((3, "this micro-batch is lost"), (5, "the step that closes the windows")),
        ),
    ),
    "windows that are cut, and whose guard was read": Broken(
        "ZG103", (CutWindows(at(1), backward=at(3), step=at(5), guard=GUARD),), CUT
    ),
    "windows that are cut, and no call does that": Broken(
        "ZG103",
        (CutWindows(at(3), backward=at(3), step=at(5), guard=GUARD),),
        Violation(
            at(3),
            "the gradients of this backward are cleared while its window is still open, and not by zero_grad()",
            "this micro-batch is lost",
            ((Note(GUARD, "the guard keeps the window open")),),
            "look for .grad = None or .grad.zero_() in the loop: clear only where the window closes, after step()",
        ),
    ),
    "a step whose gradients are gone": Broken(
        "ZG102",
        (BACKWARD, replace(ZERO, excuse=Excuse.UNSEEN), Step(at(5), lost=at(3))),
        Violation(
            at(5),
            "the gradients are cleared between backward() and step(), and not by zero_grad()",
            "has nothing to use",
            notes((3, "computed by this backward")),
            "look for .grad = None or .grad.zero_() before this step: clear before the backward or after the step, "
            "not between them",
        ),
    ),
    "a step again without a clear": Broken(
        "ZG104",
        (replace(ZERO, excuse=Excuse.UNSEEN), Step(at(5), again=True)),
        replace(
            EMPTY,
            message="step() has no gradients to use: no backward() runs between the clear and the step",
            notes=(),
        ),
    ),
    "a step of new parameters again": Broken(
        "ZG104",
        (New(at(1)), Step(at(5), again=True)),
        replace(
            EMPTY,
            message="step() has no gradients to use: no backward() runs between the clear and the step",
            notes=(),
        ),
    ),
    "a step without a backward in its loop": Broken(
        "ZG104", (ZERO, Step(at(5), loop=1, fed=False, idle_loss=at(7))), EMPTY
    ),
    "a step without a backward in its function": Broken(
        "ZG104",
        (ZERO, Step(at(5), fed=False, idle_loss=at(7))),
        replace(
            EMPTY,
            message="step() has no gradients to use: no backward() runs before it in this function",
        ),
    ),
    "a step without a backward since the clear": Broken(
        "ZG104",
        (ZERO, Step(at(5), again=True)),
        replace(
            EMPTY,
            message="step() has no gradients to use: no backward() runs between the clear and the step",
            notes=notes((1, "cleared here")),
        ),
    ),
    "a second step": Broken("ZG105", (BACKWARD, STEP, Step(at(9))), REPEATED),
    "a second step after another's of some of the parameters": Broken(
        "ZG105",
        (BACKWARD, STEP, Step(at(8), foreign=True, part=True), Step(at(9))),
        replace(REPEATED, notes=notes((8, "used here"))),
    ),
    "a second step in the next iteration": Broken(
        "ZG105",
        (BACKWARD, replace(STEP, loop=1), Step(at(5), loop=1)),
        replace(REPEATED, site=at(5), notes=notes((5, "used here, in the previous iteration"))),
    ),
    "a second step of some parameters": Broken(
        "ZG105",
        (BACKWARD, STEP, BACKWARD, Step(at(9), repeated=("weight",), repeated_count=3)),
        Violation(
            at(9),
            "step() uses the same gradients of some parameters a second time (weight and 2 more)",
            "used again, with new gradients of the others",
            notes((5, "used here")),
            "clear all parameters of the optimizer: optimizer.zero_grad()",
        ),
    ),
    "a second step of some parameters in the next iteration": Broken(
        "ZG105",
        (BACKWARD, replace(STEP, loop=1), BACKWARD, Step(at(5), loop=1, repeated=("weight",))),
        Violation(
            at(5),
            "step() uses the same gradients of some parameters a second time (weight)",
            "used again, with new gradients of the others",
            notes((5, "used here, in the previous iteration")),
            "clear all parameters of the optimizer: optimizer.zero_grad()",
        ),
    ),
    "a backward onto what another's phase left": Broken("ZG106", (*LENT, STEP), CROSSED),
    "a backward on the line of another's, which reached both": Broken(
        "ZG106",
        (ZERO, LEFT, OTHERS_STEP, replace(OWN, site=at(7)), STEP),
        replace(CROSSED, site=at(7)),
    ),
    "a measured backward onto what another's phase left": Broken(
        "ZG106",
        (*LENT, replace(STEP, measured=NUMBERS)),
        replace(CROSSED, message=CROSSED.message + SAID, measured=NUMBERS),
    ),
    "one onto what another left, of an old recording": Broken(
        "ZG106",
        (*LENT[:-1], replace(OWN, measured=NUMBERS), STEP),
        replace(CROSSED, message=CROSSED.message + SAID, measured=NUMBERS),
    ),
    "a step that uses what points against its own": Broken(
        "ZG106",
        (ZERO, LEFT, OTHERS_STEP, BACKWARD, replace(STEP, leaked=True, measured=NUMBERS)),
        replace(LEAKED, message=LEAKED.message + SAID, measured=NUMBERS),
    ),
    "a detach that is missing in the source": Broken(
        "ZG106", (ZERO, AND_MORE, OTHERS_STEP, READING, STEP), LEAKED
    ),
    "a bare use of None": Broken("ZG107", (ZERO, Clip(at(4), bare=True)), ON_NONE),
    "a bare clear of None": Broken("ZG107", (ZERO, Zero(at(4), bare=True)), ON_NONE),
    "a bare assignment to None": Broken("ZG107", (ZERO, Assign(at(4), bare=True)), ON_NONE),
    "a bare division of None that may do nothing": Broken(
        "ZG107", (ZERO, Unscale(at(4), bare=True, may=True)), ON_NONE
    ),
    "gradients that no optimizer has": Broken(
        "ZG108",
        (Backward(at(3), orphan=True, measured=Measured(0.0, 1.0, ("weight",), 1)),),
        Violation(
            at(3),
            "backward() fills gradients that no optimizer steps or clears (weight)",
            "adds to .grad, again and again",
            help="give the parameters to the optimizer, or freeze them: requires_grad_(False)",
        ),
    ),
    "gradients that no optimizer has, without names": Broken(
        "ZG108",
        (Backward(at(3), orphan=True),),
        Violation(
            at(3),
            "backward() fills gradients that no optimizer steps or clears",
            "adds to .grad, again and again",
            help="give the parameters to the optimizer, or freeze them: requires_grad_(False)",
        ),
    ),
    "a tensor as its own gradient": Broken(
        "ZG109",
        (Backward(at(3), own_gradient=True),),
        Violation(
            at(3),
            "backward() takes the tensor as its own gradient",
            "multiplies every gradient by the loss",
            help="call backward() without an argument",
        ),
    ),
    "a step with gradients that are not finite": Broken("ZG110", (Step(at(5), finite=False),), NOT_FINITE),
    "a step that a scaler skips": Broken(
        "ZG110",
        (Step(at(5), skipped=True),),
        Violation(
            at(5),
            "the scaler skips the step",
            remark="skipped by a gradient scaler, because of gradients that are inf or nan",
            reported=False,
        ),
    ),
    "parameters that no backward reaches": Broken("ZG111", (Backward(at(3), missed=NUMBERS),), MISSED),
    "a module that is replaced after its optimizer": Broken(
        "ZG111",
        (Backward(at(4), untrained=Untrained("encoder", at(2), replaced=True)),),
        Violation(
            at(4),
            "encoder is replaced after its optimizer was made: no step trains it",
            "other parameters from here on",
            notes((2, "gets the parameters of encoder")),
            "make the optimizer after the model",
        ),
    ),
    "a module whose output is detached": Broken(
        "ZG111",
        (Backward(at(4), untrained=Untrained("encoder", at(2), backward=at(3))),),
        Violation(
            at(4),
            "the output of encoder is detached at its only use: nothing trains it",
            "cuts the graph",
            notes((2, "gets the parameters of encoder"), (3, "does not reach them")),
            "remove detach(), or do not give the optimizer the parameters of encoder",
        ),
    ),
    "an optimizer for every step": Broken(
        "ZG112",
        (Step(at(5), remade=at(2)),),
        Violation(
            at(2),
            "the optimizer is made anew for every step: what it remembers is lost",
            "made here, again and again",
            notes((5, "its only step")),
            "make the optimizer once, before the loop",
            step=at(5),
        ),
    ),
    "a clip of scaled gradients": Broken("ZG201", (SCALED, CLIP), STILL_SCALED),
    "a clip before the backward": Broken("ZG202", (ZERO, CLIP, BACKWARD, STEP), EARLY),
    "a clip after the step": Broken("ZG203", (BACKWARD, STEP, CLIP), LATE),
    "a clip after the step and the clear": Broken(
        "ZG203", (replace(ZERO, site=at(6)), replace(CLIP, site=at(7)), BACKWARD, STEP), TOO_LATE
    ),
    "a clip inside a window": Broken("ZG204", (BACKWARD, CLIP, LEFT, STEP), PART_CLIPPED),
    "a clip inside a window of a loop": Broken(
        "ZG204",
        (BACKWARD, replace(CLIP, loop=1), replace(BACKWARD, loop=1), STEP),
        replace(
            PART_CLIPPED,
            notes=notes((3, "a later backward adds to them, in the next iteration")),
        ),
    ),
    "a step past the scaler": Broken("ZG205", (SCALED, STEP), PAST_SCALER),
    "a scaled backward onto unscaled gradients": Broken(
        "ZG206", (SCALED, UNSCALE, replace(SCALED, site=at(7))), MIXED
    ),
    "a second step of a scaler": Broken(
        "ZG207", (SCALED, SCALER_STEP, Step(at(9), scaled=True)), NO_UPDATE
    ),
    "a second unscale": Broken(
        "ZG207",
        (SCALED, UNSCALE, Unscale(at(9), scaled=True)),
        replace(
            NO_UPDATE,
            message="unscale_() is called again without scaler.update() in between",
            notes=notes((4, "first call")),
        ),
    ),
    "an unscale after a step, in the next iteration": Broken(
        "ZG207",
        (SCALED, replace(SCALER_STEP, loop=1), Unscale(at(4), scaled=True, loop=1)),
        replace(
            NO_UPDATE,
            site=at(4),
            message="unscale_() is called again without scaler.update() in between",
            notes=notes((5, "first call, in the previous iteration")),
        ),
    ),
    "a scaler's step for a loss that is not scaled": Broken("ZG208", (BACKWARD, SCALER_STEP), NOT_SCALED),
    "a window that is not divided": Broken("ZG301", (ZERO, PLAIN, PLAIN, CLOSING), ADDED),
    "a window that is divided by several numbers": Broken(
        "ZG301",
        (ZERO, replace(PLAIN, divisor=2), replace(PLAIN, divisor=3), CLOSING),
        replace(ADDED, message="the losses of one window are divided by different numbers"),
    ),
    "a window of an inner loop": Broken(
        "ZG301",
        (ZERO, *[replace(PLAIN, loop=2)] * 2, replace(CLOSING, guard=None, loop=1)),
        ADDED,
    ),
    "a window that was lent, but not read": Broken(
        "ZG301", (ZERO, replace(PLAIN, site=at(7)), OTHERS_STEP, PLAIN, CLOSING), ADDED
    ),
    "a guard that closes late": Broken("ZG302", (ZERO, *[BACKWARD] * 3, CLOSING), MISPLACED),
    "a guard that closes early": Broken(
        "ZG302",
        (ZERO, BACKWARD, replace(CLOSING, decided=Decided(GUARD, 4))),
        replace(
            MISPLACED,
            message="the guard closes a window of fewer than 4 micro-batches",
            help="count micro-batches from 1: (i + 1) % 4 == 0",
        ),
    ),
    "a guard that never closes": Broken(
        "ZG302", (ZERO, *[BACKWARD] * 3, HOLD, End(at(9), length=2)), NEVER_CLOSED
    ),
    "a guard that never closes, and a step after the loop": Broken(
        "ZG302", (ZERO, *[BACKWARD] * 3, HOLD, replace(CLOSING, guard=None)), NEVER_CLOSED
    ),
    "a window of another length": Broken(
        "ZG302", (OddWindow(at(5), window=3, backward=at(3)),), ODD
    ),
    "a window of another length, whose guard was read": Broken(
        "ZG302",
        (OddWindow(at(5), window=3, meant=4, backward=at(3), guard=GUARD),),
        replace(
            ODD,
            message="the guard closes a window of 3 instead of 4 micro-batches",
            notes=notes((3, "the window's last backward"), (6, "the guard")),
            help="count micro-batches from 1: (i + 1) % 4 == 0",
        ),
    ),
    "a remainder at the end": Broken(
        "ZG303", (ZERO, BACKWARD, HOLD, End(at(9), length=2)), REMAINDER
    ),
    "a remainder at an end in the loop": Broken(
        "ZG303", (ZERO, BACKWARD, HOLD, End(at(9), length=2, loop=1)), REMAINDER
    ),
    "a full window at the end": Broken(
        "ZG303", (ZERO, BACKWARD, BACKWARD, HOLD, End(at(9), length=2)), REMAINDER
    ),
    "a remainder that is cleared": Broken(
        "ZG303",
        (ZERO, BACKWARD, HOLD, Zero(at(9), length=2)),
        replace(REMAINDER, notes=notes((3, "the last micro-batches"), (9, "cleared here"))),
    ),
    "a remainder of a run": Broken(
        "ZG303",
        (PartialWindow(at(5), backward=at(3)),),
        replace(REMAINDER, notes=notes((3, "the last micro-batches"))),
    ),
    "a remainder of a run, with its guard": Broken(
        "ZG303", (PartialWindow(at(5), backward=at(3), guard=GUARD),), REMAINDER
    ),
    "a remainder of a run that is cleared": Broken(
        "ZG303",
        (PartialWindow(at(5), backward=at(3), guard=GUARD, cleared=at(9)),),
        replace(REMAINDER, notes=notes((3, "the last micro-batches"), (9, "cleared here"))),
    ),
    "a window that is carried on": Broken(
        "ZG304", (ZERO, BACKWARD, Enter(at(2)), BACKWARD, BACKWARD, CLOSING), CARRIED
    ),
    "a window that is carried on, of known length": Broken(
        "ZG304",
        (
            *(ZERO, BACKWARD, Enter(at(2)), BACKWARD, BACKWARD),
            replace(CLOSING, decided=Decided(GUARD, 4)),
        ),
        replace(CARRIED, label="uses more than 4 micro-batches"),
    ),
    "a long window of a run": Broken(
        "ZG304",
        (LongWindow(at(5), window=5),),
        replace(CARRIED, label="uses 5 micro-batches instead of N", notes=()),
    ),
    "a long window of a run, with its guard": Broken(
        "ZG304",
        (LongWindow(at(5), window=5, meant=4, guard=GUARD),),
        replace(CARRIED, label="uses 5 micro-batches instead of 4"),
    ),
    "a step with gradients of one rank": Broken("ZG401", (LOCAL, STEP), UNSYNCED),
    "a step with gradients of one rank, after no_sync()": Broken(
        "ZG401",
        (replace(LOCAL, off=at(2), unsynced="no_sync()"), STEP),
        replace(
            UNSYNCED,
            message=UNSYNCED.message + ", because of no_sync()",
            notes=notes(
                (3, "these gradients stay on their rank"),
                (2, "synchronisation is turned off here"),
            ),
        ),
    ),
    "a step with gradients of a bare module": Broken(
        "ZG401",
        (replace(LOCAL, unsynced=".module"), STEP),
        replace(
            UNSYNCED,
            message=UNSYNCED.message + ", because of .module",
            help="call the wrapped model: model(x), not model.module(x)",
        ),
    ),
    "a step with gradients of one rank under FSDP2": Broken(
        "ZG401",
        (replace(LOCAL, unsynced="set_requires_gradient_sync(False)"), STEP),
        replace(
            UNSYNCED,
            message=UNSYNCED.message + ", because of set_requires_gradient_sync(False)",
            help="set_requires_gradient_sync(True) before the backward of the window's last micro-batch",
        ),
    ),
    "parameters that differ": diverged(
        "parameters", "rank 1 has different parameters than rank 0", ALONE
    ),
    "parameters that differ, with names": diverged(
        "parameters",
        "ranks 1, 2 have different parameters than rank 0: weight and 2 more",
        ALONE,
        ranks=(1, 2),
        names=("weight",),
        count=3,
    ),
    "parameters that differ, one of them not named": diverged(
        "parameters",
        "rank 1 has different parameters than rank 0: weight and 1 more",
        ALONE,
        names=("weight",),
        count=2,
    ),
    "parameters that differ, all named": diverged(
        "parameters",
        "rank 1 has different parameters than rank 0: weight, bias",
        ALONE,
        names=("weight", "bias"),
        count=2,
    ),
    "gradients that differ": diverged(
        "gradients",
        "rank 1 uses different gradients than rank 0",
        "find what only this rank does to its gradients after the backward",
    ),
    "learning rates that differ": diverged(
        "learning rate",
        "ranks 1, 3 use a different learning rate than rank 0 (0.1, not 0.2)",
        "give every rank the same schedule, and step it equally often",
        ranks=(1, 3),
        here="0.1",
        there="0.2",
    ),
    "scales that differ": diverged(
        "scale",
        "rank 1 uses a different scale than rank 0 (2, not 4)",
        "update the scaler in the same way on all ranks",
        here="2",
        there="4",
    ),
    "a rank that steps alone": diverged(
        "steps",
        "rank 1 had synchronised 5 times when it took step 3, rank 0 6 times: the ranks don't step together",
        TOGETHER,
        here="5",
        there="6",
    ),
    "ranks that step alone": diverged(
        "steps",
        "ranks 1, 2 had synchronised 5 times when they took step 3, rank 0 6 times: the ranks don't step together",
        TOGETHER,
        ranks=(1, 2),
        here="5",
        there="6",
    ),
    "a window that is shared every time": Broken("ZG403", (ZERO, SHARED, SHARED, STEP), WASTED),
    "a window that is shared every time, longer than is counted": Broken(
        "ZG403",
        (ZERO, *[replace(SHARED, volume=1000)] * 20, STEP),
        replace(
            WASTED,
            message="the ranks synchronise gradients 16 or more times for one step(), but once is enough: 15 KB "
            "of needless traffic per step on each rank",
        ),
    ),
    "a backward past a wrapper": Broken(
        "ZG501",
        (Backward(at(3), bypasses="fabric"),),
        Violation(
            at(3),
            "backward() bypasses fabric, which has to run it",
            "not scaled, not divided, not synchronised",
            help="call fabric.backward(loss)",
        ),
    ),
}  # fmt: skip

FOREIGN = Step(at(5), foreign=True)
UNSURE = replace(BACKWARD, may=True)

KEPT = {
    "gradients that were cleared": Kept("ZG101", (BACKWARD, STEP, ZERO, BACKWARD, STEP)),
    "another's step onto stale gradients": Kept("ZG101", (BACKWARD, STEP, BACKWARD, FOREIGN)),
    "stale gradients without the step": Kept("ZG101", (BACKWARD, STEP, BACKWARD, CLIP)),
    "a first step": Kept("ZG101", (BACKWARD, STEP)),
    "a clear that has an excuse": Kept("ZG102", (BACKWARD, replace(ZERO, excuse=Excuse.CHOSEN), STEP)),
    "a clear, and another's step": Kept("ZG102", (BACKWARD, ZERO, FOREIGN)),
    "another's step whose gradients are gone": Kept("ZG102", (BACKWARD, replace(FOREIGN, lost=at(3)))),
    "a clear that cuts a window": Kept("ZG102", (BACKWARD, HOLD, ZERO, STEP)),
    "a clear and a clip": Kept("ZG102", (BACKWARD, ZERO, CLIP)),
    "a clear before a backward": Kept("ZG102", (BACKWARD, ZERO, BACKWARD, STEP)),
    "an optimizer without gradients": Kept("ZG102", (End(at(9)),)),
    "a clear that may clear an open window": Kept(
        "ZG103", (BACKWARD, HOLD, replace(ZERO, loop=1, may=True))
    ),
    "a clear in another loop": Kept("ZG103", (BACKWARD, HOLD, replace(ZERO, loop=2))),
    "a clear of a closed window": Kept("ZG103", (BACKWARD, STEP, replace(ZERO, loop=1))),
    "a step in an open window": Kept("ZG103", (BACKWARD, HOLD, replace(STEP, loop=1))),
    "a clear of a window that was carried on": Kept(
        "ZG103", (ZERO, BACKWARD, Enter(at(2)), BACKWARD, HOLD, replace(ZERO, loop=1))
    ),
    "a clear of what another has used": Kept(
        "ZG103", (BACKWARD, HOLD, Step(at(8), part=True, foreign=True), replace(ZERO, loop=1))
    ),
    "a step with a backward in its loop": Kept("ZG104", (ZERO, Step(at(5), idle_loss=at(7)))),
    "an idle loss without a clear": Kept("ZG104", (New(at(1)), Step(at(5), fed=False, idle_loss=at(7)))),
    "a step without a backward, and no idle loss": Kept("ZG104", (ZERO, Step(at(5), fed=False))),
    "its own backward alone, and one after the other's": Kept(
        "ZG106", (ZERO, replace(LEFT, reads=Reads.ATTACHED), ZERO, replace(BACKWARD, reads=Reads.DETACHED), STEP)
    ),
    "another's loss through what its own loss has left, used and cleared": Kept(
        "ZG106", (ZERO, replace(BACKWARD, reads=Reads.DETACHED), replace(LEFT, reads=Reads.ATTACHED), STEP, STEP)
    ),
    "another's step without a backward": Kept("ZG104", (ZERO, Step(at(5), again=True, foreign=True))),
    "a step again with gradients": Kept("ZG104", (ZERO, BACKWARD, Step(at(5), again=True))),
    "a step again with gradients that were dropped": Kept("ZG104", (BACKWARD, ZERO, Step(at(5), again=True))),
    "a step again of what nobody cleared": Kept("ZG104", (Step(at(5), again=True),)),
    "no step without a backward": Kept("ZG104", (ZERO, End(at(9), idle_loss=at(7)))),
    "a second step without a backward in the loop": Kept(
        "ZG105", (BACKWARD, STEP, Step(at(9), fed=False))
    ),
    "the step of each of two optimizers of the same parameters": Kept(
        "ZG105", (ZERO, BACKWARD, Step(at(8), foreign=True, part=True, whole=True), STEP)
    ),
    "another's second step": Kept("ZG105", (BACKWARD, STEP, Step(at(9), foreign=True))),
    "a second step after what may be a backward": Kept("ZG105", (BACKWARD, STEP, UNSURE, Step(at(9)))),
    "a second step after a backward": Kept("ZG105", (BACKWARD, STEP, BACKWARD, Step(at(9)))),
    "a clip after a step, which is no second step": Kept("ZG105", (BACKWARD, STEP, CLIP)),
    "a step of some parameters that nothing has used": Kept(
        "ZG105", (BACKWARD, Step(at(9), repeated=("weight",)))
    ),
    "a step that may use what another left": Kept("ZG106", (*LENT, replace(STEP, may=True))),
    "another's step with what another left": Kept("ZG106", (*LENT, FOREIGN)),
    "a clip of what another left": Kept("ZG106", (*LENT, CLIP)),
    "what another left, and nothing added": Kept("ZG106", (ZERO, LEFT, OTHERS_STEP, STEP)),
    "what waits for its own step in an open window": Kept("ZG106", (ZERO, LEFT, HOLD, OTHERS_STEP, OWN, STEP)),
    "what reached no other subject": Kept("ZG106", (ZERO, replace(LEFT, alone=True), OTHERS_STEP, OWN, STEP)),
    "a backward for both": Kept("ZG106", (ZERO, LEFT, OTHERS_STEP, BACKWARD, STEP)),
    "the same backward twice": Kept(
        "ZG106",
        (ZERO, replace(LEFT, alone=True), OTHERS_STEP, replace(OWN, site=at(7)), STEP),
    ),
    "a shared trunk": Kept("ZG106", (ZERO, LEFT, replace(OTHERS_STEP, through=False), OWN, STEP)),
    "a loss that reads only what the other has computed": Kept(
        "ZG106", (ZERO, replace(LEFT, read_by=ReadBy.ONLY), OTHERS_STEP, READING, STEP)
    ),
    "a loss that reads nothing of the other": Kept("ZG106", (ZERO, AND_MORE, OTHERS_STEP, BACKWARD, STEP)),
    "one loss for both phases": Kept(
        "ZG106", (ZERO, AND_MORE, OTHERS_STEP, replace(READING, site=at(7)), STEP)
    ),
    "a leak without another's step": Kept("ZG106", (ZERO, LEFT, BACKWARD, replace(STEP, leaked=True))),
    "a bare use of gradients": Kept("ZG107", (ZERO, BACKWARD, Clip(at(4), bare=True))),
    "a bare use of zeros": Kept("ZG107", (Zero(at(1), to_none=False), Clip(at(4), bare=True))),
    "a use that asks": Kept("ZG107", (ZERO, CLIP)),
    "a bare clear that may be another's": Kept("ZG107", (ZERO, Zero(at(4), bare=True, may=True))),
    "a backward of None": Kept("ZG107", (ZERO, BACKWARD)),
    "a backward for an optimizer": Kept("ZG108", (BACKWARD,)),
    "no backward for nobody": Kept("ZG108", (STEP,)),
    "a backward with no gradient of its own": Kept("ZG109", (BACKWARD,)),
    "a step, and no gradient of its own": Kept("ZG109", (STEP,)),
    "a step with finite gradients": Kept("ZG110", (Step(at(5), finite=True),)),
    "a step that nobody looked at": Kept("ZG110", (STEP,)),
    "a step that may be another's": Kept("ZG110", (Step(at(5), finite=False, may=True),)),
    "another's step, not finite": Kept("ZG110", (Step(at(5), finite=False, foreign=True),)),
    "a skip that may be another's": Kept("ZG110", (Step(at(5), skipped=True, may=True),)),
    "another's skip": Kept("ZG110", (Step(at(5), skipped=True, foreign=True),)),
    "a clip of what is not finite": Kept("ZG110", (CLIP,)),
    "a backward that reaches all": Kept("ZG111", (BACKWARD,)),
    "a backward that may reach none": Kept("ZG111", (Backward(at(3), missed=NUMBERS, may=True),)),
    "a step that reaches none": Kept("ZG111", (STEP,)),
    "a step of an optimizer that was made once": Kept("ZG112", (STEP,)),
    "a step that may be of a remade one": Kept("ZG112", (Step(at(5), remade=at(2), may=True),)),
    "another's step of a remade one": Kept("ZG112", (Step(at(5), remade=at(2), foreign=True),)),
    "a backward of a remade one": Kept("ZG112", (BACKWARD,)),
    "a clip of unscaled gradients": Kept("ZG201", (SCALED, UNSCALE, CLIP)),
    "a clip of plain gradients": Kept("ZG201", (BACKWARD, CLIP)),
    "a clip that may be of scaled gradients": Kept("ZG201", (SCALED, replace(CLIP, may=True))),
    "a step with scaled gradients": Kept("ZG201", (SCALED, STEP)),
    "a clip after the scaler's step": Kept("ZG201", (SCALED, SCALER_STEP, CLIP)),
    "a clip between backward and step": Kept("ZG202", (ZERO, BACKWARD, CLIP, STEP)),
    "an early clip and one in time": Kept("ZG202", (ZERO, CLIP, BACKWARD, CLIP, STEP)),
    "an early clip and another's step": Kept("ZG202", (ZERO, CLIP, BACKWARD, FOREIGN)),
    "an early clip without a step": Kept("ZG202", (ZERO, CLIP, BACKWARD, BACKWARD)),
    "an early clip without a backward": Kept("ZG202", (ZERO, CLIP, STEP)),
    "a clip after the step and the clear": Kept(
        "ZG202", (replace(ZERO, site=at(6)), replace(CLIP, site=at(7)), BACKWARD, STEP)
    ),
    "a clip before the step": Kept("ZG203", (BACKWARD, CLIP)),
    "a clip before the backward, not after the step": Kept("ZG203", (ZERO, CLIP, BACKWARD, STEP)),
    "a clip in another loop than the step": Kept(
        "ZG203", (ZERO, Clip(at(7), loop=1), BACKWARD, STEP)
    ),
    "a clip in another file than the step": Kept(
        "ZG203", (ZERO, Clip(replace(at(7), path="other.py")), BACKWARD, STEP)
    ),
    "a clip on the line of the step": Kept("ZG203", (ZERO, Clip(at(5)), BACKWARD, STEP)),
    "a clip after the clear, and another's step": Kept(
        "ZG203", (ZERO, Clip(at(7)), BACKWARD, replace(STEP, foreign=True))
    ),
    "a clip after the clear, and a step without a backward": Kept(
        "ZG203", (ZERO, Clip(at(7)), STEP)
    ),
    "a clip that may come after the step": Kept("ZG203", (BACKWARD, STEP, replace(CLIP, may=True))),
    "a clip after what may be a backward": Kept("ZG203", (BACKWARD, STEP, UNSURE, CLIP)),
    "a clip of stale gradients": Kept("ZG203", (BACKWARD, STEP, BACKWARD, CLIP)),
    "a clear after the step": Kept("ZG203", (BACKWARD, STEP, ZERO)),
    "a clip of the whole window": Kept("ZG204", (BACKWARD, BACKWARD, CLIP, STEP)),
    "a clip inside a window, and another's step": Kept("ZG204", (BACKWARD, CLIP, BACKWARD, FOREIGN)),
    "a clip inside a window that is still open": Kept("ZG204", (BACKWARD, CLIP, BACKWARD, HOLD)),
    "a clip inside a window of stale gradients": Kept(
        "ZG204", (BACKWARD, STEP, BACKWARD, CLIP, BACKWARD, STEP)
    ),
    "a step through the scaler": Kept("ZG205", (SCALED, SCALER_STEP)),
    "a step that may be through a scaler": Kept("ZG205", (SCALED, Step(at(5), scaled=None))),
    "another's step with scaled gradients": Kept("ZG205", (SCALED, FOREIGN)),
    "a step with unscaled gradients": Kept("ZG205", (SCALED, UNSCALE, STEP)),
    "a clip, and no step past the scaler": Kept("ZG205", (SCALED, CLIP)),
    "a scaled backward onto scaled gradients": Kept("ZG206", (SCALED, SCALED)),
    "a scaled backward that may add to unscaled ones": Kept(
        "ZG206", (SCALED, UNSCALE, replace(SCALED, may=True))
    ),
    "a scaled backward after what may be another's, unscaled before": Kept(
        "ZG206", (SCALED, UNSCALE, ZERO, UNSURE, SCALED)
    ),
    "a plain backward onto unscaled gradients": Kept("ZG206", (SCALED, UNSCALE, BACKWARD)),
    "a scaled backward after a clear": Kept("ZG206", (SCALED, UNSCALE, ZERO, SCALED)),
    "a scaled backward onto what was unscaled by hand": Kept(
        "ZG206", (SCALED, Unscale(at(4)), SCALED)
    ),
    "a scaler's step onto unscaled gradients": Kept("ZG206", (SCALED, UNSCALE, SCALER_STEP)),
    "a scaled backward onto plain gradients, unscaled twice": Kept(
        "ZG206", (SCALED, UNSCALE, replace(UNSCALE, may=True), SCALED)
    ),
    "an update between two steps": Kept("ZG207", (SCALED, SCALER_STEP, Update(at(6)), SCALED, SCALER_STEP)),
    "a second step without the scaler": Kept("ZG207", (SCALED, SCALER_STEP, STEP)),
    "another's step through the scaler": Kept(
        "ZG207", (SCALED, SCALER_STEP, Step(at(9), scaled=True, foreign=True))
    ),
    "a step that may be the scaler's second": Kept(
        "ZG207", (SCALED, SCALER_STEP, Step(at(9), scaled=True, may=True))
    ),
    "a first unscale": Kept("ZG207", (SCALED, UNSCALE)),
    "an unscale by hand after a step": Kept("ZG207", (SCALED, SCALER_STEP, Unscale(at(9)))),
    "a scaled backward after the scaler's step": Kept("ZG207", (SCALED, SCALER_STEP, SCALED)),
    "a step after an unscale": Kept("ZG207", (SCALED, UNSCALE, SCALER_STEP)),
    "a scaled loss and the scaler's step": Kept("ZG208", (SCALED, SCALER_STEP)),
    "a scaled loss after a plain one that may be another's": Kept(
        "ZG208", (ZERO, UNSURE, SCALED, SCALER_STEP)
    ),
    "a plain loss and a plain step": Kept("ZG208", (BACKWARD, STEP)),
    "a plain loss and another's scaled step": Kept("ZG208", (BACKWARD, replace(SCALER_STEP, foreign=True))),
    "a plain loss and an unscale": Kept("ZG208", (BACKWARD, UNSCALE)),
    "a window that is divided": Kept("ZG301", (ZERO, *[replace(PLAIN, divisor=2)] * 2, CLOSING)),
    "a window of which one loss is not known": Kept("ZG301", (ZERO, PLAIN, BACKWARD, CLOSING)),
    "a window whose loss may be the whole": Kept(
        "ZG301", (ZERO, *[replace(PLAIN, excuse=Excuse.MAY_BE_WHOLE)] * 2, CLOSING)
    ),
    "a window of one": Kept("ZG301", (ZERO, PLAIN, CLOSING)),
    "a step that no window is meant for": Kept("ZG301", (ZERO, PLAIN, PLAIN, replace(CLOSING, length=1))),
    "another's step of a window": Kept("ZG301", (ZERO, PLAIN, PLAIN, replace(CLOSING, foreign=True))),
    "a window of which another reads a part": Kept(
        "ZG301",
        (ZERO, replace(PLAIN, site=at(7), read_by=ReadBy.ONLY), OTHERS_STEP, PLAIN, CLOSING),
    ),
    "several losses of one iteration": Kept("ZG301", (ZERO, PLAIN, PLAIN, replace(CLOSING, guard=None))),
    "a window that is not stepped": Kept("ZG301", (ZERO, PLAIN, PLAIN, HOLD)),
    "a window of the right length": Kept("ZG302", (ZERO, BACKWARD, BACKWARD, CLOSING)),
    "the last window": Kept("ZG302", (ZERO, BACKWARD, replace(CLOSING, last=True))),
    "another's window": Kept("ZG302", (ZERO, BACKWARD, replace(CLOSING, foreign=True))),
    "a step without a guard": Kept("ZG302", (ZERO, BACKWARD, replace(CLOSING, guard=None))),
    "a guard for windows of one": Kept("ZG302", (ZERO, *[BACKWARD] * 3, replace(CLOSING, length=1))),
    "a window that the loop before has begun": Kept(
        "ZG302", (ZERO, BACKWARD, Enter(at(2)), BACKWARD, BACKWARD, CLOSING)
    ),
    "a window that was cut": Kept("ZG302", (BACKWARD, HOLD, ZERO, BACKWARD, CLOSING)),
    "a window that may be none": Kept("ZG302", (ZERO, UNSURE, CLOSING)),
    "a full window whose last backward may be none": Kept(
        "ZG302", (ZERO, *[UNSURE] * 3, HOLD, End(at(9), length=2))
    ),
    "a guard that never closes what may be no window": Kept(
        "ZG302", (ZERO, BACKWARD, BACKWARD, UNSURE, HOLD, End(at(9), length=2))
    ),
    "no window": Kept("ZG302", (ZERO, CLOSING)),
    "a clear of a short window": Kept("ZG302", (ZERO, BACKWARD, Zero(at(9), length=2))),
    "an open window at the end": Kept("ZG302", (ZERO, BACKWARD, BACKWARD, HOLD, End(at(9), length=2))),
    "a full window of unknown length at the end": Kept("ZG302", (ZERO, *[BACKWARD] * 3, HOLD, End(at(9)))),
    "a full window of one at the end": Kept("ZG302", (ZERO, *[BACKWARD] * 3, HOLD, End(at(9), length=1))),
    "a full window without a guard at the end": Kept(
        "ZG302", (ZERO, *[BACKWARD] * 3, replace(HOLD, guard=None), End(at(9), length=2))
    ),
    "a full window at the end that nothing keeps open": Kept(
        "ZG302", (ZERO, *[BACKWARD] * 3, End(at(9), length=2))
    ),
    "a carried window at the end": Kept(
        "ZG302", (ZERO, BACKWARD, Enter(at(2)), BACKWARD, BACKWARD, HOLD, End(at(9), length=2))
    ),
    "a remainder that is stepped": Kept("ZG303", (ZERO, BACKWARD, HOLD, STEP, End(at(9), length=2))),
    "a remainder that is cleared in its loop": Kept(
        "ZG303", (ZERO, BACKWARD, HOLD, Zero(at(9), length=2, loop=1))
    ),
    "an end in the loop": Kept("ZG303", (ZERO, BACKWARD, End(at(9), length=2, loop=1))),
    "a remainder that may be cleared": Kept("ZG303", (ZERO, BACKWARD, HOLD, Zero(at(9), length=2, may=True))),
    "more than a window at the end": Kept("ZG303", (ZERO, *[BACKWARD] * 3, HOLD, End(at(9), length=2))),
    "a remainder that goes on": Kept("ZG303", (ZERO, BACKWARD, HOLD, BACKWARD)),
    "a carried window that is not too long": Kept(
        "ZG304", (ZERO, BACKWARD, Enter(at(2)), BACKWARD, CLOSING)
    ),
    "a long window of one loop": Kept("ZG304", (ZERO, *[BACKWARD] * 3, CLOSING)),
    "another's carried window": Kept(
        "ZG304",
        (ZERO, BACKWARD, Enter(at(2)), BACKWARD, BACKWARD, replace(CLOSING, foreign=True)),
    ),
    "a carried window without a guard": Kept(
        "ZG304", (ZERO, BACKWARD, Enter(at(2)), BACKWARD, BACKWARD, replace(CLOSING, guard=None))
    ),
    "a carried window of one": Kept(
        "ZG304", (ZERO, BACKWARD, Enter(at(2)), BACKWARD, BACKWARD, replace(CLOSING, length=1))
    ),
    "a carried window that is not stepped": Kept(
        "ZG304", (ZERO, BACKWARD, Enter(at(2)), BACKWARD, BACKWARD, HOLD)
    ),
    "a step with shared gradients": Kept("ZG401", (SHARED, STEP)),
    "a step with gradients that are shared at last": Kept("ZG401", (LOCAL, SHARED, STEP)),
    "a step with gradients that are shared by hand": Kept("ZG401", (LOCAL, Sync(at(4)), STEP)),
    "another's step with gradients of one rank": Kept("ZG401", (LOCAL, FOREIGN)),
    "a part's step with gradients of one rank": Kept("ZG401", (LOCAL, Step(at(5), part=True))),
    "a step that may use gradients of one rank": Kept("ZG401", (LOCAL, replace(STEP, may=True))),
    "a clip of gradients of one rank": Kept("ZG401", (LOCAL, CLIP)),
    "ranks that agree": Kept("ZG402", (Sync(at(9)),)),
    "a step of ranks that agree": Kept("ZG402", (STEP,)),
    "a window that is shared once": Kept("ZG403", (ZERO, replace(LOCAL, volume=80), SHARED, STEP)),
    "a window of one that is shared": Kept("ZG403", (ZERO, SHARED, STEP)),
    "a shared window of a static graph": Kept(
        "ZG403", (ZERO, *[replace(SHARED, excuse=Excuse.STATIC_GRAPH)] * 2, STEP)
    ),
    "a window that had to be shared": Kept("ZG403", (ZERO, *[replace(SHARED, volume=0)] * 2, STEP)),
    "another's shared window": Kept("ZG403", (ZERO, SHARED, SHARED, FOREIGN)),
    "a part's shared window": Kept("ZG403", (ZERO, SHARED, SHARED, Step(at(5), part=True))),
    "a step that may use a shared window": Kept("ZG403", (ZERO, SHARED, SHARED, replace(STEP, may=True))),
    "a clip of a shared window": Kept("ZG403", (ZERO, SHARED, SHARED, CLIP)),
    "a backward of the wrapper": Kept("ZG501", (BACKWARD,)),
    "a backward past a wrapper, where the other arm has it": Kept(
        "ZG501", (Backward(at(3), bypasses="fabric", excuse=Excuse.OTHER_ARM),)
    ),
    "a step past a wrapper": Kept("ZG501", (STEP,)),
}  # fmt: skip


@pytest.mark.parametrize("what", BROKEN)
def test_a_rule_says(what: str) -> None:
    code, sequence, said = BROKEN[what]
    assert verdict(code, *sequence) == said


@pytest.mark.parametrize("what", BROKEN)
def test_every_need_of_the_rule_is_met_by(what: str) -> None:
    code, sequence, _ = BROKEN[what]
    assert all(any(need(event) for event in sequence) for need in rule(code).needs)


@pytest.mark.parametrize("what", KEPT)
def test_a_rule_is_silent_about(what: str) -> None:
    code, sequence = KEPT[what]
    assert verdict(code, *sequence) is None


def test_every_rule_is_broken_and_kept_here() -> None:
    codes = {one.code for one in RULES}
    assert {one.code for one in BROKEN.values()} == codes
    assert {one.code for one in KEPT.values()} == codes


def test_a_bare_use_of_parameters_that_were_just_made_cites_no_clear() -> None:
    made = rule("ZG107").check(state(ZERO, STEP), Clip(at(4), bare=True))
    assert made == ON_NONE
    new = replace(state(ZERO), cleared=None)
    assert rule("ZG107").check(new, Clip(at(4), bare=True)) == replace(ON_NONE, notes=())


@pytest.mark.parametrize(
    ("bytes_", "said"),
    [
        (1, "1 bytes"),
        (999, "999 bytes"),
        (1000, "1 KB"),
        (12_500_000, "12.5 MB"),
        (3 * 10**9, "3 GB"),
        (10**12, "1 TB"),
        (10**16, "1e+04 TB"),
    ],
)
def test_traffic_has_a_readable_unit(bytes_: int, said: str) -> None:
    found = verdict("ZG403", ZERO, *[replace(SHARED, volume=bytes_)] * 2, STEP)
    assert found is not None
    assert f"once is enough: {said} of needless" in found.message


def test_the_rules_about_the_ends_of_windows() -> None:
    assert {one.code for one in RULES if one.judges_ends} == {"ZG302", "ZG303", "ZG304"}


HAND_MADE = {
    "a carried window without a backward": ("ZG304", State(carried=True, window=3), CLOSING),
    "a carried window whose backward may be another's": (
        "ZG304",
        State(carried=True, window=3, backward=UNSURE),
        CLOSING,
    ),
    "a full window whose backward may be another's": (
        "ZG302",
        State(window=3, backward=UNSURE, held=HOLD),
        End(at(9), length=2),
    ),
    "two losses whose gradients are used": (
        "ZG106",
        State(grads=Grads.SPENT, apart=BACKWARD, passing=LEFT),
        STEP,
    ),
    "used gradients without the step": ("ZG203", State(grads=Grads.SPENT), CLIP),
    "scaled gradients without a backward": ("ZG201", State(scale=Scale.SCALED), CLIP),
    "a step with scaled gradients without a backward": ("ZG205", State(scale=Scale.SCALED), STEP),
    "a clipped window without a backward": ("ZG204", State(reclipped=CLIP), STEP),
    "an early clip alone": ("ZG202", State(early=CLIP), STEP),
    "what was dropped, and new gradients": (
        "ZG102",
        State(grads=Grads.LIVE, dropped=(BACKWARD, ZERO)),
        STEP,
    ),
    "a held window without a backward": ("ZG303", State(held=HOLD), End(at(9), length=2)),
    "a held window without a backward that is full": (
        "ZG302",
        State(held=HOLD, window=3),
        End(at(9), length=2),
    ),
    "a cut window without a backward": ("ZG103", State(held=HOLD), replace(ZERO, loop=1)),
    "a window without a backward": ("ZG302", State(window=3), CLOSING),
    "a divided window without a backward": (
        "ZG301",
        State(window=3, divisors=frozenset({None})),
        CLOSING,
    ),
    "a window whose backward may be another's": (
        "ZG301",
        State(window=3, backward=UNSURE, divisors=frozenset({None})),
        CLOSING,
    ),
    "gradients after a clear": (
        "ZG104",
        State(grads=Grads.LIVE, cleared=ZERO),
        Step(at(5), again=True),
    ),
    "what another left, and no backward": (
        "ZG106",
        State(lent=(LEFT, OTHERS_STEP)),
        replace(STEP, leaked=True),
    ),
    "unscaled gradients without a backward": (
        "ZG206",
        State(scale=Scale.PLAIN, unscaled=UNSCALE),
        SCALED,
    ),
    "shared gradients without a backward": ("ZG403", State(syncs=3, window=3), STEP),
}


@pytest.mark.parametrize("what", HAND_MADE)
def test_a_rule_accepts_any_state_and_is_silent_about(what: str) -> None:
    code, before, event = HAND_MADE[what]
    assert rule(code).check(before, event) is None


@pytest.mark.parametrize(
    ("code", "event"),
    [
        ("ZG102", STEP),
        ("ZG102", End(at(9))),
        ("ZG104", STEP),
        ("ZG104", Step(at(5), fed=False)),
        ("ZG106", STEP),
        ("ZG107", CLIP),
        ("ZG109", BACKWARD),
        ("ZG110", STEP),
        ("ZG110", Step(at(5), finite=True)),
        ("ZG111", BACKWARD),
        ("ZG112", STEP),
        ("ZG205", BACKWARD),
        ("ZG205", CLIP),
        ("ZG301", Step(at(5), length=1)),
        ("ZG303", STEP),
        ("ZG401", SHARED),
        ("ZG401", STEP),
        ("ZG402", Sync(at(9))),
        ("ZG402", STEP),
        ("ZG403", LOCAL),
        ("ZG403", STEP),
        ("ZG501", BACKWARD),
        ("ZG501", replace(BACKWARD, bypasses="fabric", excuse=Excuse.OTHER_ARM)),
    ],
)
def test_what_a_rule_needs_is_more_than(code: str, event: Event) -> None:
    assert not rule(code).needs[0](event)


def test_a_need_is_met_by_what_the_rule_is_about() -> None:
    assert rule("ZG301").needs[0](Step(at(5), length=2))
    assert rule("ZG301").needs[0](HOLD)
    assert rule("ZG303").needs[0](Step(at(5), guard=GUARD))
    assert rule("ZG205").needs[0](UNSCALE)
    assert rule("ZG205").needs[0](SCALER_STEP)
