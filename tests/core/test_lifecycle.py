"""The state machine, row by row: what each event does to gradients, and that no event ever fails."""

from __future__ import annotations

from dataclasses import replace
from functools import reduce

import pytest
from hypothesis import given
from hypothesis import strategies as st

from support import tiers
from support.event_sequences import EVENTS, at, sequences
from zerograd.core.events import (
    KINDS,
    Assign,
    Backward,
    Clip,
    End,
    Enter,
    Event,
    Hold,
    New,
    Observation,
    Step,
    Sync,
    Unknown,
    Unscale,
    Update,
    Zero,
)
from zerograd.core.lifecycle import (
    EMPTY,
    LONGEST_WINDOW,
    NEW,
    START,
    Grads,
    Scale,
    State,
    advance,
)
from zerograd.core.rule import Rule
from zerograd.rules.catalogue import RULES

many = tiers.random(1000)

ZERO = Zero(at(1))
ZERO_IN_PLACE = Zero(at(2), to_none=False)
BACKWARD = Backward(at(3))
SCALED = Backward(at(4), scaled=True)
STEP = Step(at(5))
SCALER_STEP = Step(at(6), scaled=True)
FOREIGN_STEP = Step(at(7), foreign=True)
CLIP = Clip(at(8))
UNSCALE = Unscale(at(9), scaled=True)
UPDATE = Update(at(10))
HOLD = Hold(at(11))
ENTER = Enter(at(12))
ASSIGN = Assign(at(13))
UNKNOWN = Unknown(at(14))


def after(*sequence: Event, start: State = START) -> State:
    return reduce(advance, sequence, start)


def may(event: Event) -> Event:
    return replace(event, may=True)


WAYS = {
    "unknown": after(),
    "none": after(ZERO),
    "zero": after(ZERO_IN_PLACE),
    "live": after(ZERO, BACKWARD),
    "spent": after(ZERO, BACKWARD, STEP),
    "stale": after(ZERO, BACKWARD, STEP, BACKWARD),
}
"""A state of each kind, and the shortest way there."""

TABLE = """
          zero  zero-in-place  backward  assign  unscale  clip     step     foreign  update   hold     enter    sync     end      new   unknown
unknown   none  zero           unknown   live    unknown  unknown  spent    unknown  unknown  unknown  unknown  unknown  unknown  none  unknown
none      none  zero           live      live    none     none     none     none     none     none     none     none     none     none  unknown
zero      none  zero           live      live    zero     zero     zero     zero     zero     zero     zero     zero     zero     none  unknown
live      none  zero           live      live    live     live     spent    live     live     live     live     live     live     none  unknown
spent     none  zero           stale     live    spent    spent    spent    spent    spent    spent    spent    spent    spent    none  unknown
stale     none  zero           stale     live    stale    stale    spent    stale    stale    stale    stale    stale    stale    none  unknown
"""

EVENTS_OF_THE_TABLE = {
    "zero": ZERO,
    "zero-in-place": ZERO_IN_PLACE,
    "backward": BACKWARD,
    "assign": ASSIGN,
    "unscale": UNSCALE,
    "clip": CLIP,
    "step": STEP,
    "foreign": FOREIGN_STEP,
    "update": UPDATE,
    "hold": HOLD,
    "enter": ENTER,
    "sync": Sync(at(15)),
    "end": End(at(16)),
    "new": New(at(17)),
    "unknown": UNKNOWN,
}

HEAD, *ROWS = [line.split() for line in TABLE.strip().splitlines()]
CELLS = [(row[0], event, to) for row in ROWS for event, to in zip(HEAD, row[1:], strict=True)]


@pytest.mark.parametrize(("before", "event", "then"), CELLS)
def test_the_transition_table_holds(before: str, event: str, then: str) -> None:
    assert WAYS[before].grads.value == before
    assert advance(WAYS[before], EVENTS_OF_THE_TABLE[event]).grads.value == then


