"""Lesson 1: one weight, two batches, and no clear between them."""

from __future__ import annotations

from collections.abc import Iterator

import torch

from zerograd.core.events import Backward, Event, Site, Step, Zero
from zerograd.core.lifecycle import NEW, Grads, State, advance
from zerograd.learn.content import (
    Buckets,
    Code,
    Moment,
    Part,
    Pause,
    Say,
    Table,
    TryOut,
    number,
)
from zerograd.learn.lessons.shared import checked, watched
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
"""The lesson's name for the state that the state machine calls none."""


def moments(snippet: Snippet) -> tuple[list[Moment], list[float]]:
    """The bucket after each call, and the gradient that each step used."""
    table, state = transitions(), EMPTY
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
        "Every parameter has a bucket, `.grad`. `backward()` adds the new gradient to the bucket. "
        "`step()` reads the bucket, moves the weight, and leaves the bucket full. Only a clear "
        "empties it."
    )
    yield Say(
        f"Here is one weight, {number(right[0].weight)}, and two batches. The first loss has a "
        f"gradient of {number(clean[0])}, the second loss a gradient of {number(clean[1])}."
    )
    yield Code(FORGOTTEN.code, "bucket.py")
    yield Pause()
    yield Buckets(tuple(wrong), max(used))
    yield Say(
        f"The gradient of the second batch is {number(clean[1])}, but its step used {number(used[1])}: "
        f"the {number(used[0])} of the first batch was still in the bucket. There is no error and no "
        "warning. The weight has moved too far."
    )
    yield Pause()
    yield Say("The same with one more line, a clear before the second batch:")
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
        "A rain gauge works the same way: if nobody empties it in the evening, it shows the sum of two "
        "days tomorrow."
    )
    rate = CLEARED.run()["optimizer"].param_groups[0]["lr"]
    yield TryOut(Bucket(right[0].weight, rate, tuple(clean)))
    yield Pause()
    yield Say("zerograd finds the mistake in the source, without running it:")
    yield checked(FORGOTTEN)
    yield Say("It also finds the mistake in a run, and shows the numbers:")
    yield watched(FORGOTTEN)
    yield Say("In the version with the clear it finds nothing:")
    yield watched(CLEARED)


class Bucket:
    """The weight of this lesson. The reader presses buttons, and torch makes the calls."""

    def __init__(self, weight: float, rate: float, gradients: tuple[float, ...]) -> None:
        self.weight = weight
        self.rate = rate
        self.gradients = gradients
        self.table = transitions()
        self._parameter = torch.nn.Parameter(torch.tensor(self.weight))
        self._optimizer = torch.optim.SGD([self._parameter], lr=self.rate)
        self._state = EMPTY
        self._batches = 0

    def press(self, call: str) -> Moment:
        """Make the call, and return the bucket after it."""
        if call == "zero":
            self._optimizer.zero_grad()
        elif call == "step":
            self._optimizer.step()
        else:
            slope = self.gradients[self._batches % len(self.gradients)]
            torch.autograd.backward(slope * self._parameter)
            self._batches += 1
        self._state = self.table[self._state][call]
        held = None if self._parameter.grad is None else self._parameter.grad.item()
        return Moment(f"{call}()", held, self._parameter.item(), self._state)


def transitions() -> dict[str, dict[str, str]]:
    """The state after zero, backward and step for each state, from zerograd's state machine."""
    kinds: tuple[type[Event], ...] = (Zero, Backward, Step)
    events = {kind.kind: kind(Site("", 0)) for kind in kinds}
    table: dict[str, dict[str, str]] = {}
    reached = [NEW]
    for state in reached:
        if _name(state) not in table:
            after = {call: advance(state, event) for call, event in events.items()}
            table[_name(state)] = {call: _name(one) for call, one in after.items()}
            reached.extend(after.values())
    return table


def _name(state: State) -> str:
    return EMPTY if state.grads is Grads.NONE else state.grads.value
