"""timm, and what was built on it: loss scalers that run backward and step in one call, clips of its own."""

from __future__ import annotations

from zerograd.static.frameworks.table import (
    CALLED,
    Framework,
    Gives,
    LibraryCall,
    Role,
    RunsBackward,
    Steps,
    Whose,
)
from zerograd.static.frameworks.torch import SCALER

LOSS_SCALER = Role("loss scaler")

TABLE = Framework(
    classes={
        "NativeScaler": LOSS_SCALER,
        "NativeScalerWithGradNormCount": LOSS_SCALER,
        "ApexScaler": LOSS_SCALER,
        "ApexScalerAccum": LOSS_SCALER,
    },
    calls=[
        LibraryCall(
            CALLED,
            RunsBackward(),
            Steps(Whose.SECOND, scaled=None, when=["update_grad", "need_update"]),
            on=role,
            arguments=2,
            gives=Gives.UNKNOWN,
        )
        for role in (LOSS_SCALER, SCALER)
    ],
    clips=["adaptive_clip_grad", "dispatch_clip_grad"],
)
