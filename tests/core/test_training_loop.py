"""Training loops: what they hold, what two readings of one say together, and why one is not followed."""

from __future__ import annotations

import pytest

from zerograd.core.events import Site
from zerograd.core.training_loop import (
    Account,
    Found,
    Gap,
    LoopStep,
    NotFollowed,
    TrainingLoop,
    joined,
)


def at(line: int, last: int = 0, path: str = "train.py", cell: int | None = None) -> Site:
    return Site(path, line, 1, last, cell=cell)


STEP = LoopStep(at(7), "optimizer.step()", "optimizer")
FAR_STEP = LoopStep(at(3, path="helper.py"), "opt.step()", "opt")
LOOP = TrainingLoop(at(5, 9), "train", "loop", (STEP, FAR_STEP))


def test_a_gap_says_why_in_a_sentence() -> None:
    gap = Gap(NotFollowed.UNSEEN_CALL, at(5), "optimizer", "fit()")
    assert gap.reason == "optimizer is handed to `fit()`, which is not in this project"
    step = Gap(NotFollowed.UNSEEN_STEP, at(5), "optimizer", "fit()")
    assert step.reason == "`fit()` may do more than a step: its code cannot be seen"
    assert NotFollowed.UNSEEN_CALL.value == "unseen-call"


@pytest.mark.parametrize("why", NotFollowed)
def test_every_reason_is_a_sentence_about_what_is_named(why: NotFollowed) -> None:
    said = Gap(why, at(5), "SUBJECT", "CALL").reason
    assert "{" not in said
    assert ("SUBJECT" in said) is ("{subject}" in why.reason)
    assert ("CALL" in said) is ("{call}" in why.reason)


@pytest.mark.parametrize(
    ("path", "line", "inside"),
    [
        ("train.py", 4, False),
        ("train.py", 5, True),
        ("train.py", 9, True),
        ("train.py", 10, False),
        ("helper.py", 3, True),
        ("helper.py", 5, False),
    ],
)
def test_a_loop_holds_its_lines_and_its_steps(path: str, line: int, inside: bool) -> None:
    assert LOOP.holds(path, None, line) is inside
    assert not LOOP.holds(path, 1, line)


def test_a_loop_of_a_notebook_holds_lines_of_its_cell() -> None:
    loop = TrainingLoop(at(5, 9, cell=2), "", "loop", (LoopStep(at(12, cell=3), "s()", "s"),))
    assert loop.holds("train.py", 2, 6)
    assert loop.holds("train.py", 3, 12)
    assert not loop.holds("train.py", 3, 6)
    assert not loop.holds("train.py", None, 6)


@pytest.mark.parametrize("kind", ["module", "notebook"])
def test_a_whole_file_holds_its_steps_only(kind: str) -> None:
    whole = TrainingLoop(at(1, 99), "", kind, (STEP,))  # type: ignore[arg-type]
    assert whole.holds("train.py", None, 7)
    assert not whole.holds("train.py", None, 8)


def test_a_loop_that_was_read_twice_has_the_steps_findings_and_gaps_of_both() -> None:
    found = [Found(code, "error", True, at(6)) for code in ("ZG102", "ZG101")]
    accounts = [Account(name, ()) for name in ("b", "a", "c")]
    gaps = [Gap(NotFollowed.TOO_LARGE, at(line)) for line in (6, 7)]
    one = TrainingLoop(
        at(5, 9), "train", "loop", (STEP,), (found[0],), None, (accounts[0], accounts[1])
    )
    other = TrainingLoop(
        at(5, 9),
        "train",
        "loop",
        (FAR_STEP, STEP),
        tuple(found[::-1]),
        gaps[0],
        tuple(accounts[1:]),
    )
    assert one.joined(other) == TrainingLoop(
        at(5, 9), "train", "loop", (FAR_STEP, STEP), tuple(found), gaps[0], tuple(accounts)
    )
    third = TrainingLoop(at(5, 9), "train", "loop", (), gap=gaps[1])
    assert third.joined(other).gap == gaps[1]


def test_a_step_that_one_context_cannot_see_another_one_sees() -> None:
    unseen = Gap(NotFollowed.UNSEEN_STEP, at(6))
    blind = TrainingLoop(at(5), "train", "loop", (STEP,), gap=unseen)
    seeing = TrainingLoop(at(5), "train", "loop", (FAR_STEP,))
    assert blind.joined(seeing).gap is None
    assert seeing.joined(blind).gap is None
    assert blind.joined(blind).gap == unseen


def test_steps_are_sorted_by_place_then_by_what_they_say() -> None:
    def step(line: int, column: int, call: str, subject: str) -> LoopStep:
        return LoopStep(Site("train.py", line, column), call, subject)

    ordered = (
        step(1, 9, "z()", "z"),
        step(2, 1, "b()", "b"),
        step(2, 1, "c()", "a"),
        step(2, 1, "c()", "b"),
        step(2, 5, "a()", "a"),
    )
    empty = TrainingLoop(at(1), "", "loop", ())
    assert empty.joined(TrainingLoop(at(1), "", "loop", ordered[::-1])).steps == ordered


def test_loops_are_in_the_order_of_their_places_each_once() -> None:
    def loop(path: str, cell: int | None, line: int, name: str = "") -> TrainingLoop:
        return TrainingLoop(at(line, path=path, cell=cell), name, "loop", ())

    a, b, c, d = loop("a", None, 9), loop("a", 1, 3), loop("a", 1, 4), loop("b", None, 1)
    assert joined([d, c, b, a, loop("a", 1, 4)]) == [a, b, c, d]
    first = loop("a", None, 9, "first")
    assert joined([first, loop("a", None, 9, "second")]) == [first]
