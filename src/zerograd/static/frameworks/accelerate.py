"""Hugging Face accelerate: it runs backward, and gates the steps of what it has prepared."""

from __future__ import annotations

import re

from zerograd.core.late_pattern import pattern
from zerograd.static.frameworks.table import (
    Context,
    ContextEffect,
    Divided,
    Framework,
    Gives,
    LibraryCall,
    On,
    Prepares,
    Role,
    RunsBackward,
    Unscales,
    Use,
    Whose,
)

ACCELERATOR = Role("accelerator")

TABLE = Framework(
    packages=["accelerate"],
    classes={"Accelerator": ACCELERATOR},
    uses=[
        Use(ACCELERATOR, named=pattern("accelerator", re.IGNORECASE)),
        Use(
            ACCELERATOR,
            calls=["backward"],
            any_of=[
                "prepare", "accumulate", "unwrap_model", "gather", "gather_for_metrics",
                "sync_gradients", "is_main_process", "is_local_main_process",
                "wait_for_everyone", "clip_grad_norm_",
            ],
        ),
    ],
    calls=[
        LibraryCall("backward", RunsBackward(required=True, divided=Divided.BY_WINDOW), on=ACCELERATOR),
        LibraryCall("prepare*", Prepares(), on=ACCELERATOR, gives=Gives.ARGUMENTS),
        LibraryCall("setup*", Prepares(), on=ACCELERATOR, gives=Gives.ARGUMENTS),
        LibraryCall("unscale_gradients", Unscales(Whose.EACH_OF_FIRST), on=On.ANYTHING),
    ],
    contexts=[Context("accumulate", ContextEffect.ACCUMULATES, on=ACCELERATOR)],
    wrappers="unwrap_model",
    unscales_to_clip=[ACCELERATOR],
    closes_window=["sync_gradients"],
)  # fmt: skip
