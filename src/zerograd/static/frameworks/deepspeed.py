"""DeepSpeed: its engine runs backward, and its step clears."""

from __future__ import annotations

from zerograd.static.frameworks.table import (
    Clears,
    Divided,
    Framework,
    LibraryCall,
    ReturnedTuple,
    Role,
    RunsBackward,
    Steps,
    Use,
)

ENGINE = Role("engine")

TABLE = Framework(
    packages=["deepspeed"],
    uses=[
        Use(ENGINE, calls=["backward", "step"], none_of=["zero_grad"]),
        # A module in one arm of a setting, and its engine in the other.
        Use(ENGINE, calls=["backward", "step"], any_of=["train", "eval"]),
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
    ],
    makes=[
        ReturnedTuple("deepspeed.initialize", ("", ENGINE), ("optimizer", Role.OTHER), None, None),
    ],
)