def test_the_table_has_every_state_and_every_event() -> None:
    assert [row[0] for row in ROWS] == list(WAYS)
    assert set(WAYS) == {grads.value for grads in Grads}
    assert list(EVENTS_OF_THE_TABLE) == HEAD
    assert {event.kind for event in EVENTS_OF_THE_TABLE.values()} == set(KINDS)


# Windows


def test_a_window_counts_the_backward_calls_since_the_clear() -> None:
    assert [after(ZERO, *[BACKWARD] * n).window for n in range(4)] == [0, 1, 2, 3]
    assert after(ZERO, BACKWARD, BACKWARD, ZERO).window == 0
    assert after(ZERO, BACKWARD, STEP).window == 0


def test_a_window_is_capped() -> None:
    assert after(ZERO, *[BACKWARD] * 99).window == LONGEST_WINDOW


def test_a_window_knows_by_what_its_losses_were_divided() -> None:
    halves, whole = replace(BACKWARD, divisor=2), replace(BACKWARD, divisor=None)
    assert after(ZERO, halves, halves).divisors == {2}
    assert after(ZERO, halves, whole).divisors == {2, None}
    assert after(ZERO, halves, ZERO, whole).divisors == {None}


def test_a_hold_counts_only_where_there_is_a_window() -> None:
    assert after(ZERO, HOLD).held is None
    assert after(ZERO, BACKWARD, HOLD).held == HOLD


def test_a_clear_of_a_held_window_cuts_it_until_a_step() -> None:
    cut = after(ZERO, BACKWARD, HOLD, ZERO)
    assert cut.cut
    assert after(ZERO, BACKWARD, start=cut).cut
    assert not after(BACKWARD, STEP, start=cut).cut
    assert not after(ZERO, BACKWARD, ZERO).cut


def test_a_window_is_carried_when_it_is_open_as_the_loop_begins() -> None:
    assert after(ZERO, BACKWARD, ENTER).carried
    assert not after(ZERO, ENTER).carried
    assert not after(ZERO, BACKWARD, STEP, ENTER).carried
    assert not after(ZERO, BACKWARD, ENTER, STEP).carried


# Used, mixed, dropped


def test_stale_gradients_remember_the_step_and_the_first_backward_that_mixed() -> None:
    later = replace(BACKWARD, site=at(30))
    state = after(ZERO, BACKWARD, STEP, later)
    assert (state.grads, state.used, state.mixed) == (Grads.STALE, STEP, later)
    assert after(ZERO, BACKWARD, STEP).used == STEP
    assert after(ZERO, BACKWARD, STEP, ZERO).used is None


def test_a_clear_remembers_what_it_dropped_until_something_comes_or_a_step_passes() -> None:
    dropped = after(ZERO, BACKWARD, ZERO_IN_PLACE)
    assert dropped.dropped == (BACKWARD, ZERO_IN_PLACE)
    assert after(ZERO, start=dropped).dropped == (BACKWARD, ZERO_IN_PLACE)
    assert after(BACKWARD, start=dropped).dropped is None
    assert after(STEP, start=dropped).dropped is None


def test_a_clear_of_used_gradients_drops_nothing() -> None:
    assert after(ZERO, BACKWARD, STEP, ZERO).dropped is None


def test_a_clear_of_what_may_be_there_drops_nothing() -> None:
    assert after(ZERO, may(BACKWARD), ZERO).dropped is None


# Scale


@pytest.mark.parametrize(
    ("sequence", "scale"),
    [
        ((), Scale.UNKNOWN),
        ((ZERO,), Scale.PLAIN),
        ((ZERO, BACKWARD), Scale.PLAIN),
        ((ZERO, SCALED), Scale.SCALED),
        ((ZERO, SCALED, SCALED), Scale.SCALED),
        ((ZERO, SCALED, UNSCALE), Scale.PLAIN),
        ((ZERO, SCALED, UNSCALE, SCALED), Scale.MIXED),
        ((ZERO, SCALED, SCALER_STEP), Scale.PLAIN),
        ((ZERO, SCALED, ZERO), Scale.PLAIN),
        ((ZERO, SCALED, may(UNSCALE)), Scale.UNKNOWN),
        ((ZERO, replace(BACKWARD, scaled=None)), Scale.UNKNOWN),
        ((ZERO, may(SCALED), BACKWARD), Scale.PLAIN),
        ((ASSIGN,), Scale.UNKNOWN),
    ],
)
def test_scale_follows_the_value(sequence: tuple[Event, ...], scale: Scale) -> None:
    assert after(*sequence).scale is scale


