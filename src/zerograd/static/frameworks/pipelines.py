"""Pipelines of torch and Megatron: a schedule runs forward and backward of all micro-batches in one call."""

from __future__ import annotations

from zerograd.core.late_pattern import pattern
from zerograd.static.frameworks.table import (
    CALLED,
    Divided,
    Framework,
    Gives,
    LibraryCall,
    Role,
    RunsBackward,
    Use,
)

PIPELINE = Role("pipeline")
_ALL = RunsBackward(divided=Divided.BY_LIBRARY, unless="forward_only")

TABLE = Framework(
    classes=dict.fromkeys(
        [
            "ScheduleGPipe", "Schedule1F1B", "ScheduleInterleaved1F1B", "ScheduleLoopedBFS",
            "ScheduleInterleavedZeroBubble", "ScheduleZBVZeroBubble", "ScheduleDualPipeV",
            "get_forward_backward_func",
        ],
        PIPELINE,
    ),
    uses=[Use(PIPELINE, named=pattern(r"(^|_)(pp|pipe\w*)_schedule$|^forward_backward_func$"))],
    calls=[
        LibraryCall("step", _ALL, on=PIPELINE, gives=Gives.UNKNOWN),
        LibraryCall(CALLED, _ALL, on=PIPELINE, gives=Gives.UNKNOWN),
    ],
    mentions=["forward_backward_func", "get_forward_backward_func"],
)  # fmt: skip
