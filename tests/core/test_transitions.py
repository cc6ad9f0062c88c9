"""What one event changes of a state, field by field, where the next rules read it."""

from __future__ import annotations

from dataclasses import replace
from functools import reduce

import pytest

from support.event_sequences import at
from zerograd.core.automaton import Automaton
from zerograd.core.events import (
    Assign,
    Backward,
    Clip,
    Event,
    Excuse,
    Hold,
    Measured,
    Step,
    Unscale,
    Zero,
)
from zerograd.core.lifecycle import START, Grads, Scale, State, advance

ZERO = Zero(at(1))
BACKWARD = Backward(at(3))
LATER = Backward(at(7))
OWN = Backward(at(7), alone=True)
SCALED = Backward(at(3), scaled=True)
STEP = Step(at(5))
SCALER_STEP = Step(at(5), scaled=True)
FOREIGN = Step(at(8), foreign=True)
PART = Step(at(8), part=True)
CLIP = Clip(at(4))
UNSCALE = Unscale(at(4), scaled=True)
HOLD = Hold(at(6))


def after(*sequence: Event, start: State = START) -> State:
    return reduce(advance, sequence, start)


def test_a_clear_of_what_another_has_used_drops_nothing_but_what_was_added_since() -> None:
    assert after(BACKWARD, PART, ZERO).dropped is None
    assert after(BACKWARD, STEP, PART, BACKWARD, ZERO).dropped == (BACKWARD, ZERO)


def test_a_window_is_cut_until_it_is_filled_again() -> None:
    cut = after(BACKWARD, HOLD, ZERO)
    assert cut.cut
    assert after(ZERO, start=cut).cut
    assert not after(BACKWARD, ZERO, start=cut).cut
    assert not after(ZERO, ZERO).cut


def test_what_a_run_has_seen_of_a_backward_counts_more_than_the_state() -> None:
    assert after(ZERO, replace(BACKWARD, leftover=True)).grads is Grads.STALE
    fresh = after(BACKWARD, STEP, replace(BACKWARD, leftover=False))
    assert fresh.grads is Grads.LIVE
    assert fresh.mixed is None
    stale = after(BACKWARD, STEP, BACKWARD, replace(BACKWARD, leftover=False))
    assert stale.grads is Grads.STALE


def test_a_backward_ends_a_clear_and_a_hold() -> None:
    assert after(ZERO).cleared == ZERO
    assert after(ZERO, BACKWARD).cleared is None
    assert after(BACKWARD, HOLD).held == HOLD
    assert after(BACKWARD, HOLD, BACKWARD).held is None


def test_a_clip_in_a_window_is_remembered_until_the_step() -> None:
    assert after(BACKWARD, CLIP, BACKWARD, BACKWARD).reclipped == CLIP
    assert after(BACKWARD, CLIP, BACKWARD, BACKWARD, STEP).reclipped is None


def test_what_is_stale_is_not_crossed() -> None:
    lent = after(ZERO, BACKWARD, FOREIGN)
    assert lent.lent == (BACKWARD, FOREIGN)
    assert after(OWN, start=lent).crossed == OWN
    assert after(replace(OWN, leftover=True), start=lent).crossed is None


def test_the_backward_that_is_cited_is_the_first_unless_that_was_for_another() -> None:
    assert after(BACKWARD, STEP, BACKWARD, OWN).mixed == BACKWARD
    others = after(BACKWARD, STEP, BACKWARD, FOREIGN)
    assert others.others == (BACKWARD, FOREIGN)
    assert after(OWN, start=others).mixed == OWN
    assert after(LATER, start=others).mixed == BACKWARD
    through = after(BACKWARD, STEP, BACKWARD, replace(FOREIGN, through=True))
    assert after(LATER, start=through).mixed == LATER
    # What was for another is no longer what is cited.
    assert after(LATER, OWN, start=through).mixed == LATER


def test_only_stale_gradients_are_for_another() -> None:
    assert after(BACKWARD, STEP, BACKWARD, replace(FOREIGN, through=False)).others is None
    assert after(BACKWARD, STEP, BACKWARD, replace(FOREIGN, through=False)).lent is None
    live = after(ZERO, BACKWARD, FOREIGN)
    assert live.others is None
    mixed = State(grads=Grads.LIVE, mixed=BACKWARD, backward=LATER)
    assert advance(mixed, FOREIGN) == replace(mixed, lent=(LATER, FOREIGN))
    unmixed = State(grads=Grads.STALE, backward=LATER)
    assert advance(unmixed, FOREIGN) == unmixed


def test_a_loss_that_may_be_whole_has_an_unknown_divisor() -> None:
    whole = replace(BACKWARD, divisor=None, excuse=Excuse.MAY_BE_WHOLE)
    assert after(ZERO, whole).divisors == {0}
    assert after(ZERO, replace(BACKWARD, divisor=4)).divisors == {4}


