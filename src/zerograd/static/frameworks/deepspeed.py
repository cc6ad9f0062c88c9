"""DeepSpeed: its engine runs backward, and its step clears."""

from __future__ import annotations

from zerograd.static.frameworks.table import (
    Clears,
    Divided,
    Framework,
    LibraryCall,
    MayTouch,
    ReturnedTuple,
    Role,
    RunsBackward,
    Steps,
    Use,
    Whose,
)
from zerograd.static.frameworks.torch import OPTIMIZER_NAME

ENGINE = Role("engine")
CLEARED = Role("cleared engine")
"""It runs backward, steps, and is cleared by the code: an engine before its first step, or a wrapper at each."""

TABLE = Framework(
    packages=["deepspeed"],
    uses=[
        Use(ENGINE, calls=["backward", "step"], none_of=["zero_grad"]),
        Use(CLEARED, calls=["backward", "step", "zero_grad"], not_named=OPTIMIZER_NAME),
    ],
    calls=[
        LibraryCall(
            "backward",
            RunsBackward(
                required=True,
                fills_owner=True,
                divided=Divided.BY_LIBRARY,
                bypassed="the engine",
            ),
            on=ENGINE,
        ),
        LibraryCall("step", Steps(), Clears(), on=ENGINE),
        LibraryCall(
            "backward", RunsBackward(fills_owner=True, divided=Divided.BY_LIBRARY), on=CLEARED
        ),
        LibraryCall("step", Steps(), MayTouch(Whose.OWNER), on=CLEARED),
    ],
    makes=[
        ReturnedTuple("deepspeed.initialize", ("", ENGINE), ("optimizer", Role.TAKEN), None, None),
    ],
)
