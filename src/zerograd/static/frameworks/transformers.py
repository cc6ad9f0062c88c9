"""transformers: its Trainer runs the backward of a loss, steps and clears; callbacks are called in between."""

from __future__ import annotations

from zerograd.static.frameworks.table import Does, Framework, Round

TABLE = Framework(
    packages=["transformers", "trl", "adapters", "sentence_transformers", "setfit"],
    rounds=[
        Round(
            "on_step_begin", "compute_loss", Does.RUNS_BACKWARD, "on_pre_optimizer_step", Does.STEPS,
            "on_optimizer_step", Does.CLEARS, "on_step_end",
        )
    ],
)  # fmt: skip
