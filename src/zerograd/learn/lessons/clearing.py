"""Lesson 3: the ways to clear, what each leaves in `.grad`, and what none of them changes."""

from __future__ import annotations

from collections.abc import Iterator

import torch

from zerograd.learn.content import Code, Part, Pause, Say, Table, number
from zerograd.learn.lessons.shared import LAYER, checked, flat, steps, watched
from zerograd.learn.snippet import Names, Snippet

CLEARED = Snippet(
    """\
for i in range(3):
    optimizer.zero_grad()
    loss = criterion(model(example), wanted)
    loss.backward()
    optimizer.step()
""",
    LAYER,
    "cleared.py",
)

BY_HAND = "for p in model.parameters():\n    if p.grad is not None:\n        p.grad.zero_()"
WAYS = (
    ("optimizer.zero_grad()",) * 2,
    ("optimizer.zero_grad(set_to_none=False)",) * 2,
    ("model.zero_grad()",) * 2,
    ("p.grad = None, for each p", "for p in model.parameters(): p.grad = None"),
    ("p.grad.zero_(), where it is not None", BY_HAND),
)

HEAD_ONLY = Snippet(
    """\
loss = model(torch.ones(1, 2)).sum()
loss.backward()
optimizer.zero_grad()
""",
    """\
import torch
from torch import nn

torch.manual_seed(0)
model = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 1))
optimizer = torch.optim.SGD(model[1].parameters(), lr=0.1)
""",
    "head_only.py",
)


def way(label: str, code: str) -> tuple[str, ...]:
    """One way to clear: `.grad` before and after, and by how much the weights have changed."""
    filled = LAYER + "criterion(model(example), wanted).backward()\n"
    size: list[float] = []
    weights: list[torch.Tensor] = []

    def before(names: Names) -> None:
        size.append(names["model"].weight.grad.norm().item())
        weights.append(flat(names))

    names = Snippet(code, filled).run(before)
    left = names["model"].weight.grad
    after = "None" if left is None else f"zeros, {number(left.norm().item())}"
    moved = (flat(names) - weights[0]).abs().max().item()
    return label, number(size[0]), after, number(moved)


def lesson() -> Iterator[Part]:
    """Five ways, and their limits."""
    yield Say(
        "There are five ways to empty the bucket. All are correct if they come at the right time:"
    )
    yield Table(
        ("the clear", "|.grad| before", "after", "weights moved by"),
        tuple(way(*one) for one in WAYS),
    )
    yield Say(
        "None of them changes a weight. A clear removes the input of the next step, not what the model "
        "has learned. Use `optimizer.zero_grad()` unless you have a reason not to. If you clear by hand, "
        "test for `None`: a parameter that no backward has reached has no tensor to fill with zeros."
    )
    yield Pause()
    yield Say("The loop of the last lesson, with a clear in each iteration:")
    yield Code(CLEARED.code, CLEARED.name)
    found, _ = steps(CLEARED)
    rows = [
        (str(index), number(step.own.norm().item()), number(step.held.norm().item()))
        for index, step in enumerate(found, 1)
    ]
    yield Table(("iteration", "|its own gradient|", "|.grad| used"), tuple(rows))
    yield Say("Now each step uses the gradient of its own iteration only.")
    yield Pause()
    names = HEAD_ONLY.run()
    body, head = (layer.weight.grad for layer in names["model"])
    yield Say(
        "There is one limit: an optimizer clears *its own* parameters only. This optimizer has the "
        f"second layer only. After `optimizer.zero_grad()` the gradient of the second layer is {head}, "
        f"and the gradient of the first layer still has the norm {number(body.norm().item())}. "
        "`model.zero_grad()` clears both."
    )
    yield Say("zerograd finds nothing in the loop above, neither in the source nor in a run:")
    yield checked(CLEARED)
    yield watched(CLEARED)
    yield Say(
        "It reports a clear by hand without the test for `None`, before any backward has run:"
    )
    unguarded = BY_HAND.replace("    if p.grad is not None:\n    ", "")
    rest = "\n".join(CLEARED.code.splitlines()[2:])
    yield checked(Snippet(f"{unguarded}\nfor i in range(3):\n{rest}\n", LAYER, "by_hand.py"))
