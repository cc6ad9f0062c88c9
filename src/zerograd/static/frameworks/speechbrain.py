"""SpeechBrain: its Brain calls `fit_batch` once for every batch; `check_gradients` clips, and says whether to step."""

from __future__ import annotations

from zerograd.static.frameworks.table import Framework, Gives, LibraryCall, On

TABLE = Framework(
    packages=["speechbrain"],
    calls=[LibraryCall("check_gradients", on=On.UNSEEN, gives=Gives.UNKNOWN)],
    driven=["fit_batch"],
)
