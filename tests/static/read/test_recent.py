"""What was used lately is kept, and no more of it than was asked for."""

from __future__ import annotations

from zerograd.static.read.recent import Recent


def test_what_was_not_used_for_the_longest_time_is_forgotten_first() -> None:
    kept: Recent[str, int] = Recent(2)
    kept.put("a", 1)
    kept.put("b", 2)
    assert kept.get("a") == 1
    kept.put("c", 3)
    assert (kept.get("a"), kept.get("b"), kept.get("c")) == (1, None, 3)


def test_a_heavy_value_takes_the_place_of_several() -> None:
    kept: Recent[str, int] = Recent(10)
    for name in "abcd":
        kept.put(name, 0, 3)
    assert [kept.get(name) for name in "abcd"] == [None, 0, 0, 0]
    kept.put("whole", 1, 50)
    assert [kept.get(name) for name in "bcd"] == [None] * 3
    assert kept.get("whole") == 1


def test_a_value_that_is_replaced_counts_once() -> None:
    kept: Recent[str, int] = Recent(10)
    for number in range(20):
        kept.put("same", number, 6)
        kept.put("other", number, 4)
    assert (kept.get("same"), kept.get("other")) == (19, 19)


def test_dropped_values_make_room() -> None:
    kept: Recent[int, int] = Recent(10)
    for number in range(10):
        kept.put(number, number)
    kept.drop(lambda number: number % 2 == 0)
    for number in range(10, 15):
        kept.put(number, number)
    assert [n for n in range(15) if kept.get(n) is not None] == [1, 3, 5, 7, 9, *range(10, 15)]
    kept.drop(lambda _: True)
    assert kept.get(14) is None
