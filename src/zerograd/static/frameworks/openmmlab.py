"""OpenMMLab: its runners call `train_step` of models and the methods of hooks once for every batch."""

from __future__ import annotations

from zerograd.core.late_pattern import pattern
from zerograd.static.frameworks.table import (
    Clears,
    Divided,
    Framework,
    LibraryCall,
    Role,
    RunsBackward,
    Steps,
    Use,
)

TABLE = Framework(
    packages=[
        "mmengine", "mmcv", "mmdet", "mmdet3d", "mmseg", "mmcls", "mmpretrain", "mmgen", "mmedit", "mmagic",
        "mmaction", "mmpose", "mmselfsup", "mmrazor",
    ],
    uses=[Use(Role.OPTIMIZER, named=pattern(r"optim\w*_wrapper$"))],
    calls=[
        LibraryCall(
            "update_params",
            RunsBackward(divided=Divided.BY_LIBRARY), Steps(scaled=None), Clears(),
            on=Role.OPTIMIZER,
        ),
    ],
    driven=["train_step", "before_train_iter", "after_train_iter"],
)  # fmt: skip
