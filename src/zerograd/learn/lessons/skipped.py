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
from zerograd.learn.lessons.shared import REGRESSION, flat, watched, whole_loss
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
    """The loop above with this optimizer, with or without the clear."""
    given = GIVEN.replace(OPTIMIZERS[0], optimizer)
    return Snippet(LOOP if cleared else LOOP.replace(CLEAR, ""), given, "skipped.py")


def lesson() -> Iterator[Part]:
    """Nothing fails, but the training gets worse."""
    wrong = training(cleared=False)
    verdict = watched(wrong)
    good, bad = training(cleared=True).run(), wrong.run()
    yield Code(LOOP, "skipped.py")
    yield Question(
        "Without the line `zero_grad()`, does PyTorch raise an error or warn?",
        truth=False,
        because=(
            Say(
                "PyTorch prints nothing: adding up gradients is what it promises to do. You can only "
                "see it in the loss."
            ),
        ),
    )
    yield Curves(
        (("cleared", tuple(good["losses"])), ("not cleared", tuple(bad["losses"]))),
        "loss of each batch, 5 epochs of 8 batches",
    )
    yield Say(
        f"Over all data, the loss ends at {number(whole_loss(good))} with the clear and at "
        f"{number(whole_loss(bad))} without it."
    )
    yield Pause()
    off = (flat(bad) - flat(training(FOREVER, cleared=True).run())).abs().max().item()
    yield Say(
        "Without the clear, each step uses the sum of all gradients since the beginning. That is "
        "*momentum that never decays*: the same loop with the clear and `SGD(..., momentum=1.0)` ends "
        f"at weights that differ by {number(off)}. Such a training does not converge, it oscillates: the "
        "weights overshoot the minimum, come back and overshoot again."
    )
    yield Say("The damage depends on the learning rate and on the optimizer:")
    sizes = [f"SGD(model.parameters(), lr={rate})" for rate in RATES]
    rows = [
        (_short(one), *(number(whole_loss(training(one, cleared=yes).run())) for yes in (True, False)))
        for one in dict.fromkeys((*sizes, *OPTIMIZERS))
    ]  # fmt: skip
    yield Table(("loss after 5 epochs", "cleared", "not cleared"), tuple(rows))
    yield Say(
        "The weights can oscillate or explode, and the training can become slow or stop. Optimizers "
        "that divide by the size of the gradients hide the mistake best, but they still follow the wrong "
        "direction. No optimizer clears gradients for you."
    )
    yield Pause()
    yield Say("zerograd counts the wrong steps and shows what the first of them used:")
    yield verdict


def _short(optimizer: str) -> str:
    return optimizer.replace("model.parameters(), ", "")