def test_the_scaler_s_round_lasts_until_its_update() -> None:
    unscaled = after(ZERO, SCALED, UNSCALE)
    assert unscaled.unscaled == UNSCALE
    stepped = after(SCALER_STEP, ZERO, SCALED, start=unscaled)
    assert (stepped.unscaled, stepped.stepped) == (UNSCALE, SCALER_STEP)
    updated = after(UPDATE, start=stepped)
    assert (updated.unscaled, updated.stepped) == (None, None)


def test_a_step_without_the_scaler_begins_no_round() -> None:
    assert after(ZERO, BACKWARD, STEP).stepped is None


def test_dividing_by_hand_is_no_unscale_of_the_scaler() -> None:
    by_hand = replace(UNSCALE, scaled=False)
    state = after(ZERO, SCALED, by_hand)
    assert (state.scale, state.unscaled) == (Scale.PLAIN, None)


# Clip


def test_a_clip_holds_until_a_backward_adds_to_it() -> None:
    clipped = after(ZERO, BACKWARD, CLIP)
    assert (clipped.clipped, clipped.reclipped) == (CLIP, None)
    added = after(BACKWARD, start=clipped)
    assert (added.clipped, added.reclipped) == (None, CLIP)


def test_a_clip_of_nothing_is_early_until_a_clip_of_something() -> None:
    assert after(ZERO, CLIP).early == CLIP
    assert after(ZERO, CLIP, BACKWARD).early == CLIP
    assert after(ZERO, CLIP, BACKWARD, CLIP).early is None
    assert after(ZERO, CLIP, STEP).early is None


def test_a_clip_after_the_step_changes_nothing() -> None:
    spent = after(ZERO, BACKWARD, STEP)
    assert after(CLIP, start=spent) == spent


# Other subjects


def test_another_s_step_borrows_what_is_there() -> None:
    state = after(ZERO, BACKWARD, FOREIGN_STEP)
    assert (state.grads, state.lent) == (Grads.LIVE, (BACKWARD, FOREIGN_STEP))
    assert after(ZERO, FOREIGN_STEP).lent is None
    assert after(ZERO, may(BACKWARD), FOREIGN_STEP).lent is None
    assert after(ZERO, BACKWARD, STEP, FOREIGN_STEP).lent is None


def test_only_one_s_own_backward_crosses_a_lent_one() -> None:
    lent = after(ZERO, BACKWARD, FOREIGN_STEP)
    own = Backward(at(40), alone=True)
    assert after(own, start=lent).crossed == own
    assert after(replace(own, alone=False), start=lent).crossed is None
    assert after(ZERO, own, start=lent).crossed is None


def test_the_same_line_crosses_only_what_it_did_not_fill_alone() -> None:
    own = replace(BACKWARD, alone=True)
    assert after(ZERO, BACKWARD, FOREIGN_STEP, own).crossed == own
    assert after(ZERO, own, FOREIGN_STEP, own).crossed is None


def test_what_another_s_step_has_used_is_not_dropped() -> None:
    assert after(ZERO, BACKWARD, FOREIGN_STEP, ZERO).dropped is None


# May


def test_a_backward_that_may_reach_fills_what_was_empty() -> None:
    assert after(ZERO, may(BACKWARD)).grads is Grads.LIVE


def test_a_backward_that_may_reach_used_gradients_leaves_them_used() -> None:
    state = after(ZERO, BACKWARD, STEP, may(BACKWARD))
    assert (state.grads, state.maybe) == (Grads.SPENT, may(BACKWARD))
    assert after(BACKWARD, start=state).maybe is None
    assert after(STEP, start=state).maybe is None


