"""Lesson 11: the three mistakes, what each does, and how each is found and repaired."""

from __future__ import annotations

from collections.abc import Iterator

from zerograd.learn.content import Code, Part, Pause, Say, number
from zerograd.learn.lessons import place
from zerograd.learn.lessons.shared import REGRESSION, checked, steps, whole_loss
from zerograd.learn.snippet import Snippet

FORGOTTEN = Snippet(place.FIRST.code.replace(place.CLEAR + "\n", ""), REGRESSION, "forgotten.py")
TOO_LATE = Snippet(place.TOO_LATE.code, REGRESSION, "too_late.py")
UNGUARDED = Snippet(
    """\
for x_batch, y_batch in loader:
    for param in model.parameters():
        param.grad.zero_()
    loss = loss_fn(model(x_batch), y_batch)
    loss.backward()
    optimizer.step()
""",
    REGRESSION,
    "unguarded.py",
)
GUARDED = Snippet(
    UNGUARDED.code.replace(
        "        param.grad.zero_()", "        if param.grad is not None:\n            param.grad.zero_()"
    ),
    REGRESSION,
    "unguarded.py",
)  # fmt: skip


def lesson() -> Iterator[Part]:
    """A clear that is forgotten, one that comes too late, and one that fails."""
    repaired = whole_loss(place.FIRST.run())
    start = whole_loss(Snippet("", REGRESSION).run())

    yield Say("*1. The clear is forgotten.*")
    yield Code(FORGOTTEN.code, FORGOTTEN.name)
    found, names = steps(FORGOTTEN)
    last = found[-1]
    yield Say(
        f"The gradient of the last batch has the norm {number(last.own.norm().item())}; its step used a "
        f"gradient with the norm {number(last.held.norm().item())}. The loss ends at "
        f"{number(whole_loss(names))}. With a clear before each backward it ends at {number(repaired)}."
    )
    yield checked(FORGOTTEN)
    yield Pause()

    yield Say("*2. The clear comes between backward and step.*")
    yield Code(TOO_LATE.code, TOO_LATE.name)
    yield Say(
        f"The loss starts at {number(start)} and ends at {number(whole_loss(TOO_LATE.run()))}: the model "
        f"has learned nothing. With the clear at the top of the loop it ends at {number(repaired)}."
    )
    yield checked(TOO_LATE)
    yield Pause()

    yield Say("*3. Gradients are cleared by hand without a test for None.*")
    yield Code(UNGUARDED.code, UNGUARDED.name)
    error = UNGUARDED.run(raises=(AttributeError,))["error"]
    yield Say(
        f"`{type(error).__name__}: {error}`: before the first backward, `.grad` is `None`. With the test "
        f"`if param.grad is not None`, the loss ends at {number(whole_loss(GUARDED.run()))}."
    )
    yield checked(UNGUARDED)
    yield Say("After the repairs, zerograd reports nothing:")
    for right in (place.FIRST, GUARDED):
        yield checked(right)
