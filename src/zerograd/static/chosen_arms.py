"""Loops in which a setting chooses one of several programs: with other optimizers, or with accumulation.

`if self.backend == "ddp": … elif self.backend == "deepspeed": …` inside the loop: where one optimizer is stepped,
the others are not there, and no loss of theirs is.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from zerograd.core.events import Backward, Step
from zerograd.explore import logic
from zerograd.explore.explore import WindowTrial
from zerograd.explore.flow import Alt, Flow, Loop, assigned, children, find, rebuild, walk
from zerograd.explore.logic import Expr, Fact, Value, Variable
from zerograd.static.accumulation import Counting
from zerograd.static.interp.emitter import Act
from zerograd.static.read.keys import Key

Steps = dict[Key, int]
"""How often each optimizer is stepped."""
Facts = dict[Variable | Fact, Value]
"""What the settings are where one program runs."""


def with_chosen_arms(flow: Flow, key: Key) -> tuple[Flow, set[Key]]:
    """The flow in which settings are chosen so that an optimizer is stepped; and the optimizers that no arm left over steps."""
    counts = _steps(flow)
    if len(counts) < 2:
        return flow, set()
    settled: Facts = {}
    chosen = _chosen(flow, key, counts, None, settled)
    gone = counts.keys() - _steps(chosen)
    return (_agreeing(chosen, settled, False), gone) if gone else (flow, gone)


MOST_PROGRAMS = 6


class ChosenProgram(NamedTuple):
    """What runs where settings have chosen."""

    flow: Flow
    choices: tuple[tuple[Expr, bool], ...] = ()
    """The tests of the settings, and how they come out."""

    def runs_with(self, window: WindowTrial) -> bool:
        """Whether its settings allow windows of this length: `if N > 1:` leaves N = 1 to its other arm."""
        known = dict(window.constants())
        return all(logic.truth_of(test, known) in (None, truth) for test, truth in self.choices)


def programs(flow: Flow, key: Key) -> list[ChosenProgram]:
    """The programs between which a setting chooses, if several of them train with the same optimizer."""
    found = [ChosenProgram(flow)]
    while len(found) < MOST_PROGRAMS:
        splits = (
            (at, alt)
            for at, one in enumerate(found)
            for alt in _settled(one.flow, None)
            if _trains(alt.then, key) and _trains(alt.orelse, key)
        )
        at, alt = next(splits, (0, None))
        if alt is None:
            break
        found[at : at + 1] = [_program(found[at], alt, truth) for truth in (True, False)]
    return found if len(found) > 1 else []


def accumulating(flow: Flow, key: Key) -> ChosenProgram | None:
    """The program that accumulates, if a test chooses in the loop between that and a step in each batch."""
    counting = Counting.of(flow)
    if not any(isinstance(part, Alt) and counting.lengths(part.test) for part in walk(flow)):
        return None
    choices: list[tuple[Expr, bool]] = []
    found = _paced_arms(flow, key, counting, choices, in_loop=False)
    if _steps(found).get(key) == _steps(flow).get(key):
        return None
    settled = {fact: value for choice in choices for fact, value in logic.facts(*choice)}
    return ChosenProgram(_agreeing(found, settled, False), tuple(choices))


def _paced_arms(
    part: Flow, key: Key, counting: Counting, choices: list[tuple[Expr, bool]], *, in_loop: bool
) -> Flow:
    """The flow in which a test in a loop has only its arm that accumulates, if the other one does not.

    `choices` gets these tests, and how they come out.
    """
    if isinstance(part, Alt) and in_loop and not logic.reads(part.test) & counting.counters:
        paced = [_is_paced(arm, key, counting) for arm in (part.then, part.orelse)]
        if True in paced and False in paced:
            truth = paced[0] is True
            choices.append((part.test, truth))
            chosen = part.then if truth else part.orelse
            return _paced_arms(chosen, key, counting, choices, in_loop=in_loop)
    in_loop = in_loop or isinstance(part, Loop)
    return rebuild(part, lambda inner: _paced_arms(inner, key, counting, choices, in_loop=in_loop))


def _is_paced(arm: Flow, key: Key, counting: Counting) -> bool | None:
    """Whether a guard in an arm decides about all steps of an optimizer in it; None if there is no step."""
    if not _steps(arm).get(key):
        return None
    guards = (part for part in find(arm, Alt) if counting.lengths(part.test))
    return any(_steps(guard).get(key) for guard in guards)


def _settled(flow: Flow, changing: frozenset[Variable] | None) -> Iterator[Alt]:
    """The tests in loops that come out the same in all iterations; `changing` is what the loop around assigns."""
    if isinstance(flow, Loop) and changing is None:
        changing = assigned(flow)
    elif isinstance(flow, Alt) and changing is not None and _is_settled(flow, changing):
        yield flow
    for part in children(flow):
        yield from _settled(part, changing)


def _trains(flow: Flow, key: Key) -> bool:
    acts = find(flow, Act)
    steps = any(isinstance(act.event, Step) and key in act.whose for act in acts)
    return steps and any(isinstance(act.event, Backward) for act in acts)


def _program(program: ChosenProgram, alt: Alt, truth: bool) -> ChosenProgram:
    """The program with this outcome of every test of a setting."""
    chosen = _with(program.flow, alt, alt.then if truth else alt.orelse)
    settled = dict(logic.facts(alt.test, truth))
    return ChosenProgram(_agreeing(chosen, settled, False), (*program.choices, (alt.test, truth)))


def _with(flow: Flow, alt: Alt, arm: Flow) -> Flow:
    return arm if flow is alt else rebuild(flow, lambda part: _with(part, alt, arm))


def _agreeing(flow: Flow, settled: Facts, in_loop: bool) -> Flow:
    """The flow in which all tests of the settings have the outcomes that lead to the chosen arm."""
    if isinstance(flow, Alt) and in_loop:
        truth = logic.truth_of(flow.test, settled)
        if truth is not None:
            return _agreeing(flow.then if truth else flow.orelse, settled, in_loop)
    in_loop = in_loop or isinstance(flow, Loop)
    return rebuild(flow, lambda part: _agreeing(part, settled, in_loop))


def _chosen(
    flow: Flow, key: Key, counts: Steps, changing: frozenset[Variable] | None, settled: Facts
) -> Flow:
    """`changing` are the variables that change while the loops around run; None outside of loops."""
    if isinstance(flow, Loop) and changing is None:
        changing = assigned(flow)
    elif isinstance(flow, Alt) and changing is not None and _is_settled(flow, changing):
        then, orelse = _steps(flow.then), _steps(flow.orelse)
        for arm, mine, others in ((flow.then, then, orelse), (flow.orelse, orelse, then)):
            elsewhere = (count == counts[other] for other, count in others.items())
            if key in mine and key not in others and any(elsewhere):
                settled.update(logic.facts(flow.test, arm is flow.then))
                return _chosen(arm, key, counts, changing, settled)
    return rebuild(flow, lambda part: _chosen(part, key, counts, changing, settled))


def _is_settled(alt: Alt, changing: frozenset[Variable]) -> bool:
    """Whether a test comes out the same in all iterations."""
    return logic.stable(alt.test) and not logic.reads(alt.test) & changing


def _steps(flow: Flow) -> Steps:
    found: Steps = {}
    for part in find(flow, Act):
        if isinstance(part.event, Step):
            for key in part.whose:
                found[key] = found.get(key, 0) + 1
    return found
