"""PyTorch Lightning: modules with manual optimization, and Fabric, which runs backward."""

from __future__ import annotations

import re

from zerograd.static.frameworks.table import (
    Call,
    Changes,
    Context,
    Framework,
    Gives,
    On,
    Prepares,
    ResultOf,
    Role,
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
        Use(FABRIC, calls=["backward"], named=re.compile("fabric", re.IGNORECASE)),
    ],
    calls=[
        Call("backward", RunsBackward(required=True), on=FABRIC),
        Call("setup*", Prepares(), on=FABRIC, gives=Gives.ARGUMENTS),
        Call("prepare*", Prepares(), on=FABRIC, gives=Gives.ARGUMENTS),
        Call("manual_backward", RunsBackward(), on=On.ANYTHING),
        Call("optimizers", gives=ResultOf("configure_optimizers")),
    ],
    contexts=[Context("no_backward_sync", Changes.LOCAL)],
    clips=["clip_gradients"],
    unscales_to_clip=[FABRIC],
    per_batch=["training_step"],
    completed=["training_step"],
)
