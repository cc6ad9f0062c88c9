"""fastai: its learner calls the methods of callbacks between the backward, the step and the clear of a batch."""

from __future__ import annotations

from zerograd.static.frameworks.table import Does, Framework, Round

TABLE = Framework(
    packages=["fastai", "fastai2"],
    rounds=[
        Round(
            "before_batch", "after_pred", "after_loss", "before_backward", Does.RUNS_BACKWARD,
            "after_backward", "before_step", Does.STEPS, "after_step", Does.CLEARS, "after_batch",
        )
    ],
)  # fmt: skip