@pytest.mark.parametrize("event", [ZERO, ASSIGN], ids=["zero", "assign"])
def test_what_may_clear_leaves_nothing_known(event: Event) -> None:
    for state in WAYS.values():
        stays_none = isinstance(event, Zero) and state.grads is Grads.NONE
        assert after(may(event), start=state) == (state if stays_none else START)


def test_new_parameters_hold_nothing_and_nothing_is_scaled() -> None:
    assert (NEW.grads, NEW.scale) == (Grads.NONE, Scale.PLAIN)


# Any sequence


@many
@given(sequences)
def test_every_sequence_leads_to_a_hashable_state_with_a_short_window(
    sequence: list[Event],
) -> None:
    for start in (START, NEW):
        state = after(*sequence, start=start)
        assert isinstance(hash(state), int)
        assert 0 <= state.window <= LONGEST_WINDOW
        assert after(*sequence, start=start) == state


@many
@given(sequences)
def test_what_is_cleared_holds_nothing(sequence: list[Event]) -> None:
    state = after(*sequence)
    if state.grads in EMPTY:
        assert state.window == 0
        assert (state.backward, state.mixed, state.clipped) == (None,) * 3
        # Another optimizer may step parameters that it shares with this one.
        assert state.used is None or state.shared
    for event in (ZERO, ZERO_IN_PLACE):
        cleared = advance(state, event)
        assert cleared.grads in EMPTY
        assert cleared.cleared == event


@many
@given(sequences)
def test_a_step_uses_all_that_is_there(sequence: list[Event]) -> None:
    state = after(*sequence)
    if state.grads not in EMPTY:
        spent = advance(state, STEP)
        assert (spent.grads, spent.used, spent.window) == (Grads.SPENT, STEP, 0)


@many
@given(sequences)
def test_stale_gradients_have_both_ends(sequence: list[Event]) -> None:
    state = after(*sequence)
    looked = any(isinstance(event, Backward) and event.leftover for event in sequence)
    if state.grads is Grads.STALE:
        # A run that has looked may have seen the gradients of a step that it had not seen.
        assert looked or state.used is not None
        assert state.mixed is not None
    if state.grads is Grads.SPENT:
        assert state.used is not None


# What holds in every state


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.code)
def test_of_unknown_gradients_no_rule_speaks(rule: Rule) -> None:
    for event in EVENTS:
        said_by_the_event = (
            not rule.reads
            or isinstance(event, Observation)
            or (isinstance(event, End) and event.idle_loss)
        )
        assert said_by_the_event or rule.check(START, event) is None


MAY_BE_ANOTHER_S = [
    may(event) for event in EVENTS if isinstance(event, (Zero, Backward, Clip, Assign))
]


@many
@given(sequences, st.sampled_from(MAY_BE_ANOTHER_S))
def test_an_event_that_may_be_another_s_accuses_nobody(sequence: list[Event], event: Event) -> None:
    state = after(*sequence)
    said_by_the_event = isinstance(event, Backward) and (
        event.own_gradient or event.bypasses != "" or event.orphan
    )
    in_place = isinstance(event, (Clip, Assign)) and event.bare
    for rule in RULES:
        assert said_by_the_event or in_place or rule.check(state, event) is None


@many
@given(sequences)
def test_another_s_step_accuses_nobody(sequence: list[Event]) -> None:
    state = after(*sequence)
    for rule in RULES:
        for scaled in (False, True):
            assert rule.check(state, replace(FOREIGN_STEP, scaled=scaled)) is None


def test_a_step_that_may_be_of_this_subject_leaves_nothing_known() -> None:
    assert after(ZERO, BACKWARD, may(STEP)) == START
    assert after(ZERO, may(STEP)) == START


@pytest.mark.parametrize("one", [*Grads, *Scale])
def test_a_state_is_named_in_small_letters(one: Grads | Scale) -> None:
    assert one.value == one.name.lower()
