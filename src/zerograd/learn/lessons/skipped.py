"""Lesson 6: the same training with and without the clear, side by side."""

from __future__ import annotations

from collections.abc import Iterator

from zerograd.learn.content import (
    Code,
    Curves,
    Part,
    Pause,
    Question,
    Say,
    Table,
    number,
)
from zerograd.learn.lessons.shared import REGRESSION, asked_to_watch, flat, whole_loss
from zerograd.learn.snippet import Snippet

LOOP = """\
for epoch in range(5):
    for x_batch, y_batch in loader:
        optimizer.zero_grad()
        loss = loss_fn(model(x_batch), y_batch)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
"""
CLEAR = "        optimizer.zero_grad()\n"
GIVEN = REGRESSION + "losses = []\n"
OPTIMIZERS = (
    "SGD(model.parameters(), lr=0.1)",
    "SGD(model.parameters(), lr=0.02, momentum=0.9)",
    "RMSprop(model.parameters(), lr=0.1)",
    "Adam(model.parameters(), lr=0.1)",
    "AdamW(model.parameters(), lr=0.1)",
)
FOREVER = "SGD(model.parameters(), lr=0.1, momentum=1.0)"
RATES = (0.01, 0.1, 0.4)


def training(optimizer: str = OPTIMIZERS[0], *, cleared: bool) -> Snippet:
    """The loop above with some optimizer, with or without its clear."""
    given = GIVEN.replace(OPTIMIZERS[0], optimizer)
    return Snippet(LOOP if cleared else LOOP.replace(CLEAR, ""), given, "skipped.py")


def lesson() -> Iterator[Part]:
    """Nothing fails; it only gets worse."""
    wrong = training(cleared=False)
    said = asked_to_watch(wrong)
    good, bad = training(cleared=True).run(), wrong.run()
    yield Code(LOOP, "skipped.py")
    yield Question(
        "Leave the line with `zero_grad()` out. Will PyTorch raise an error, or warn?",
        truth=False,
        because=(
            Say(
                "PyTorch says nothing: adding up is what it promises to do. All that one sees is the "
                "loss."
            ),
        ),
    )
    yield Curves(
        (("cleared", tuple(good["losses"])), ("not cleared", tuple(bad["losses"]))),
        "loss of each batch, 5 epochs of 8 batches",
    )
    yield Say(
        f"Over all data the loss ends at {number(whole_loss(good))} with the clear, and at "
        f"{number(whole_loss(bad))} without."
    )
    yield Pause()
    off = (flat(bad) - flat(training(FOREVER, cleared=True).run())).abs().max().item()
    yield Say(
        "What is the wrong one really doing? It uses the sum of all gradients since the beginning, and "
        "that has a name: *momentum that never fades*. The same loop with the clear and "
        f"`SGD(..., momentum=1.0)` ends at weights that are {number(off)} away. Such a thing does not "
        "settle, it swings: past the goal, back, past it again, and every batch gives it another push."
    )
    yield Say("How bad it gets depends on the step size and on the optimizer:")
    sizes = [f"SGD(model.parameters(), lr={rate})" for rate in RATES]
    rows = [
        (_short(one), *(number(whole_loss(training(one, cleared=yes).run())) for yes in (True, False)))
        for one in dict.fromkeys((*sizes, *OPTIMIZERS))
    ]  # fmt: skip
    yield Table(("loss after 5 epochs", "cleared", "not cleared"), tuple(rows))
    yield Say(
        "Weights may swing or explode, learning may be slow or stop. Optimizers that divide by the size "
        "of the gradients hide it best, and still follow the wrong direction. No optimizer clears for "
        "you."
    )
    yield Pause()
    yield Say("zerograd counts the steps that went wrong and shows what the first of them used:")
    yield said


def _short(optimizer: str) -> str:
    return optimizer.replace("model.parameters(), ", "")
