"""Whose gradients: what of a flow one optimizer, one of its modules, or one leaf sees."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import fields

import pytest

from support.event_sequences import at
from support.expressions import read
from zerograd.core.events import (
    Assign,
    Backward,
    Clip,
    Event,
    Excuse,
    New,
    Site,
    Step,
    Unknown,
    Unscale,
    Update,
    Zero,
)
from zerograd.explore.flow import (
    RAISE,
    Alt,
    Block,
    Break,
    Continue,
    Emit,
    Flow,
    Jump,
    Loop,
    Return,
    Seq,
    Set,
    Try,
    walk,
)
from zerograd.explore.logic import Name, Opaque, Variable
from zerograd.static.frameworks.table import Role
from zerograd.static.interp.emitter import Act
from zerograd.static.projection import EMPTY, View
from zerograd.static.read.keys import Key, local
from zerograd.static.subject_events import (
    MOST_PARTS,
    SubjectEvents,
    SubjectKeys,
    parts,
    subjects,
)

X = Name("x")


def key(text: str) -> Key:
    """The key of an object: `model.net`, `opts[0]`, `opts[*]`."""
    name, *parts = re.findall(r"@?\w+|\[.*?\]", text)
    found = local(name)
    for part in parts:
        if part == "[*]":
            found = found.any_item()
        elif part[0] == "[":
            found = found.item(part[1:-1])
        else:
            found = found.attribute(part)
    return found


def by_hand(text: str) -> Key:
    """The key of a leaf that is stepped by hand."""
    return key(text).by_hand()


def keys(text: str) -> frozenset[Key]:
    return frozenset(map(key, text.split()))


def act(kind: type[Event], line: int, whose: str = "", **more: object) -> Act:
    """An act of the code: `whose` are keys, `more` are fields of the event or of the act."""
    own = {field.name for field in fields(kind)}
    event = kind(at(line), **{k: v for k, v in more.items() if k in own})  # type: ignore[arg-type]
    rest = {k: v for k, v in more.items() if k not in own}
    return Act(event, whose=keys(whose), **rest)  # type: ignore[arg-type]


def subject(name: str, params: str | None = None, beside: str = "") -> SubjectKeys:
    return SubjectKeys(key(name), None if params is None else keys(params), keys(beside))


OPT, OTHER = subject("opt", "model"), subject("other", "critic")
LEAF = SubjectKeys(by_hand("w"), keys("w"))
ROLES = {key("opt"): Role.OPTIMIZER, key("other"): Role.OPTIMIZER}


def view(
    own: SubjectKeys = OPT,
    others: Sequence[SubjectKeys] = (),
    fresh: str = "",
    idle: Site | None = None,
) -> View:
    events = SubjectEvents(
        own,
        list(others),
        ROLES,
        idle=lambda _: idle,
        computes=lambda *_: False,
        clears_before=lambda _: [],
        fresh=set(keys(fresh)),
    )
    return View(events)


def seen(flow: Flow, own: SubjectKeys = OPT, *others: SubjectKeys) -> Flow:
    return view(own, others).of(flow)


def events(flow: Flow) -> list[Event]:
    return [part.event for part in walk(flow) if isinstance(part, Emit)]


def lines(flow: Flow) -> list[int]:
    return sorted(event.site.line for event in events(flow))


ZERO, BACKWARD, STEP = act(Zero, 1, "opt"), act(Backward, 2, "model"), act(Step, 3, "opt")
FOREIGN = act(Zero, 9, "other")
"""An act that does not concern `opt`, whose parameters are others."""


# Subjects


def test_what_is_stepped_is_a_subject_in_the_order_of_keys() -> None:
    flow = Seq([act(Step, 1, "b a"), act(Zero, 2, "c"), act(Step, 3, "a")])
    found = subjects(flow, {key("a"): keys("model"), key("b"): None})
    assert set(found) == {subject("a", "model"), subject("b")}
    assert len(found) == 2


def test_an_optimizer_whose_parameters_are_unknown_is_a_subject_without_any() -> None:
    assert subjects(act(Step, 1, "opt"), {}) == [subject("opt")]


def test_a_leaf_that_is_stepped_by_hand_steps_itself() -> None:
    step = Act(Step(at(1)), whose=frozenset({by_hand("w")}))
    assert subjects(step, {}) == [LEAF]


def test_nothing_is_stepped_where_there_is_no_step() -> None:
    assert subjects(Seq([ZERO, BACKWARD]), {key("opt"): keys("model")}) == []


@pytest.mark.parametrize("params", [None, "model"])
def test_a_subject_of_one_module_is_one_part(params: str | None) -> None:
    assert parts(subject("opt", params), BACKWARD) == [subject("opt", params)]


def test_a_subject_of_several_modules_is_seen_one_module_at_a_time() -> None:
    assert parts(subject("opt", "a b c"), EMPTY) == [
        subject("opt", "a", "b c"),
        subject("opt", "b", "a c"),
        subject("opt", "c", "a b"),
    ]


def test_a_module_that_nothing_is_done_to_is_no_part_beside_one_that_a_loss_runs_through() -> None:
    made = act(New, 1, "b")
    assert parts(subject("opt", "a b"), Seq([made, act(Backward, 2, "a")])) == [
        subject("opt", "a", "b")
    ]
    both = Seq([act(Zero, 1, "b"), act(Backward, 2, "a")])
    assert len(parts(subject("opt", "a b"), both)) == 2


def test_a_subject_of_many_modules_is_seen_as_one() -> None:
    many = subject("opt", " ".join("abcdefgh"[: MOST_PARTS + 1]))
    assert parts(many, EMPTY) == [many]


# Steps


def test_an_optimizer_sees_its_own_step() -> None:
    (event,) = events(seen(STEP))
    assert event == Step(at(3), fed=False)


def test_the_step_of_another_optimizer_is_foreign() -> None:
    (event,) = events(seen(act(Step, 3, "other"), OPT, OTHER))
    assert event == Step(at(3), foreign=True)


def test_a_step_of_all_items_is_a_step_of_each() -> None:
    own = SubjectKeys(key("opts[0]"), keys("model"))
    (event,) = events(seen(Act(Step(at(3)), whose=frozenset({key("opts")})), own))
    assert isinstance(event, Step)
    assert not event.foreign


def loop(*body: Flow, ident: int = 1, targets: Sequence[Variable] = ()) -> Loop:
    return Loop(Seq(body), ident, at(10), frozenset(targets))


@pytest.mark.parametrize(
    ("inside", "fed"),
    [
        (act(Backward, 2, "model", loop=1), True),
        (act(Assign, 2, "model", loop=1), True),
        (act(Unknown, 2, "model", loop=1), True),
        (act(Zero, 2, "opt", loop=1), False),
        (act(Backward, 2, "critic", loop=1), False),
    ],
    ids=["backward", "assign", "unknown", "clear", "another's backward"],
)
def test_a_step_is_fed_by_what_fills_gradients_in_its_loop(inside: Act, fed: bool) -> None:
    step = act(Step, 3, "opt", loop=1)
    own = view(OPT, [OTHER], idle=at(77)).of(loop(inside, step))
    (found,) = [event for event in events(own) if isinstance(event, Step)]
    assert found.fed is fed
    assert found.idle_loss == (None if fed else at(77))


# Backward


def test_a_backward_through_the_model_is_its_optimizer_s() -> None:
    (event,) = events(seen(BACKWARD, OPT, OTHER))
    assert event == Backward(at(2), alone=True)


def test_a_backward_through_both_models_reaches_both() -> None:
    both = act(Backward, 2, "model critic")
    for own, other in ((OPT, OTHER), (OTHER, OPT)):
        assert events(seen(both, own, other)) == [Backward(at(2), alone=False)]


def test_a_backward_through_another_model_is_not_seen() -> None:
    assert events(seen(act(Backward, 2, "critic"), OPT, OTHER)) == []


@pytest.mark.parametrize("whose", ["model.head", "model"])
def test_a_part_of_the_model_is_the_optimizer_s(whose: str) -> None:
    assert len(events(seen(act(Backward, 2, whose), OPT, OTHER))) == 1


def test_a_backward_of_unknown_origin_is_the_only_optimizer_s() -> None:
    unknown = act(Backward, 2, anyone=True)
    (event,) = events(seen(unknown))
    assert not event.may
    (event,) = events(seen(unknown, OPT, OTHER))
    assert event.may


def test_what_a_loss_may_run_through_may_reach_it() -> None:
    perhaps = act(Backward, 2, "features", perhaps=keys("model"))
    (event,) = events(seen(perhaps, OPT, OTHER))
    assert event.may


def test_only_a_backward_that_reaches_nobody_else_is_its_own() -> None:
    own = view(OPT, [OTHER]).acts
    assert own.is_its_own(BACKWARD)
    assert not own.is_its_own(act(Backward, 2, "model critic"))
    assert not own.is_its_own(act(Backward, 2, "critic"))
    assert not own.is_its_own(ZERO)


# Clears, and what else is done to gradients


@pytest.mark.parametrize("kind", [Zero, Clip, Assign])
@pytest.mark.parametrize("whose", ["opt", "model"])
def test_what_is_done_to_the_optimizer_or_its_model_is_seen(kind: type[Event], whose: str) -> None:
    assert events(seen(act(kind, 5, whose), OPT, OTHER)) == [kind(at(5))]


@pytest.mark.parametrize("kind", [Zero, Clip, Assign])
@pytest.mark.parametrize("whose", ["other", "critic"])
def test_what_is_done_to_another_s_is_not_seen(kind: type[Event], whose: str) -> None:
    assert events(seen(act(kind, 5, whose), OPT, OTHER)) == []


@pytest.mark.parametrize("kind", [Zero, Clip, Assign])
def test_what_is_done_to_a_part_may_excuse_and_not_accuse(kind: type[Event]) -> None:
    assert events(seen(act(kind, 5, "model.head"), OPT, OTHER)) == [kind(at(5), may=True)]


@pytest.mark.parametrize("kind", [Zero, Clip, Assign])
def test_what_is_done_to_anyone_may_reach_it(kind: type[Event]) -> None:
    assert events(seen(act(kind, 5, anyone=True), OPT, OTHER)) == [kind(at(5), may=True)]


def test_of_many_modules_only_the_optimizer_s_own_clear_is_certain() -> None:
    own = subject("opt", " ".join("abcdefgh"[: MOST_PARTS + 1]))
    assert events(seen(act(Zero, 5, "opt"), own)) == [Zero(at(5))]
    for whose in ("a b", "a b c d e f g h"):
        assert events(seen(act(Zero, 5, whose), own)) == [Zero(at(5), may=True)]


def test_a_clear_of_one_module_of_several_freezes_it() -> None:
    (part, _) = parts(subject("opt", "a b"), EMPTY)
    assert events(seen(act(Zero, 5, "a"), part)) == [Zero(at(5), excuse=Excuse.ONE_MODULE)]
    assert events(seen(act(Zero, 5, "a b"), part)) == [Zero(at(5))]
    assert events(seen(act(Zero, 5, "opt"), part)) == [Zero(at(5))]


def test_an_optimizer_without_known_parameters_sees_a_clear_if_it_is_alone() -> None:
    unknown = subject("opt")
    clear = act(Zero, 5, "model", bare=True)
    assert events(seen(Seq([clear, BACKWARD]), unknown))[-1] == Zero(at(5), bare=False)
    (event,) = events(seen(clear, unknown, OTHER))
    assert event.may


def test_a_clear_of_one_tensor_is_not_a_clear_of_an_unknown_optimizer() -> None:
    (event,) = events(seen(act(Zero, 5, "w", leaf=True), subject("opt")))
    assert event.may


def test_an_optimizer_and_a_step_by_hand_may_share_a_leaf() -> None:
    (event,) = events(seen(act(Zero, 5, "opt"), LEAF, subject("opt")))
    assert event.may


def test_new_objects_share_nothing() -> None:
    clear = act(Zero, 5, "sampler")
    assert [event.may for event in events(view(OPT, [OTHER]).of(clear))] == [True]
    assert events(view(OPT, [OTHER], fresh="model sampler").of(clear)) == []


# Other events


def test_an_update_of_a_scaler_concerns_everyone() -> None:
    for own, other in ((OPT, OTHER), (OTHER, OPT)):
        assert events(seen(act(Update, 6), own, other)) == [Update(at(6))]


@pytest.mark.parametrize(("whose", "count"), [("opt", 1), ("other", 0), ("model", 0)])
def test_a_scaler_unscales_by_optimizer(whose: str, count: int) -> None:
    assert len(events(seen(act(Unscale, 6, whose, scaled=True), OPT, OTHER))) == count


@pytest.mark.parametrize(
    ("whose", "count"), [("opt", 1), ("model", 1), ("other", 0), ("critic", 0)]
)
def test_something_unseen_is_known_by_whom_it_may_touch(whose: str, count: int) -> None:
    assert len(events(seen(act(Unknown, 6, whose), OPT, OTHER))) == count


@pytest.mark.parametrize(("made", "count"), [("model", 1), ("critic", 0)])
def test_new_parameters_are_those_of_the_optimizer_that_steps_all_of_them(
    made: str, count: int
) -> None:
    assert len(events(seen(act(New, 6, made), OPT, OTHER))) == count
    assert events(seen(act(New, 6, made), subject("opt"), OTHER)) == []


# The shape of what is seen


def when(test: Variable | Opaque, then: Flow, orelse: Flow = EMPTY) -> Alt:
    return Alt(test, then, orelse, at(20))


def alts(flow: Flow) -> list[Alt]:
    return [part for part in walk(flow) if isinstance(part, Alt)]


def test_a_flow_without_an_event_of_the_subject_is_empty() -> None:
    assert seen(loop(when(X, FOREIGN)), OPT, OTHER) is EMPTY


def test_a_branch_around_what_does_not_concern_it_is_left_out() -> None:
    flow = seen(Seq([when(X, FOREIGN), ZERO]), OPT, OTHER)
    assert alts(flow) == []
    assert lines(flow) == [1]


def test_an_arm_that_only_raises_says_nothing_of_the_others() -> None:
    for branch in (when(X, Jump(RAISE), ZERO), when(X, ZERO, Jump(RAISE))):
        flow = seen(branch)
        assert alts(flow) == []
        assert lines(flow) == [1]


def test_a_test_for_the_subject_s_own_existence_is_decided() -> None:
    branch = when(X, ZERO, STEP)
    branch.exists = (key("opt"), True)
    assert lines(seen(branch)) == [1]
    branch.exists = (key("opt"), False)
    assert lines(seen(branch)) == [3]
    branch.exists = (key("other"), True)
    assert lines(seen(branch)) == [1, 3]


def test_a_call_that_only_returns_is_left_out() -> None:
    flow = Seq([Block(when(X, Jump(Return(1))), Return(1)), ZERO])
    assert not any(isinstance(part, Block) for part in walk(seen(flow)))


def test_a_try_keeps_its_parts_and_handlers_that_do_not_raise() -> None:
    flow = seen(Try(BACKWARD, [ZERO, Jump(RAISE)], EMPTY, STEP, at(30)))
    (tried,) = [part for part in walk(flow) if isinstance(part, Try)]
    assert len(tried.handlers) == 1
    assert lines(flow) == [1, 2, 3]


def test_a_flow_is_not_changed_by_being_seen() -> None:
    flow = loop(when(X, ZERO), BACKWARD, STEP)
    before = [repr(part) for part in walk(flow)]
    seen(flow)
    assert [repr(part) for part in walk(flow)] == before


@pytest.mark.parametrize(
    ("first", "jump", "free"),
    [
        (EMPTY, Jump(Continue(1)), (False, True)),
        (ZERO, Jump(Continue(1)), (False, False)),
        (EMPTY, Jump(Break(1)), (False, True)),
        (ZERO, Jump(Break(1)), (False, True)),
    ],
    ids=["skips at once", "skips after a clear", "breaks at once", "breaks after a clear"],
)
def test_going_on_is_no_decision_where_the_other_arm_leaves(
    first: Flow, jump: Jump, free: tuple[bool, bool]
) -> None:
    (alt,) = alts(seen(loop(first, when(X, jump), BACKWARD, STEP)))
    assert alt.free == free


@pytest.mark.parametrize("arm", [ZERO, Seq([ZERO, act(Backward, 7, "model")])])
def test_the_only_clear_behind_a_switch_is_optional(arm: Flow) -> None:
    (alt,) = alts(seen(loop(when(X, arm), BACKWARD, STEP)))
    assert alt.optional


@pytest.mark.parametrize(
    "flow",
    [
        loop(when(X, ZERO), act(Zero, 7, "opt"), BACKWARD, STEP),
        loop(when(X, Seq([ZERO, BACKWARD])), STEP),
        loop(when(X, ZERO, BACKWARD), STEP),
        loop(when(X, ZERO), BACKWARD, STEP, targets=[X]),
    ],
    ids=["another clear", "more than a clear", "something else instead", "it changes in the loop"],
)
def test_a_clear_is_not_optional_where_there_is(flow: Flow) -> None:
    assert not any(alt.optional for alt in alts(seen(flow)))


def test_a_clear_that_a_test_asks_for_keeps_gradients_from_the_step_on_purpose() -> None:
    bad = when(Opaque("isnan(loss)"), Seq([ZERO, Jump(Continue(1))]))
    flow = seen(loop(BACKWARD, bad, STEP))
    assert [e.excuse for e in events(flow) if isinstance(e, Zero)] == [Excuse.CHOSEN]
    guarded = Alt(read("i % n == 0"), ZERO, EMPTY, at(20))
    flow = seen(loop(BACKWARD, guarded, STEP))
    assert [e.excuse for e in events(flow) if isinstance(e, Zero)] == [None]


def test_variables_that_change_in_the_loop_are_known_to_its_branches() -> None:
    y = Name("y")
    (alt,) = alts(seen(loop(Set(y), when(X, ZERO), BACKWARD, STEP, targets=[X])))
    assert alt.changing == {X, y}


# Assignments


def sets(flow: Flow) -> list[Set]:
    return [part for part in walk(flow) if isinstance(part, Set)]


def test_only_assignments_that_a_test_reads_are_kept() -> None:
    flow = seen(loop(Set(X, read("1")), Set(Name("y"), read("2")), when(X, ZERO), BACKWARD, STEP))
    assert [(one.variable, one.value) for one in sets(flow)] == [(X, read("1"))]


def test_what_a_kept_value_reads_is_kept_too() -> None:
    chain = [Set(Name("z"), read("1")), Set(Name("y"), read("z + 1")), Set(X, read("y + 1"))]
    flow = seen(loop(*chain, when(X, ZERO), BACKWARD, STEP))
    assert {str(one.variable) for one in sets(flow)} == {"x", "y", "z"}


def test_a_value_that_cannot_decide_a_test_is_forgotten_but_not_the_assignment() -> None:
    unsure = Alt(read("x > limit"), ZERO, EMPTY, at(20))
    flow = seen(loop(Set(X, read("1")), unsure, BACKWARD, STEP))
    assert [(one.variable, one.value) for one in sets(flow)] == [(X, None)]
