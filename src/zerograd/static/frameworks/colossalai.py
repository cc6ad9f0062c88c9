"""ColossalAI: its booster wraps what it is handed, runs backward, and runs pipelines whole."""

from __future__ import annotations

from zerograd.static.frameworks.table import (
    Divided,
    Framework,
    Gives,
    HandsBack,
    LibraryCall,
    MayTouch,
    Role,
    RunsBackward,
    Use,
    Whose,
)

BOOSTER = Role("booster")

TABLE = Framework(
    packages=["colossalai"],
    classes={"Booster": BOOSTER},
    uses=[Use(BOOSTER, calls=["backward"], any_of=["boost", "execute_pipeline"])],
    calls=[
        LibraryCall("backward", RunsBackward(divided=Divided.BY_LIBRARY), on=BOOSTER),
        LibraryCall(
            "boost",
            on=BOOSTER,
            gives=HandsBack("model", "optimizer", "criterion", "dataloader", "lr_scheduler"),
        ),
        LibraryCall("execute_pipeline", MayTouch(Whose.ANYONE), on=BOOSTER, gives=Gives.UNKNOWN),
    ],
    mentions=["execute_pipeline"],
)
