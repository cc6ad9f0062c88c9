"""MosaicML Composer: its trainer calls the methods of callbacks around the micro-batches and the step of a batch."""

from __future__ import annotations

from zerograd.static.frameworks.table import Does, Framework, Round

TABLE = Framework(
    packages=["composer"],
    rounds=[
        Round(
            "before_train_batch", Does.CLEARS, "before_forward", "after_forward", "before_loss",
            "after_loss", "before_backward", Does.RUNS_BACKWARD, "after_backward", "after_train_batch",
            Does.STEPS, "batch_end",
        )
    ],
)  # fmt: skip
