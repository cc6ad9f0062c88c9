"""What a rule is, and the phrases that its messages share."""

from __future__ import annotations

import dataclasses

import pytest

from support.event_sequences import at
from zerograd.core.events import Backward, Step
from zerograd.core.rule import in_brackets, place
from zerograd.rules.catalogue import BY_CODE, RULES


def test_a_rule_that_reads_what_a_state_has_not_cannot_be_made() -> None:
    with pytest.raises(ValueError, match=r"ZG101 reads \['colour'\], which State does not have"):
        dataclasses.replace(RULES[0], reads=frozenset({"grads", "colour"}))


def test_a_place_is_in_the_previous_iteration_of_the_same_loop_only() -> None:
    def seen(line: int, loop: int) -> str:
        return place(Step(at(line), loop=loop), Backward(at(5), loop=1))

    assert seen(5, 1) == seen(6, 1) == ", in the previous iteration"
    assert seen(4, 1) == seen(6, 2) == seen(6, 0) == ""
    assert place(Step(at(6)), Backward(at(5))) == ""


def test_names_are_listed_with_the_number_of_the_others() -> None:
    assert in_brackets((), 3) == ""
    assert in_brackets(("a", "b"), 2) == " (a, b)"
    assert in_brackets(("a",), 2) == " (a and 1 more)"


def test_the_summary_of_a_rule_is_the_first_line_of_its_page() -> None:
    assert BY_CODE["ZG101"].summary == BY_CODE["ZG101"].doc.splitlines()[0]
    page = dataclasses.replace(BY_CODE["ZG101"], doc="\n One.\nTwo.\nThree.\n")
    assert page.summary == "One."
