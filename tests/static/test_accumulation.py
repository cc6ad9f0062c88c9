"""Where code accumulates: which tests are guards, which loops they pace, and which windows are executed."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from support import tiers
from support.event_sequences import Choices, at
from support.expressions import read
from zerograd.core.events import Backward, Clip, Event, Hold, Step, Zero
from zerograd.core.lifecycle import State
from zerograd.core.records import replace
from zerograd.core.rule import Violation
from zerograd.explore.explore import WindowTrial, explore
from zerograd.explore.flow import Alt, Continue, Emit, Flow, Jump, Loop, Seq, Set, walk
from zerograd.explore.logic import (
    WINDOW_LENGTH,
    Const,
    Count,
    Expr,
    LastIteration,
    Name,
    Op,
    Opaque,
    Variable,
    WindowLength,
)
from zerograd.rules.catalogue import RULES
from zerograd.static.accumulation import LENGTHS, SINGLE, Counting, pace

EMPTY = Seq(())
LOOP = at(10)
GUARD = at(30)
N, INDEX, COUNT = Name("n"), Name("i"), Name("count")
LOADER = Opaque("len(loader)", frozenset({Name("loader")}))


def emit(kind: type[Event], line: int, loop: int = 1, **fields: object) -> Emit:
    return Emit(kind(at(line), loop=loop, **fields))  # type: ignore[arg-type]


BACKWARD, STEP, ZERO = emit(Backward, 20), emit(Step, 31), emit(Zero, 32)
CLOSE = Seq([STEP, ZERO])


def guard(test: str | Expr, then: Flow = CLOSE, orelse: Flow = EMPTY, line: int = 30) -> Alt:
    return Alt(read(test) if isinstance(test, str) else test, then, orelse, at(line))


def counted(*body: Flow, ident: int = 1, counter: Name | None = INDEX) -> Loop:
    """`for i, … in enumerate(…)`."""
    targets = frozenset({counter}) if counter else frozenset()
    return Loop(Seq(body), ident, LOOP, targets, counter)


def assign(name: str, value: str) -> Set:
    return Set(Name(name), read(value))


def loops(flow: Flow) -> dict[int, Loop]:
    return {part.ident: part for part in walk(flow) if isinstance(part, Loop)}


def events(flow: Flow, kind: type[Event]) -> list[Event]:
    found = [part.event for part in walk(flow) if isinstance(part, Emit)]
    return [event for event in found if isinstance(event, kind)]


def paced(flow: Flow) -> set[int]:
    """The loops of a flow that accumulate."""
    return {ident for ident, loop in loops(pace(flow)[0]).items() if loop.paced is not None}


def symbols(flow: Flow) -> set[Variable]:
    """What the code calls the length of a window."""
    _, windows = pace(flow)
    return set(windows[0].symbols) - {WINDOW_LENGTH} if windows else set()


# Guards


@pytest.mark.parametrize(
    ("values", "length"),
    [(["4"], 4), (["4", "4"], 4), (["4", "8"], 0), (["4", "other"], 0), (["1"], 0), ([], 0)],
    ids=str,
)
def test_the_length_is_known_if_the_code_gives_it_one_number(
    values: list[str], length: int
) -> None:
    test = read("(i + 1) % n == 0")
    flow = Seq([*(assign("n", value) for value in values), counted(BACKWARD, guard(test))])
    assert Counting.of(flow).length(test) == length


Windows = dict[int, set[tuple[int, bool]]]
"""By the length of the executed windows: how long they were, and whether they came last."""

WHOLE: Windows = {2: {(2, False)}, 3: {(3, False)}}
FROM_ZERO: Windows = {n: {(1, False), (n, False), (n, True)} for n in LENGTHS}
"""A guard that is also true in the first iteration."""

GUARDED: dict[str, tuple[Flow, set[Variable], Windows]] = {
    "a loop's counter": (counted(BACKWARD, guard("(i + 1) % n == 0")), {N}, WHOLE),
    "not yet": (counted(BACKWARD, guard("(i + 1) % n != 0", EMPTY, CLOSE)), {N}, WHOLE),
    "the remainder as a truth": (counted(BACKWARD, guard("not (i + 1) % n")), {N}, WHOLE),
    "or the last batch": (
        counted(BACKWARD, guard(Op("or", (read("(i + 1) % n == 0"), LastIteration(1))))),
        {N},
        {n: {(n, False), (1, True)} for n in LENGTHS},
    ),
    "a variable that holds the test": (
        counted(BACKWARD, assign("due", "(i + 1) % n == 0"), guard("due")),
        {N},
        WHOLE,
    ),
    "a variable that is computed from the counter": (
        counted(BACKWARD, assign("done", "i + 1"), guard("done % n == 0")),
        {N},
        WHOLE,
    ),
    "a counter of its own": (
        counted(BACKWARD, assign("count", "count + 1"), guard("count % n == 0"), counter=None),
        {N},
        WHOLE,
    ),
    "a count that is set back": (
        Seq(
            [
                assign("count", "0"),
                counted(
                    BACKWARD,
                    assign("count", "count + 1"),
                    guard("count == n", Seq([CLOSE, assign("count", "0")])),
                    counter=None,
                ),
            ]
        ),
        {N},
        WHOLE,
    ),
    "a count that is set back, with a literal": (
        Seq(
            [
                assign("count", "0"),
                counted(
                    BACKWARD,
                    assign("count", "count + 1"),
                    guard("count >= 4", Seq([CLOSE, assign("count", "0")])),
                    counter=None,
                ),
            ]
        ),
        {WindowLength(4)},
        WHOLE,
    ),
    "how many since the last step": (
        Seq(
            [
                assign("mark", "0"),
                counted(BACKWARD, guard("i - mark == n", Seq([CLOSE, Set(Name("mark"), INDEX)]))),
            ]
        ),
        {N},
        {n: {(n + 1, False), (n, True)} for n in LENGTHS},
    ),
    "a literal": (
        counted(BACKWARD, guard(Op("==", (Op("%", (INDEX, WindowLength(4))), Const(0))))),
        {WindowLength(4)},
        FROM_ZERO,
    ),
    "an accelerator's count": (
        counted(
            BACKWARD,
            Set(Count("acc"), Op("+", (Count("acc"), Const(1)))),
            guard(Op("==", (Op("%", (Count("acc"), WINDOW_LENGTH)), Const(0)))),
            counter=None,
        ),
        set(),
        WHOLE,
    ),
}


@pytest.mark.parametrize("why", GUARDED)
def test_a_test_on_a_count_is_a_guard(why: str) -> None:
    flow, lengths, _ = GUARDED[why]
    assert paced(flow) == {1}
    assert symbols(flow) == lengths


@pytest.mark.parametrize(
    "test",
    ["verbose", "i > 3", "n % 2 == 0", "loss % n == 0", "i == n", "count == n", "not flag"],
)
def test_any_other_test_is_no_guard(test: str) -> None:
    flow = counted(BACKWARD, guard(test))
    assert pace(flow) == (flow, ())


def test_a_counter_over_all_epochs_counts_if_the_epoch_is_counted_too() -> None:
    body = counted(
        BACKWARD,
        Set(COUNT, Op("+", (Op("*", (Name("epoch"), LOADER)), INDEX))),
        guard("count % n == 0"),
    )
    epochs = Loop(body, 2, at(9), frozenset({Name("epoch")}), Name("epoch"))
    assert paced(epochs) == {1}
    assert symbols(epochs) == {N}
    assert pace(body) == (body, ())


def test_a_counter_is_never_the_length_of_a_window() -> None:
    flow = counted(BACKWARD, assign("count", "count + 1"), guard("i % count == 0"))
    assert symbols(flow) == set()


@pytest.mark.parametrize(("op", "counts"), [("+", True), ("-", True), ("*", False), ("//", False)])
def test_what_is_counted_up_or_down_is_a_counter(op: str, counts: bool) -> None:
    counting = Counting.of(assign("count", f"count {op} 1"))
    assert (COUNT in counting.counters) is counts
    assert counting.counts(COUNT) is counts


def test_a_variable_that_is_set_once_to_a_literal_is_not_set_back() -> None:
    flow = Seq([assign("count", "0"), assign("count", "count + 1")])
    assert not Counting.of(flow).is_set_back(COUNT)
    assert Counting.of(Seq([flow, assign("count", "0")])).is_set_back(COUNT)


# Paced loops


def test_a_paced_loop_knows_its_guard_and_the_step_that_closes_its_windows() -> None:
    flow, windows = pace(counted(BACKWARD, guard("(i + 1) % n == 0")))
    loop = loops(flow)[1]
    assert (loop.paced, loop.closes, loop.counted) == (GUARD, at(31), True)
    (step,) = events(flow, Step)
    assert isinstance(step, Step)
    assert step.guard == GUARD
    (alt,) = [part for part in walk(flow) if isinstance(part, Alt)]
    assert alt.counts == 1
    assert [window.length for window in windows] == [SINGLE, *LENGTHS]


@pytest.mark.parametrize("arm", ["then", "orelse"])
def test_the_arm_that_does_not_step_holds_the_window_open(arm: str) -> None:
    test = "(i + 1) % n == 0" if arm == "orelse" else "(i + 1) % n != 0"
    arms = (CLOSE, EMPTY) if arm == "orelse" else (EMPTY, CLOSE)
    flow, _ = pace(counted(BACKWARD, guard(test, *arms)))
    (alt,) = [part for part in walk(flow) if isinstance(part, Alt)]
    assert events(getattr(alt, arm), Hold) == [Hold(at(31), loop=1, guard=GUARD)]
    assert events(flow, Hold) == events(getattr(alt, arm), Hold)


def test_pacing_a_flow_does_not_change_it() -> None:
    flow, *_ = GUARDED["a count that is set back, with a literal"]
    before = [repr(part) for part in walk(flow)]
    changed, _ = pace(flow)
    assert [repr(part) for part in walk(flow)] == before
    assert [repr(part) for part in walk(changed)] != before


def test_what_follows_a_continue_is_under_the_guard() -> None:
    skip = guard("(i + 1) % n != 0", Jump(Continue(1)))
    assert paced(counted(BACKWARD, skip, CLOSE)) == {1}


UNPACED: dict[str, Flow] = {
    "a step outside the guard": counted(BACKWARD, guard("(i + 1) % n == 0"), emit(Step, 40)),
    "every backward is under the guard": counted(guard("i % n == 0", Seq([BACKWARD, CLOSE]))),
    "no backward": counted(guard("i % n == 0")),
    "the guard counts epochs": Loop(
        counted(BACKWARD, guard("epoch % n == 0")), 2, at(9), frozenset(), Name("epoch")
    ),
    "only a clear is under the guard": counted(BACKWARD, guard("i % n == 0", ZERO), STEP),
    "the step is outside of the loop": Seq([counted(BACKWARD, guard("i % n == 0", ZERO)), STEP]),
    "beside a backward under the guard, one that may be another's": counted(
        emit(Backward, 21, may=True), guard("i % n == 0", Seq([BACKWARD, CLOSE]))
    ),
}


@pytest.mark.parametrize("why", UNPACED)
def test_a_loop_is_not_paced_where(why: str) -> None:
    assert paced(UNPACED[why]) == set()


def test_a_backward_for_another_step_does_not_pace_a_loop() -> None:
    """The generator of a GAN is trained in every fifth batch, the discriminator in every one."""
    own = guard("i % n == 0", Seq([BACKWARD, CLOSE]))
    other = emit(Step, 50, foreign=True)
    assert paced(counted(emit(Backward, 21), other, own)) == set()
    assert paced(counted(emit(Backward, 21, alone=True), other, own)) == {1}


def test_the_step_of_another_subject_paces_nothing() -> None:
    step = emit(Step, 31, foreign=True)
    flow = counted(BACKWARD, guard("i % n == 0", step))
    assert pace(flow) == (flow, ())


def test_only_the_loop_that_counts_is_run_for_several_windows() -> None:
    inner = counted(BACKWARD, guard("(i + 1) % n == 0"))
    flow, _ = pace(Loop(inner, 2, at(9), frozenset({Name("epoch")}), Name("epoch")))
    assert {ident: loop.counted for ident, loop in loops(flow).items()} == {1: True, 2: False}


def test_each_loop_has_its_own_guard() -> None:
    first = counted(BACKWARD, guard("(i + 1) % n == 0"))
    close = Seq([emit(Step, 61, 2), emit(Zero, 62, 2)])
    second = Loop(
        Seq([emit(Backward, 51, 2), guard("j % m == 0", close, line=60)]),
        2,
        at(50),
        frozenset({Name("j")}),
        Name("j"),
    )
    flow, windows = pace(Seq([first, second]))
    assert {ident: loop.paced for ident, loop in loops(flow).items()} == {1: GUARD, 2: at(60)}
    assert windows[0].symbols >= {N, Name("m")}


# Windows


def test_nothing_is_executed_where_nothing_counts() -> None:
    flow = counted(ZERO, BACKWARD, STEP)
    assert pace(flow) == (flow, ())


def test_a_window_begins_with_its_counters_at_zero_and_knows_its_length() -> None:
    test = Op("or", (read("(i + 1) % n == 0"), Op("==", (read("i + 1"), LOADER))))
    _, windows = pace(counted(BACKWARD, guard(test)))
    assert windows[1] == WindowTrial(
        2, 5, frozenset({N, WINDOW_LENGTH}), frozenset({LOADER.fact}), frozenset({INDEX})
    )
    assert [(window.length, window.batches) for window in windows] == [(1, 3), (2, 5), (3, 7)]
    assert dict(windows[2].known()) == {N: 3, WINDOW_LENGTH: 3, LOADER.fact: 7, INDEX: 0}


def test_the_number_of_batches_is_found_through_variables() -> None:
    test = "(i + 1) % n == 0 or i == total - 1"
    flow = Seq([Set(Name("total"), LOADER), counted(BACKWARD, guard(test))])
    _, windows = pace(flow)
    assert windows[0].sizes == {LOADER.fact}


@pytest.mark.parametrize(
    ("trips", "says_so"),
    [
        (Name("accumulation_steps"), True),
        (Name("args.micro_batches"), True),
        (WindowLength(text="ACCUM"), True),
        (Name("n"), False),
        (Const(4), False),
        (Opaque("len(accum)"), False),
    ],
)
def test_a_loop_over_micro_batches_is_a_window_if_its_length_says_so(
    trips: Expr, says_so: bool
) -> None:
    flow = Seq([replace(counted(BACKWARD), trips=trips), STEP, ZERO])
    marked, windows = pace(flow)
    assert bool(windows) is says_so
    if says_so:
        assert trips in windows[0].symbols
        assert loops(marked)[1].paced is None


@pytest.mark.parametrize(
    ("body", "why"),
    [
        ([BACKWARD, STEP], "it steps"),
        ([emit(Clip, 21)], "it has no backward"),
        ([emit(Backward, 21, may=True)], "its backward may be another's"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_loop_over_micro_batches_is_no_window_if(body: list[Flow], why: str) -> None:
    flow = replace(counted(*body), trips=Name("accumulation_steps"))
    assert pace(flow)[1] == ()


# Executed windows: what exploring the paced flow sees is what running the code does


def report(before: State, event: Event) -> Violation | None:
    """Reports of every step how long its window was, and whether it came in the last iteration."""
    if not isinstance(event, Step) or before.backward is None:
        return None
    return Violation(event.site, f"{before.window} {event.last}")


REPORT = replace(RULES[0], check=report, reads=frozenset({"grads", "window", "backward"}))


def explored(flow: Flow) -> Windows:
    """The windows that exploring a flow sees."""
    flow, windows = pace(flow)
    found = {}
    for window in windows:
        if window.length == SINGLE:
            continue
        result = explore(flow, [REPORT], window=window)
        assert not result.cut
        messages = [outcome.violation.message.split() for outcome in result.outcomes]
        found[window.length] = {(int(length), last == "True") for length, last in messages}
    return found


def ran(due: Callable[[int, int], bool]) -> Windows:
    """The same, by running the loop."""
    found: Windows = {}
    for n in LENGTHS:
        batches, window = 2 * n + 1, 0
        found[n] = set()
        for i in range(batches):
            window += 1
            if due(i, n):
                found[n].add((window, i == batches - 1))
                window = 0
    return found


def training(test: Expr) -> Flow:
    return Seq([ZERO, counted(BACKWARD, guard(test))])


def test_a_right_guard_gives_whole_windows_only() -> None:
    assert explored(training(read("(i + 1) % n == 0"))) == WHOLE


def test_a_guard_that_counts_from_zero_gives_a_first_window_of_one() -> None:
    assert explored(training(read("i % n == 0"))) == FROM_ZERO


def test_the_remainder_is_stepped_where_the_guard_asks_for_the_last_batch() -> None:
    last = Op("==", (read("i + 1"), LOADER))
    assert explored(training(Op("or", (read("(i + 1) % n == 0"), last)))) == {
        2: {(2, False), (1, True)},
        3: {(3, False), (1, True)},
    }


@pytest.mark.parametrize("why", GUARDED)
def test_every_way_to_count_is_executed(why: str) -> None:
    flow, _, windows = GUARDED[why]
    assert explored(Seq([ZERO, flow])) == windows


def guard_text(choose: Choices) -> str:
    """A guard over the counter i and the length n, perhaps with the last batch as an alternative."""
    count = choose.of(("i", "(i + 1)", "(i + 2)", "(i - 1)", "(i * 2)"))
    text = f"{count} % n {choose.of(('==', '!='))} {choose.of(('0', '1', 'n - 1'))}"
    if choose.below(3) == 2:
        text = f"not ({text})"
    if choose.below(3) == 2:
        text = f"{text} {choose.of(('and', 'or'))} i {choose.of(('>', '=='))} {choose.of('012')}"
    return text


@tiers.random(300)
@given(st.binary(min_size=6, max_size=6).map(Choices).map(guard_text))
def test_any_guard_gives_the_windows_that_python_gives(text: str) -> None:
    code = compile(text, "guard", "eval")
    assert explored(training(read(text))) == ran(lambda i, n: eval(code, {"i": i, "n": n}))
