"""Keys: paths that name objects, and what is inside of what."""

from __future__ import annotations

import pytest

from zerograd.static.read.keys import RESULT, SELF, Key, local, made

X = local("x")


@pytest.mark.parametrize(
    ("key", "text"),
    [
        (X, "x"),
        (local("x", 3), "3#x"),
        (X.attribute("net").item("0"), "x.net[0]"),
        (local("x", 3).item("'a'").attribute("net"), "3#x['a'].net"),
        (made(12, 4), "12:4"),
        (made(12, 4, 3).attribute("opt"), "3#12:4.opt"),
        (Key((*X, *made(12, 4))), "x.12:4"),
        (X.any_item(), "x[*]"),
        (X.called(), "x[?]"),
        (local("x", 3).by_hand(), "by hand:3#x"),
        (SELF, "self"),
    ],
)
def test_a_key_is_shown_with_its_call(key: Key, text: str) -> None:
    assert str(key) == text
    assert key.plain.shown == text.removeprefix("by hand:").removeprefix("3#")


def test_keys_of_the_same_path_are_the_same() -> None:
    assert local("x").attribute("a").item("0") == local("x").attribute("a").item("0")
    assert len({local("x"), local("x"), local("x", 1)}) == 2
    assert X.attribute("0") != X.item("0")
    assert X.by_hand() != X


@pytest.mark.parametrize(
    ("inner", "outer", "inside"),
    [
        (X, X, True),
        (X.attribute("a"), X, True),
        (X.attribute("a").item("0"), X.attribute("a"), True),
        (X, X.attribute("a"), False),
        (X.attribute("ab"), X.attribute("a"), False),
        (local("xy"), X, False),
        (local("x", 1), X, False),
        (X.item("0"), X.any_item(), True),
        (X.item("0").attribute("a"), X.any_item(), True),
        (X.any_item(), X.any_item(), True),
        (X.called(), X.any_item(), True),
        (X.attribute("a"), X.any_item(), False),
        (X, X.any_item(), False),
        (X.any_item(), X.item("0"), False),
        (X.by_hand(), X, False),
        (RESULT, X, False),
    ],
)
def test_a_key_is_inside_another_if_its_path_goes_on(inner: Key, outer: Key, inside: bool) -> None:
    assert inner.is_inside(outer) is inside
    assert inner.overlaps(outer) is (inside or outer.is_inside(inner))


def test_what_a_call_gives_back_is_known_by_the_call() -> None:
    assert X.attribute("f").called().is_called
    assert not X.is_called
    assert X.called().caller == X


def test_a_key_that_is_stepped_by_hand_has_a_plain_one() -> None:
    assert X.by_hand().is_by_hand
    assert X.by_hand().plain == X
    assert X.plain == X


@pytest.mark.parametrize(
    ("key", "owner"),
    [
        (X, X),
        (X.item("0"), X.item("0")),
        (X.item("0").attribute("a").attribute("b"), X.item("0")),
        (made(1, 2).attribute("a").item("0"), made(1, 2)),
        (Key((*SELF, *made(1, 2))), SELF),
    ],
)
def test_the_object_of_a_key_is_what_its_first_attribute_belongs_to(key: Key, owner: Key) -> None:
    assert key.object == owner


@pytest.mark.parametrize(
    ("key", "name"),
    [
        (X.attribute("a").attribute("Adam"), "Adam"),
        (X.attribute("opts").item("0"), "opts[0]"),
        (local("Adam"), "Adam"),
        (local("Adam", 3), "Adam"),
        (local("weight", 3).by_hand(), "weight"),
    ],
)
def test_the_last_name_of_a_key_is_its_last_attribute(key: Key, name: str) -> None:
    assert key.last_name == name
