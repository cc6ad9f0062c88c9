"""PyTorch Lightning: modules with manual optimization, and Fabric, which runs backward."""

from __future__ import annotations

import re

from zerograd.core.late_pattern import pattern
from zerograd.static.frameworks.table import (
    Context,
    ContextEffect,
    Does,
    Framework,
    Gives,
    LibraryCall,
    On,
    Prepares,
    ResultOf,
    Role,
    Round,
    RunsBackward,
    Use,
)

FABRIC = Role("fabric")

TABLE = Framework(
    packages=["lightning", "lightning_fabric", "pytorch_lightning"],
    classes={"Fabric": FABRIC, "LightningLite": FABRIC},
    uses=[
        Use(
            FABRIC,
            calls=["backward"],
            any_of=["setup", "setup_dataloaders", "setup_module", "clip_gradients", "launch"],
        ),
        Use(FABRIC, calls=["backward"], named=pattern("fabric", re.IGNORECASE)),
    ],
    calls=[
        LibraryCall("backward", RunsBackward(required=True), on=FABRIC),
        LibraryCall("setup*", Prepares(), on=FABRIC, gives=Gives.ARGUMENTS),
        LibraryCall("prepare*", Prepares(), on=FABRIC, gives=Gives.ARGUMENTS),
        LibraryCall("manual_backward", RunsBackward(), on=On.ANYTHING),
        LibraryCall("optimizers", gives=ResultOf("configure_optimizers")),
    ],
    contexts=[Context("no_backward_sync", ContextEffect.LOCAL)],
    clips=["clip_gradients"],
    unscales_to_clip=[FABRIC],
    per_batch=["training_step"],
    driven=["training_step"],
    rounds=[
        Round(
            "on_before_zero_grad", Does.CLEARS, "training_step", "on_before_backward", Does.RUNS_BACKWARD,
            "on_after_backward", "on_before_optimizer_step", Does.STEPS, "on_train_batch_end",
        )
    ],
)  # fmt: skip