def test_what_ranks_have_not_shared_stays_so_where_nothing_is_to_be_shared() -> None:
    local = replace(BACKWARD, synced=False)
    assert after(local, LATER).local == local
    assert after(local, replace(LATER, synced=True)).local is None
    assert after(local, replace(LATER, synced=False)).local == replace(LATER, synced=False)


@pytest.mark.parametrize(
    ("sequence", "scale"),
    [
        ((BACKWARD,), Scale.PLAIN),
        ((SCALED, BACKWARD), Scale.SCALED),
        ((SCALED, UNSCALE), Scale.PLAIN),
        ((SCALED, UNSCALE, SCALED), Scale.MIXED),
        ((SCALED, UNSCALE, SCALED, SCALED), Scale.SCALED),
        ((SCALED, UNSCALE, ZERO, SCALED), Scale.SCALED),
        ((BACKWARD, SCALED), Scale.SCALED),
        ((replace(BACKWARD, scaled=None),), Scale.UNKNOWN),
        ((UNSCALE,), Scale.UNKNOWN),
        ((SCALED, replace(UNSCALE, may=True)), Scale.UNKNOWN),
    ],
)
def test_the_scale_of_the_gradients(sequence: tuple[Event, ...], scale: Scale) -> None:
    assert after(*sequence).scale is scale


def test_a_step_of_a_part_uses_the_gradients_and_leaves_them() -> None:
    live = after(ZERO, BACKWARD)
    assert advance(live, PART) == replace(live, used=PART, shared=True)


def test_a_step_of_another_optimizer_of_the_same_parameters_spends_what_is_there() -> None:
    whole = Step(at(8), foreign=True, part=True, whole=True)
    live, empty = after(ZERO, BACKWARD), after(ZERO)
    assert advance(live, whole) == replace(live, grads=Grads.SPENT, used=whole, shared=True)
    assert advance(empty, whole) == replace(empty, used=whole, shared=True)
    assert after(ZERO, BACKWARD, whole, LATER).grads is Grads.STALE
    assert after(ZERO, BACKWARD, whole, ZERO).dropped is None


def test_a_step_of_a_scaler_is_remembered_until_its_update() -> None:
    assert after(ZERO, SCALER_STEP).stepped == SCALER_STEP
    assert after(ZERO, SCALER_STEP, STEP).stepped == SCALER_STEP
    assert after(SCALED, SCALER_STEP, ZERO, SCALED).stepped == SCALER_STEP


def test_the_step_that_is_cited_has_no_numbers_of_its_own() -> None:
    measured = replace(STEP, measured=Measured(5.0, 8.0))
    assert after(BACKWARD, measured).used == STEP
    assert after(BACKWARD, STEP).used == STEP


def test_a_clip_that_may_be_of_others_changes_nothing() -> None:
    live = after(ZERO, BACKWARD)
    assert advance(live, replace(CLIP, may=True)) == live
    assert after(ZERO, replace(CLIP, may=True)).early is None
    assert advance(live, CLIP) == replace(live, clipped=CLIP)


def test_what_may_be_divided_has_an_unknown_divisor() -> None:
    assert after(ZERO, replace(BACKWARD, divisor=4), replace(UNSCALE, may=True)).divisors == {0}


def test_a_division_by_hand_makes_plain_gradients_scaled_ones() -> None:
    assert after(BACKWARD).plain == BACKWARD
    assert after(BACKWARD, UNSCALE).plain == BACKWARD
    by_hand = after(BACKWARD, Unscale(at(4)))
    assert by_hand.plain is None
    assert by_hand.unscaled is None


def test_what_another_leaves_after_the_step_opens_no_window() -> None:
    assert after(BACKWARD, STEP, BACKWARD, HOLD).held is None
    assert after(BACKWARD, STEP, OWN, HOLD).held == HOLD


def test_assigned_gradients_are_one_contribution() -> None:
    before = after(SCALED, UNSCALE, SCALER_STEP)
    assert advance(before, Assign(at(9))) == State(
        grads=Grads.LIVE, window=1, unscaled=UNSCALE, stepped=SCALER_STEP
    )


def test_what_is_added_by_hand_joins_gradients_and_fills_empty_ones() -> None:
    added = Assign(at(9), adds=True)
    assert advance(after(ZERO, BACKWARD), added).grads is Grads.LIVE
    divided = replace(BACKWARD, divisor=4)
    joined = advance(after(divided), added)
    assert (joined.backward, joined.scale) == (divided, Scale.UNKNOWN)
    assert joined.divisors == {0}
    assert advance(after(ZERO), added).grads is Grads.UNKNOWN
    assert advance(after(BACKWARD, STEP), added).grads is Grads.UNKNOWN


def test_a_run_remembers_so_many_edges_and_then_none() -> None:
    machine = Automaton((), most_edges=2)
    for _ in range(2):
        node = machine.node()
        assert not node.edges
        first = machine.take(node, BACKWARD)
        machine.take(node, STEP)
        assert machine.take(node, BACKWARD) is first
        third = machine.take(node, ZERO)
        assert list(node.edges.values()) == [third]
        machine.take(node, LATER)
        machine.take(node, OWN)
        node.edges.clear()
        machine.forget()
