"""Patterns that are compiled late behave like others."""

from __future__ import annotations

import re

import pytest

from zerograd.core.late_pattern import pattern


def test_a_late_pattern_finds_what_a_compiled_one_finds() -> None:
    late, soon = pattern("a(b+)", re.IGNORECASE), re.compile("a(b+)", re.IGNORECASE)
    for text in ("", "ab", "xABBab", "a"):
        assert late.findall(text) == soon.findall(text)
        assert bool(late.search(text)) is bool(soon.search(text))
        assert bool(late.match(text)) is bool(soon.match(text))
        assert late.sub("-", text) == soon.sub("-", text)


def test_bytes_are_searched_in_bytes() -> None:
    found = pattern(rb"\d+").search(b"ab 12")
    assert found is not None
    assert found[0] == b"12"


def test_a_method_is_looked_up_once() -> None:
    late = pattern("a")
    assert late.search is late.search


def test_a_broken_pattern_fails_when_it_is_used() -> None:
    late = pattern("(")
    with pytest.raises(re.error):
        late.search("a")
