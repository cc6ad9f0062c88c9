"""skorch: its nets call `train_step` once for every batch, and have a part that runs the backward alone."""

from __future__ import annotations

from zerograd.static.frameworks.table import Divided, Framework, Gives, LibraryCall, RunsBackward

TABLE = Framework(
    packages=["skorch"],
    calls=[
        LibraryCall(
            "train_step_single", RunsBackward(divided=Divided.BY_LIBRARY), gives=Gives.UNKNOWN
        )
    ],
    driven=["train_step"],
)
