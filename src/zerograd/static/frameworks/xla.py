"""torch_xla, and others that have an `optimizer_step`: it steps the optimizer that it is handed."""

from __future__ import annotations

from zerograd.static.frameworks.table import (
    Framework,
    LibraryCall,
    MayTouch,
    On,
    Role,
    Steps,
    Whose,
)

TABLE = Framework(
    calls=[
        LibraryCall("optimizer_step", Steps(Whose.FIRST), on=On.MODULE),
        LibraryCall(
            "optimizer_step", Steps(Whose.FIRST), MayTouch(Whose.FIRST), given=Role.OPTIMIZER
        ),
    ],
)
