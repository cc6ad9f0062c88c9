"""Values: what is computed from what, what two paths have in common, and under which name."""

from __future__ import annotations

import ast

import pytest

from zerograd.explore.logic import Const, Name
from zerograd.static.frameworks.table import Role
from zerograd.static.read.keys import local
from zerograd.static.read.module import Module
from zerograd.static.read.values import (
    NOTHING,
    Fn,
    Frame,
    Grad,
    KnownDict,
    Lit,
    Many,
    Params,
    Tensor,
    Thing,
    Value,
    called,
    is_object,
    join,
    mix,
    parameters_of,
    roots,
)

A, B, C = local("a"), local("b"), local("c")
ONE, TWO = frozenset({A}), frozenset({B})
MODULE = Module("train.py", ast.parse("f = lambda: 0"))
LAMBDA = next(node for node in ast.walk(MODULE.tree) if isinstance(node, ast.Lambda))
FUNCTION = Fn(LAMBDA, MODULE, "f")
NO_KEYS: frozenset[object] = frozenset()


# What it was computed through


@pytest.mark.parametrize(
    ("value", "sure", "maybe"),
    [
        (Thing(A), ONE, NO_KEYS),
        (Params(ONE), ONE, NO_KEYS),
        (Grad(TWO), TWO, NO_KEYS),
        (Tensor(ONE, TWO), ONE, TWO),
        (Many((Thing(A), Tensor(maybe=TWO))), ONE, TWO),
        (Many((Thing(A), Tensor(maybe=ONE))), ONE, NO_KEYS),
        (KnownDict((("x", Thing(A)), ("y", Thing(B)))), ONE | TWO, NO_KEYS),
        (Lit(1), NO_KEYS, NO_KEYS),
        (FUNCTION, NO_KEYS, NO_KEYS),
        (None, NO_KEYS, NO_KEYS),
    ],
)
def test_a_value_has_roots_for_sure_and_perhaps(
    value: Value | None, sure: frozenset[object], maybe: frozenset[object]
) -> None:
    assert roots(value) == (sure, maybe)


def test_a_mix_has_the_roots_of_all_of_its_parts() -> None:
    assert mix([Thing(A), Tensor(maybe=TWO), Lit(3)]) == Tensor(ONE, TWO)
    assert mix([Thing(A), Tensor(maybe=ONE)]) == Tensor(ONE)


def test_a_mix_with_a_gradient_is_computed_from_it() -> None:
    assert mix([Grad(ONE), Lit(0.1)]).grads == ONE
    assert mix([mix([Grad(ONE)]), Thing(B)]).grads == ONE
    assert mix([Params(ONE)]).grads == NO_KEYS


def test_a_mix_is_scaled_if_a_part_is() -> None:
    assert mix([Tensor(scaled=True), Tensor()]).scaled is True
    assert mix([Tensor(scaled=None), Tensor()]).scaled is None
    assert mix([Tensor(scaled=None), Tensor(scaled=True)]).scaled is True
    assert mix([Tensor()]).scaled is False


def test_a_mix_is_divided_as_its_first_divided_part() -> None:
    half = Tensor(divisor=Name("n"), divided=True)
    assert mix([Tensor(), half]).divisor == Name("n")
    assert mix([half, Tensor(divisor=Const(3), divided=True)]).divisor == Name("n")
    assert mix([Tensor()]).divided is False


# What two paths have in common


def test_a_variable_that_is_none_on_one_path_holds_what_the_other_gave() -> None:
    assert join([Lit(None), Thing(A)]) == Thing(A)
    assert join([Lit(None), Lit(None)]) == Lit(None)
    assert join([]) == Lit(None)


def test_equal_values_stay_what_they_are() -> None:
    assert join([Lit(2), Lit(2)]) == Lit(2)
    assert join([Thing(A), Thing(A)]) == Thing(A)


def test_different_literals_are_something_unknown() -> None:
    assert join([Lit(1), Lit(2)]) == NOTHING
    assert join([Lit(1), FUNCTION]) == NOTHING


def test_collections_of_one_length_are_joined_item_by_item() -> None:
    joined = join([Many((Thing(A), Lit(1))), Many((Lit(None), Lit(2)))])
    assert joined == Many((Thing(A), NOTHING))


def test_collections_of_different_lengths_are_mixed() -> None:
    joined = join([Many((Thing(A),)), Many((Thing(A), Thing(B)))])
    assert isinstance(joined, Tensor)
    assert joined.roots == ONE | TWO


