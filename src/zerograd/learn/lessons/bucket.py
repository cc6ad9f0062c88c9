"""Lesson 1: one weight, two batches, and a bucket that is not emptied between them."""

from __future__ import annotations

from collections.abc import Iterator

import torch

from zerograd.core.events import Event, Kind, Site
from zerograd.core.lifecycle import NEW, Grads, State, advance
from zerograd.learn.content import (
    Buckets,
    Code,
    Moment,
    Part,
    Pause,
    Say,
    Table,
    Try,
    number,
)
from zerograd.learn.lessons.shared import asked_to_check, asked_to_watch
from zerograd.learn.snippet import Names, Snippet

GIVEN = """\
import torch

weight = torch.nn.Parameter(torch.tensor(2.0))
optimizer = torch.optim.SGD([weight], lr=0.1)
"""

FORGOTTEN = Snippet(
    """\
optimizer.zero_grad()
loss1 = 3 * weight
loss1.backward()
optimizer.step()

loss2 = 5 * weight
loss2.backward()
optimizer.step()
""",
    GIVEN,
    "bucket.py",
)

CLEARED = Snippet(
    FORGOTTEN.code.replace("\nloss2 =", "\noptimizer.zero_grad()\nloss2 ="), GIVEN, "bucket.py"
)

EMPTY = "empty"
"""The state that the automaton calls none: beside the None in the bucket that says nothing new."""


def moments(snippet: Snippet) -> tuple[list[Moment], list[float]]:
    """The bucket after each call, and what each step used."""
    table, state = physics(), EMPTY
    found: list[Moment] = []
    used: list[float] = []

    def after(statement: str, names: Names) -> None:
        nonlocal state
        if not statement.endswith("()"):
            return
        weight = names["weight"]
        held = None if weight.grad is None else weight.grad.item()
        if held is not None and statement == "optimizer.step()":
            used.append(held)
        call = next(call for call in table[state] if call in statement)
        state = table[state][call]
        found.append(Moment(statement.rpartition(".")[2], held, weight.item(), state))

    snippet.run(after=after)
    return found, used


def lesson() -> Iterator[Part]:
    """3, then 5, then 8."""
    wrong, used = moments(FORGOTTEN)
    right, clean = moments(CLEARED)
    yield Say(
        "Every parameter has a bucket, `.grad`. `backward()` pours the new gradient in, on top of "
        "whatever is there. `step()` looks into the bucket, moves the weight, and leaves the bucket "
        "full. Only a clear empties it."
    )
    yield Say(
        f"One weight, {number(right[0].weight)}. Two batches; the slope of the first loss is "
        f"{number(clean[0])}, that of the second {number(clean[1])}."
    )
    yield Code(FORGOTTEN.code, "bucket.py")
    yield Pause()
    yield Buckets(tuple(wrong), max(used))
    yield Say(
        f"The second batch asked for {number(clean[1])}. Its step used {number(used[1])}, because the "
        f"{number(used[0])} of the first batch was still in the bucket. No error, no warning: the "
        f"weight has just gone too far."
    )
    yield Pause()
    yield Say("Now with one more line, a clear before the second batch:")
    yield Buckets(tuple(right), max(used))
    yield Table(
        ("", "expected", "not cleared", "cleared"),
        (
            ("the first step uses", number(clean[0]), number(used[0]), number(clean[0])),
            ("the second step uses", number(clean[1]), number(used[1]), number(clean[1])),
            ("the weight ends at", *map(number, (right[-1].weight, wrong[-1].weight, right[-1].weight))),
        ),
    )  # fmt: skip
    yield Say(
        "It is like a glass that measures today's rain: if nobody empties it in the evening, tomorrow's "
        "reading is the sum of two days."
    )
    rate = CLEARED.run()["optimizer"].param_groups[0]["lr"]
    yield Try(Bucket(right[0].weight, rate, tuple(clean)))
    yield Pause()
    yield Say("zerograd sees it in the source, without running it:")
    yield asked_to_check(FORGOTTEN)
    yield Say("and in a run, with the numbers:")
    yield asked_to_watch(FORGOTTEN)
    yield Say("Of the version with the clear it has nothing to say:")
    yield asked_to_watch(CLEARED)


class Bucket:
    """The weight of this lesson, for a person to press the buttons: torch does what they say."""

    def __init__(self, weight: float, rate: float, gradients: tuple[float, ...]) -> None:
        self.weight = weight
        self.rate = rate
        self.gradients = gradients
        self.table = physics()
        self._parameter = torch.nn.Parameter(torch.tensor(self.weight))
        self._optimizer = torch.optim.SGD([self._parameter], lr=self.rate)
        self._state = EMPTY
        self._poured = 0

    def press(self, call: str) -> Moment:
        """Do it, and look."""
        if call == "zero":
            self._optimizer.zero_grad()
        elif call == "step":
            self._optimizer.step()
        else:
            slope = self.gradients[self._poured % len(self.gradients)]
            torch.autograd.backward(slope * self._parameter)
            self._poured += 1
        self._state = self.table[self._state][call]
        held = None if self._parameter.grad is None else self._parameter.grad.item()
        return Moment(f"{call}()", held, self._parameter.item(), self._state)


def physics() -> dict[str, dict[str, str]]:
    """What zero, backward and step make of each state, as zerograd's own automaton says."""
    kinds = (Kind.ZERO, Kind.BACKWARD, Kind.STEP)
    events = {kind.value: Event(kind, Site("", 0)) for kind in kinds}
    table: dict[str, dict[str, str]] = {}
    reached = [NEW]
    for state in reached:
        if _said(state) not in table:
            after = {call: advance(state, event) for call, event in events.items()}
            table[_said(state)] = {call: _said(one) for call, one in after.items()}
            reached.extend(after.values())
    return table


def _said(state: State) -> str:
    return EMPTY if state.grads is Grads.NONE else state.grads.value