def test_an_optimizer_that_is_built_in_two_ways_steps_what_either_steps() -> None:
    one = Thing(C, Role.OPTIMIZER, ONE)
    two = Thing(C, Role.OPTIMIZER, TWO)
    assert join([one, two]) == Thing(C, Role.OPTIMIZER, ONE | TWO)
    assert join([one, Thing(C, Role.OPTIMIZER)]) == Thing(C, Role.OPTIMIZER, None)


def test_what_may_be_an_optimizer_or_its_scheduler_is_taken_for_the_scheduler() -> None:
    one = Thing(A, Role.OPTIMIZER, ONE)
    assert join([one, Thing(B, Role.OTHER)]) == Thing(B, Role.OTHER)
    assert join([one, Thing(B)]) == one
    assert join([Tensor(TWO), one]) == one


def test_parameters_of_either_path_are_parameters_of_both() -> None:
    assert join([Params(ONE), Params(TWO)]) == Params(ONE | TWO)
    assert join([Params(ONE), Tensor()]) == Params(ONE)


def test_a_loss_is_scaled_for_sure_only_if_it_is_on_both_paths() -> None:
    joined = join([Tensor(ONE, scaled=True), Tensor(TWO)])
    assert joined == Tensor(ONE | TWO, scaled=None)


def test_a_loss_is_divided_if_it_is_on_one_path() -> None:
    half = Tensor(divisor=Name("n"), divided=True)
    joined = join([half, Tensor(ONE)])
    assert isinstance(joined, Tensor)
    assert (joined.divisor, joined.divided) == (Name("n"), True)
    unsure = join([Tensor(ONE), Tensor(divided=None)])
    assert isinstance(unsure, Tensor)
    assert unsure.divided is None


# Under which name


def test_an_object_that_was_just_made_is_called_by_the_name_that_holds_it() -> None:
    assert called(Thing(A, made=True), B) == Thing(B)
    assert called(Thing(A), B) == Thing(A)


def test_items_are_called_by_their_place_in_the_collection() -> None:
    new = Thing(A, Role.OPTIMIZER, made=True)
    assert called(Many((new, Lit(1))), B) == Many((Thing(B.item("0"), Role.OPTIMIZER), Lit(1)))
    assert called(KnownDict((("x", new),)), B) == KnownDict(
        (("x", Thing(B.item("'x'"), Role.OPTIMIZER)),)
    )


def test_what_is_known_by_itself_keeps_its_name() -> None:
    for value in (Params(ONE), FUNCTION, Lit(3), Tensor(ONE)):
        assert called(value, B) == value


def test_something_of_which_nothing_is_known_is_an_object_of_that_name() -> None:
    assert called(NOTHING, B) == Thing(B)
    assert called(Grad(ONE), B) == Thing(B)


# What an optimizer steps


@pytest.mark.parametrize(
    ("value", "keys"),
    [
        (Params(ONE), ONE),
        (Params(frozenset()), None),
        (Thing(A), ONE),
        (KnownDict((("params", Params(ONE)), ("lr", Lit(1)))), ONE),
        (KnownDict((("lr", Lit(1)),)), None),
        (Many((Params(ONE), KnownDict((("params", Params(TWO)),)))), ONE | TWO),
        (Many((Params(ONE), NOTHING)), None),
        (Many(()), None),
        (NOTHING, None),
    ],
)
def test_an_optimizer_steps_what_it_is_given(value: Value, keys: frozenset[object] | None) -> None:
    assert parameters_of(value) == keys


@pytest.mark.parametrize(
    ("value", "identity"),
    [
        (Thing(A), True),
        (Many(()), True),
        (Params(ONE), True),
        (FUNCTION, True),
        (KnownDict(()), True),
        (Lit(1), False),
        (Tensor(ONE), False),
        (Grad(ONE), False),
    ],
)
def test_objects_have_an_identity_and_results_have_none(value: Value, identity: bool) -> None:
    assert is_object(value) is identity


# Frames


def test_names_of_a_frame_are_variables_of_its_call_or_attributes_of_its_object() -> None:
    node = ast.parse("\nx = f()").body[0]
    assert isinstance(node, ast.Assign)
    assert str(Frame(MODULE, call=3).variable("x")) == "3#x"
    assert str(Frame(MODULE, call=3).new_key(node.value)) == "3#2:4"
    assert Frame(MODULE, scope=A).variable("x") == A.attribute("x")
    assert str(Frame(MODULE, scope=A).new_key(node.value)) == "a.2:4"
